//! The same by hand: what a person types, sees and gets as an exit code.

use crate::sessions::stage::{LONG, Stage};
use handler_testkit::eventually;
use handler_types::session::SessionState;
use std::process::{Output, Stdio};

/// Runs `handler` in the project folder.
async fn type_in(stage: &Stage, args: &[&str]) -> anyhow::Result<Output> {
    let mut command = tokio::process::Command::from(stage.world.command());
    command
        .args(args)
        .current_dir(&stage.project)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    Ok(tokio::time::timeout(LONG, command.output()).await??)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_task_is_given_followed_and_looked_at_from_the_command_line() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("command line", &["pi"]).await? else {
        return Ok(());
    };
    let id = runs_a_task(&stage).await?;
    is_attached_to(&stage, &id).await?;
    is_listed_stopped_and_removed(&stage, &id).await?;
    ends_with_one_when_cut_short(&stage).await?;
    is_left_alone_and_cancelled(&stage).await?;
    tells_that_the_agent_said_nothing(&stage).await
}

async fn runs_a_task(stage: &Stage) -> anyhow::Result<String> {
    let path = stage.project.join("typed.txt");
    let task = format!(
        "Do it. PLAN:write:{}|typed THEN PLAN:slow:5",
        path.display()
    );
    let run = type_in(stage, &["run", &task]).await?;
    let (shown, notes) = (out(&run), err(&run));
    assert_eq!(run.status.code(), Some(0), "{shown}{notes}");
    for part in [
        "> Do it.",
        "I will write the file now.",
        "typed.txt is written.",
        "word1 word2",
    ] {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
    let call = |mark: &str| {
        let is_it = |line: &str| line.trim_start().starts_with(mark) && line.contains("write");
        shown.lines().any(is_it)
    };
    assert!(call("●") && call("✓"), "the call and its end in {shown}");
    assert_eq!(stage.read("typed.txt")?.trim_end(), "typed");
    assert!(!shown.contains('\u{1b}'), "no colours outside a terminal");
    let id = notes
        .split("session ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let id = id.unwrap_or_default().to_owned();
    assert!(id.starts_with("s_"), "{notes}");
    Ok(id)
}

async fn is_attached_to(stage: &Stage, id: &str) -> anyhow::Result<()> {
    let replay = type_in(stage, &["attach", "--no-follow", id]).await?;
    let shown = out(&replay);
    assert_eq!(replay.status.code(), Some(0), "{}", err(&replay));
    assert_eq!(shown.matches("> Do it.").count(), 1, "{shown}");
    assert_eq!(shown.matches("word1 word2").count(), 1, "{shown}");
    // Without a name: the last one of this folder.
    let asked = type_in(stage, &["attach", "--prompt", "PLAN:text:Once more."]).await?;
    assert_eq!(asked.status.code(), Some(0), "{}", err(&asked));
    assert!(out(&asked).contains("Once more."), "{}", out(&asked));
    let nobody = type_in(stage, &["attach", "s_0000000000000000"]).await?;
    assert_eq!(nobody.status.code(), Some(4), "{}", err(&nobody));
    Ok(())
}

async fn is_listed_stopped_and_removed(stage: &Stage, id: &str) -> anyhow::Result<()> {
    let line = |list: String| {
        let line = list
            .lines()
            .find(|line| line.starts_with(id))
            .map(str::to_owned);
        line.unwrap_or_else(|| panic!("no {id} in {list}"))
    };
    let list = line(out(&type_in(stage, &["session", "list"]).await?));
    assert!(list.contains(" idle ") && list.contains(" pi "), "{list}");
    let show = type_in(stage, &["session", "show", &id[..10]]).await?;
    let shown: serde_json::Value = serde_json::from_slice(&show.stdout)?;
    assert_eq!(shown["id"], id);
    assert_eq!(shown["lastStopReason"], "end_turn");
    assert!(!out(&show).contains(&stage.key));

    assert!(
        type_in(stage, &["session", "stop", id])
            .await?
            .status
            .success()
    );
    let list = line(out(&type_in(stage, &["session", "list", "--all"]).await?));
    assert!(list.contains(" stopped "), "{list}");
    stage.world.assert_clean(LONG).await?;

    assert!(
        type_in(stage, &["session", "rm", id])
            .await?
            .status
            .success()
    );
    let gone = type_in(stage, &["session", "show", id]).await?;
    assert_eq!(gone.status.code(), Some(4), "{}", err(&gone));
    assert!(
        !super::log::folder(&stage.world, id).exists(),
        "its folder goes with it"
    );
    Ok(())
}

async fn ends_with_one_when_cut_short(stage: &Stage) -> anyhow::Result<()> {
    let run = type_in(stage, &["run", "--turn-timeout", "2", "PLAN:slow:3000"]).await?;
    assert_eq!(run.status.code(), Some(1), "{}", err(&run));
    assert!(out(&run).contains("word1 word2"), "{}", out(&run));
    assert!(err(&run).contains("timed_out"), "{}", err(&run));
    Ok(())
}

async fn is_left_alone_and_cancelled(stage: &Stage) -> anyhow::Result<()> {
    let left = type_in(stage, &["run", "--detach", "PLAN:slow:3000"]).await?;
    let id = out(&left).trim().to_owned();
    assert!(id.starts_with("s_") && id.len() == 18, "{id}{}", err(&left));
    eventually("the turn to begin", LONG, || async {
        let view = stage.client().session(&id).await.ok()?;
        (view.busy && view.last_seq > 5).then_some(())
    })
    .await?;
    let list = out(&type_in(stage, &["session", "list"]).await?);
    assert!(list.contains(" working "), "{list}");
    let cancel = type_in(stage, &["session", "cancel", &id]).await?;
    assert_eq!(cancel.status.code(), Some(0), "{}", err(&cancel));
    let view = stage.reaches(&id, SessionState::Running).await?;
    assert_eq!(view.last_stop_reason.as_deref(), Some("cancelled"));
    let whole = type_in(stage, &["--json", "session", "show", &id]).await?;
    let shown: serde_json::Value = serde_json::from_slice(&whole.stdout)?;
    assert_eq!(shown["lastStopReason"], "cancelled");
    Ok(())
}

/// This agent keeps its model's refusal to itself.
async fn tells_that_the_agent_said_nothing(stage: &Stage) -> anyhow::Result<()> {
    let run = type_in(stage, &["run", "PLAN:error:400"]).await?;
    assert!(
        err(&run).contains("without a word"),
        "{}{}",
        out(&run),
        err(&run)
    );
    Ok(())
}
