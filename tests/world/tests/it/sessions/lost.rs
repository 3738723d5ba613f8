//! What is lost with the machine and what is not; sessions ended in the middle of a turn.

use crate::sessions::log;
use crate::sessions::stage::{LONG, Stage, mentions};
use crate::sessions::viewer::said;
use handler_types::session::SessionState;
use rustix::process::{Pid, Signal, kill_process};

#[tokio::test]
async fn after_a_power_cut_a_session_is_stopped_and_can_be_gone_on_with() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("power cut", &["pi"]).await? else {
        return Ok(());
    };
    let mut viewer = stage.open(&stage.request("pi")).await?;
    let id = viewer.id.clone();
    viewer.turn("PLAN:text:Long before.").await?;
    viewer.prompt("cut short PLAN:slow:3000").await?;
    viewer.words(5).await?;
    stage.world.kill9()?;
    for process in stage.world.processes() {
        if let Some(pid) = Pid::from_raw(process.pid) {
            kill_process(pid, Signal::KILL).ok();
        }
    }
    stage.world.start_daemon().await?;
    let view = stage.reaches(&id, SessionState::Stopped).await?;
    assert!(view.sandbox_id.is_none() && view.can_resume, "{view:?}");
    assert_eq!(
        view.last_stop_reason.as_deref(),
        Some("stopped"),
        "{view:?}"
    );
    let events = log::events(&stage.world, &id)?;
    assert_eq!(log::turns(&events), ["end_turn", "stopped"]);
    assert_eq!(log::how(&events).as_deref(), Some("error"));
    stage.world.assert_clean(LONG).await?;

    let mut again = stage.attach(&id, 0).await?;
    let heard = said(&again.seen);
    assert!(
        heard.starts_with("Long before.word1 word2 word3"),
        "{heard}"
    );
    let (text, reason) = again.turn("PLAN:text:Light again.").await?;
    assert_eq!(
        (text.as_str(), reason.as_str()),
        ("Light again.", "end_turn")
    );
    let asked = stage.asked("Light again.");
    assert!(
        asked.len() == 1 && mentions(&asked[0], "Long before."),
        "it remembers"
    );
    Ok(())
}

#[tokio::test]
async fn a_session_is_stopped_and_another_removed_in_the_middle_of_a_turn() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("ended in a turn", &["pi"]).await? else {
        return Ok(());
    };
    let mut request = stage.request("pi");
    request.prompt = Some("PLAN:shell:sleep 3000".to_owned());
    // Two agents in one folder do not disturb each other.
    let mut one = stage.open(&request).await?;
    let mut other = stage.open(&request).await?;
    assert_ne!(one.conversation, other.conversation);
    let is_call = |m: &serde_json::Value| m["params"]["update"]["sessionUpdate"] == "tool_call";
    for viewer in [&mut one, &mut other] {
        if !viewer.seen.iter().any(is_call) {
            viewer.until("the call", is_call).await?;
        }
    }
    let stopped = stage.client().stop_session(&one.id).await?;
    assert_eq!(
        stopped.last_stop_reason.as_deref(),
        Some("stopped"),
        "{stopped:?}"
    );
    assert_eq!(one.closed().await?.0, 4002);
    assert_eq!(
        log::turns(&log::events(&stage.world, &one.id)?),
        ["stopped"]
    );
    let view = stage.client().session(&other.id).await?;
    assert!(view.busy && view.state == SessionState::Running, "{view:?}");

    stage.client().delete_session(&other.id).await?;
    assert_eq!(other.closed().await?.0, 4002);
    assert!(!log::folder(&stage.world, &other.id).exists());
    // Nothing of either runs on, the agents' own commands included.
    stage.world.assert_clean(LONG).await?;
    let left = stage.client().sessions("", "", 10).await?.items;
    assert_eq!(
        left.into_iter()
            .map(|s| s.id.to_string())
            .collect::<Vec<_>>(),
        [one.id]
    );
    Ok(())
}

#[tokio::test]
async fn a_key_that_somebody_says_aloud_is_not_written_down() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("key said aloud", &["pi"]).await? else {
        return Ok(());
    };
    let mut request = stage.request("pi");
    request.prompt = Some(format!(
        "My key is {0} PLAN:text:So it is {0} then.",
        stage.key
    ));
    let mut viewer = stage.open(&request).await?;
    viewer.idle().await?;
    viewer
        .turn(&format!("PLAN:shell:echo {}", stage.key))
        .await?;
    let file = log::folder(&stage.world, &viewer.id).join("events.ndjson");
    let log = std::fs::read_to_string(file)?;
    assert!(log.contains("So it is ") && log.contains(" then."), "{log}");
    assert!(!log.contains(&stage.key), "the key is in the log");
    let late = stage.attach(&viewer.id, 0).await?;
    assert!(
        !late.seen.iter().any(|m| m.to_string().contains(&stage.key)),
        "in the replay"
    );
    let view = stage.client().session(&viewer.id).await?;
    assert!(
        !format!("{view:?}").contains(&stage.key),
        "in the title: {view:?}"
    );
    for file in std::fs::read_dir(stage.world.scratch().folder("state"))?.flatten() {
        let content = std::fs::read(file.path()).unwrap_or_default();
        let is_there = content
            .windows(stage.key.len())
            .any(|w| w == stage.key.as_bytes());
        assert!(!is_there, "the key is in {}", file.path().display());
    }
    assert!(
        !stage.world.daemon_tail().contains(&stage.key),
        "in the daemon's log"
    );
    Ok(())
}
