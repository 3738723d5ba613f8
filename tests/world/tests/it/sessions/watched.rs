//! `handler run` while somebody watches: answered at a terminal, interrupted, and left by its daemon.

use crate::sessions::log;
use crate::sessions::stage::Stage;
use crate::sessions::typed::Typed;
use crate::sessions::viewer::slow_words;
use handler_types::session::SessionState;

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_at_the_terminal() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("terminal", &["claude-code"]).await? else {
        return Ok(());
    };
    let write = |name: &str| format!("PLAN:write:{}|yes", stage.project.join(name).display());
    let task = write("typed.txt");
    let mut run = Typed::on_terminal(
        &stage.world,
        &stage.project,
        &["run", "--permissions", "ask", &task],
    )?;
    run.shows("type the number of an answer\r\n")?;
    assert!(
        run.shown.contains("? ") && run.shown.contains("1. "),
        "{}",
        run.shown
    );
    run.enter("perhaps")?;
    run.shows("type the number of an answer\r\nperhaps")?;
    assert!(
        stage.read("typed.txt").is_err(),
        "nothing before the answer"
    );
    run.enter("y")?;
    assert_eq!(run.ends()?, 0, "{}", run.shown);
    assert_eq!(stage.read("typed.txt")?.trim_end(), "yes");

    // Another terminal: replay, then live; what is typed is a prompt, and its questions come here.
    let mut attached = Typed::on_terminal(&stage.world, &stage.project, &["attach"])?;
    attached.shows("typed.txt is written.")?;
    attached.enter(&write("refused.txt"))?;
    attached.shows("type the number of an answer")?;
    attached.enter("n")?;
    attached.shows("It was not done")?;
    assert!(stage.read("refused.txt").is_err(), "it was refused");

    // Without a turn an interrupt leaves; the session goes on.
    let session = stage.client().sessions("", "", 1).await?.items.remove(0);
    stage
        .reaches(session.id.as_str(), SessionState::Running)
        .await?;
    attached.enter("PLAN:text:Bye.")?;
    attached.shows("\nBye.")?;
    let session = stage
        .reaches(session.id.as_str(), SessionState::Running)
        .await?;
    assert_eq!(session.last_stop_reason.as_deref(), Some("end_turn"));
    attached.leaves()?;
    let session = stage
        .reaches(session.id.as_str(), SessionState::Running)
        .await?;
    assert_eq!(session.last_stop_reason.as_deref(), Some("end_turn"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_interrupted_and_another_outlives_its_daemon() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("watched run", &["pi"]).await? else {
        return Ok(());
    };
    let mut run = Typed::piped(&stage.world, &stage.project, &["run", "PLAN:slow:3000"])?;
    run.shows("word3 ")?;
    run.interrupt()?;
    assert_eq!(run.ends()?, 1, "{}", run.shown);
    assert_eq!(
        run.shown.matches("turn ended: cancelled").count(),
        1,
        "{}",
        run.shown
    );

    let mut run = Typed::piped(
        &stage.world,
        &stage.project,
        &["run", "outlive PLAN:slow:150"],
    )?;
    run.shows("word20 ")?;
    stage.world.kill9()?;
    run.shows("connection lost")?;
    stage.world.start_daemon().await?;
    assert_eq!(run.ends()?, 0, "{}", run.shown);
    // The remark about the lost connection stands between two words.
    let (before, after) = run
        .shown
        .split_once("\nconnection lost")
        .unwrap_or_default();
    let before = before.rsplit('\n').next().unwrap_or_default();
    let after = after.split_once('\n').unwrap_or_default().1;
    let after = after.lines().next().unwrap_or_default();
    assert_eq!(format!("{before}{after}"), slow_words(150), "{}", run.shown);
    let sessions = stage.client().sessions("", "", 10).await?.items;
    let newest = log::events(&stage.world, sessions[0].id.as_str())?;
    assert_eq!(log::turns(&newest), ["end_turn"]);
    assert_eq!(stage.asked("outlive").len(), 1);
    Ok(())
}
