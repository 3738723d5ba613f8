//! Turns that take too long, sessions nobody uses, and agents that end by themselves.

use crate::sessions::log;
use crate::sessions::stage::{LONG, Stage};
use anyhow::Context as _;
use handler_testkit::eventually;
use handler_types::session::SessionState;
use rustix::process::{Pid, Signal, kill_process};

#[tokio::test]
async fn a_turn_has_its_time_and_an_idle_session_is_stopped() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("turn timeout and idle stop", &["pi"]).await? else {
        return Ok(());
    };
    let mut request = stage.request("pi");
    request.turn_timeout_secs = Some(2);
    request.idle_timeout_secs = Some(1);
    let mut viewer = stage.open(&request).await?;
    let id = viewer.id.clone();
    let prompt = viewer.prompt("PLAN:slow:3000").await?;
    // What the agent itself says is passed on; the session knows better.
    assert_eq!(viewer.stop_reason(prompt).await?, "cancelled");
    viewer.idle().await?;
    let view = stage.client().session(&id).await?;
    assert_eq!(view.last_stop_reason.as_deref(), Some("timed_out"));
    assert_eq!(
        view.state,
        SessionState::Running,
        "attached and busy for longer than idle"
    );

    drop(viewer);
    let view = stage.reaches(&id, SessionState::Stopped).await?;
    assert!(
        view.sandbox_id.is_none() && view.error.is_none(),
        "{view:?}"
    );
    let events = log::events(&stage.world, &id)?;
    assert_eq!(log::how(&events).as_deref(), Some("idle"));
    assert_eq!(log::turns(&events), ["timed_out"]);
    stage.world.assert_clean(LONG).await
}

#[tokio::test]
async fn an_agent_that_is_killed_stops_its_session_and_can_be_attached_again() -> anyhow::Result<()>
{
    let Some(stage) = Stage::set("agent killed", &["pi"]).await? else {
        return Ok(());
    };
    let mut viewer = stage.open(&stage.request("pi")).await?;
    let id = viewer.id.clone();
    viewer.turn("PLAN:text:Before the end.").await?;
    viewer
        .prompt("PLAN:shell:kill -9 $(pgrep -f bin/pi-acp)")
        .await?;
    let (code, reason) = viewer.closed().await?;
    assert_eq!(code, 4002, "{reason}");
    stage.reaches(&id, SessionState::Stopped).await?;
    let events = log::events(&stage.world, &id)?;
    assert_eq!(log::how(&events).as_deref(), Some("exited"));
    assert_eq!(log::turns(&events), ["end_turn", "stopped"]);
    stage.world.assert_clean(LONG).await?;

    let mut again = stage.attach(&id, 0).await?;
    let (said, reason) = again.turn("PLAN:text:And again.").await?;
    assert_eq!((said.as_str(), reason.as_str()), ("And again.", "end_turn"));
    Ok(())
}

#[tokio::test]
async fn a_filter_that_is_killed_comes_back_for_the_same_session() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("filter killed", &["pi"]).await? else {
        return Ok(());
    };
    let mut viewer = stage.open(&stage.request("pi")).await?;
    viewer.turn("PLAN:text:Before.").await?;
    let old = filter(&stage).context("no filter")?;
    let pid = Pid::from_raw(old).context("a process id")?;
    kill_process(pid, Signal::KILL)?;
    eventually("another filter", LONG, || async {
        filter(&stage).filter(|new| *new != old)
    })
    .await?;
    // Its sandboxes are told to it a moment after it runs; until then the agent's own retries must do.
    let (said, reason) = viewer.turn("PLAN:text:After.").await?;
    assert_eq!((said.as_str(), reason.as_str()), ("After.", "end_turn"));
    assert!(
        stage
            .asked("After.")
            .iter()
            .all(|r| r.key().as_ref() == Some(&stage.key))
    );
    let (said, _) = viewer.turn("PLAN:fetch:http://denied.example/").await?;
    assert!(said.contains("403"), "{said}");
    Ok(())
}

/// The process of the egress filter.
fn filter(stage: &Stage) -> Option<i32> {
    let all = stage.world.processes();
    let filter = all
        .iter()
        .find(|p| p.argv.get(1).is_some_and(|verb| verb == "egress"));
    filter.map(|process| process.pid)
}
