//! The genuine agent programs over ACP with the scripted model: a turn with a tool, permission given and refused,
//! a cancel while a question is open, mode and model set, the conversation gone on with in a new sandbox.
//!
//! They are installed from registries (180 to 640 MB each), so only with HANDLER_SOAK=1.

use super::shared::in_world;
use crate::sessions::stage::{Stage, mentions};
use crate::sessions::viewer::{Viewer, is_question};
use crate::support::is_soak;
use anyhow::ensure;
use handler_testkit::skip;
use handler_types::harness::PermissionMode;
use handler_types::session::SessionState;
use serde_json::{Value, json};

/// What a program is like, where they differ.
struct Genuine {
    harness: &'static str,
    /// The mode in which a file is written without a question, or the value of its option for the mode.
    free: Free,
    /// Whether a write is asked for; Codex runs it in a sandbox of its own, which cannot start inside ours.
    asks: bool,
    /// Whether the model is an option.
    model: bool,
}

enum Free {
    Mode(&'static str),
    /// It is started anew instead: its permissions come from its settings.
    Start,
}

#[tokio::test]
async fn gemini_cli_is_asked_stopped_and_gone_on_with() -> anyhow::Result<()> {
    works_in_a_soak(&Genuine {
        harness: "gemini-cli",
        free: Free::Mode("autoEdit"),
        asks: true,
        model: false,
    })
    .await
}

#[tokio::test]
async fn qwen_code_is_asked_stopped_and_gone_on_with() -> anyhow::Result<()> {
    works_in_a_soak(&Genuine {
        harness: "qwen-code",
        free: Free::Mode("auto-edit"),
        asks: true,
        model: true,
    })
    .await
}

#[tokio::test]
async fn opencode_is_asked_stopped_and_gone_on_with() -> anyhow::Result<()> {
    works_in_a_soak(&Genuine {
        harness: "opencode",
        free: Free::Start,
        asks: true,
        model: true,
    })
    .await
}

#[tokio::test]
async fn vibe_is_asked_stopped_and_gone_on_with() -> anyhow::Result<()> {
    works_in_a_soak(&Genuine {
        harness: "vibe",
        free: Free::Mode("accept-edits"),
        asks: true,
        model: true,
    })
    .await
}

#[tokio::test]
async fn codex_is_stopped_and_gone_on_with() -> anyhow::Result<()> {
    works_in_a_soak(&Genuine {
        harness: "codex",
        free: Free::Mode("agent-full-access"),
        asks: false,
        model: true,
    })
    .await
}

async fn works_in_a_soak(genuine: &Genuine) -> anyhow::Result<()> {
    if is_soak() {
        return works(genuine).await;
    }
    let why = "its installation is large; HANDLER_SOAK=1 runs it";
    skip(&format!("genuine {}", genuine.harness), why);
    Ok(())
}

async fn works(genuine: &Genuine) -> anyhow::Result<()> {
    let harness = genuine.harness;
    let Some(stage) = Stage::set(&format!("genuine {harness}"), &[harness]).await? else {
        return Ok(());
    };
    ensure!(in_world(&stage.world, harness).exists(), "installed");
    let mut request = stage.request(harness);
    request.permissions = Some(PermissionMode::Ask);
    let mut viewer = stage.open(&request).await?;
    assert_eq!(viewer.agent["protocolVersion"], 1);
    let (said, reason) = viewer.turn("Badger. PLAN:text:First answer.").await?;
    assert_eq!(reason, "end_turn");
    ensure!(said.contains("First answer."), "{said}");
    if genuine.asks {
        is_asked(&stage, &mut viewer).await?;
    } else {
        is_held_back(&stage, &mut viewer).await?;
    }
    if genuine.model {
        sets_the_model(&mut viewer).await?;
    }
    works_freely(&stage, genuine, &mut viewer).await?;
    goes_on(&stage, &viewer).await
}

fn write(stage: &Stage, name: &str) -> String {
    format!("PLAN:write:{}|genuine", stage.project.join(name).display())
}

/// Allowed, rejected, cancelled while the question is open: only the allowed file is there.
async fn is_asked(stage: &Stage, viewer: &mut Viewer) -> anyhow::Result<()> {
    let prompt = viewer.prompt(&write(stage, "allowed.txt")).await?;
    let question = viewer.question().await?;
    assert!(stage.read("allowed.txt").is_err(), "before the answer");
    viewer.choose(&question, "allow_once").await?;
    assert_eq!(viewer.stop_reason(prompt).await?, "end_turn");
    assert_eq!(stage.read("allowed.txt")?.trim_end(), "genuine");

    let prompt = viewer.prompt(&write(stage, "rejected.txt")).await?;
    let question = viewer.question().await?;
    viewer.choose(&question, "reject_once").await?;
    let reason = viewer.stop_reason(prompt).await?;
    ensure!(
        ["end_turn", "cancelled"].contains(&reason.as_str()),
        "{reason}"
    );
    assert!(stage.read("rejected.txt").is_err(), "it was rejected");

    let prompt = viewer.prompt(&write(stage, "cancelled.txt")).await?;
    viewer.question().await?;
    viewer.cancel().await?;
    assert_eq!(viewer.stop_reason(prompt).await?, "cancelled");
    assert!(stage.read("cancelled.txt").is_err(), "it was cancelled");
    viewer.idle().await
}

/// Where its own sandbox cannot start, nothing is written without a question either.
async fn is_held_back(stage: &Stage, viewer: &mut Viewer) -> anyhow::Result<()> {
    let prompt = viewer.prompt(&write(stage, "held.txt")).await?;
    let is_either = |m: &Value| is_question(m) || (m.get("method").is_none() && m["id"] == prompt);
    let heard = viewer.until("a question or the end", is_either).await?;
    if is_question(&heard) {
        viewer.choose(&heard, "reject_once").await?;
        viewer.stop_reason(prompt).await?;
    }
    assert!(stage.read("held.txt").is_err(), "nobody allowed it");
    viewer.idle().await
}

/// The only model is set again, and the answer says so.
async fn sets_the_model(viewer: &mut Viewer) -> anyhow::Result<()> {
    let opened = viewer.options.clone();
    let mut options = opened.as_array().into_iter().flatten();
    let option = options.find(|option| option["id"] == "model");
    let value = option.map(|option| option["currentValue"].clone());
    let value = value.ok_or_else(|| anyhow::anyhow!("no option for the model in {opened}"))?;
    let params = json!({"sessionId": viewer.conversation, "configId": "model", "value": value});
    let answer = viewer.call("session/set_config_option", params).await?;
    let all = answer["result"]["configOptions"].as_array();
    let now = all.and_then(|all| all.iter().find(|option| option["id"] == "model"));
    ensure!(now.is_some_and(|o| o["currentValue"] == value), "{answer}");
    Ok(())
}

/// In a free mode a file is written and nobody is asked.
async fn works_freely(stage: &Stage, genuine: &Genuine, viewer: &mut Viewer) -> anyhow::Result<()> {
    let asked = viewer.seen.iter().filter(|m| is_question(m)).count();
    match genuine.free {
        Free::Mode(id) => {
            let params = json!({"sessionId": viewer.conversation, "modeId": id});
            let answer = viewer.call("session/set_mode", params).await?;
            ensure!(answer.get("result").is_some(), "{answer}");
            let (said, reason) = viewer.turn(&write(stage, "free.txt")).await?;
            assert_eq!(reason, "end_turn", "{said}");
            let now = viewer.seen.iter().filter(|m| is_question(m)).count();
            assert_eq!(now, asked, "nobody is asked");
        }
        Free::Start => {
            let mut request = stage.request(genuine.harness);
            request.permissions = Some(PermissionMode::AcceptEdits);
            let mut other = stage.open(&request).await?;
            let (said, reason) = other.turn(&write(stage, "free.txt")).await?;
            assert_eq!(reason, "end_turn", "{said}");
            ensure!(!other.seen.iter().any(is_question), "nobody is asked");
            stage.client().stop_session(&other.id).await?;
        }
    }
    assert_eq!(stage.read("free.txt")?.trim_end(), "genuine");
    Ok(())
}

/// Stopped, attached to again: a new sandbox, the same conversation.
async fn goes_on(stage: &Stage, viewer: &Viewer) -> anyhow::Result<()> {
    let before = stage.client().session(&viewer.id).await?.sandbox_id;
    let stopped = stage.client().stop_session(&viewer.id).await?;
    assert_eq!(stopped.state, SessionState::Stopped);
    let mut again = stage.attach(&viewer.id, 0).await?;
    assert_eq!(again.conversation, viewer.conversation);
    let after = stage.client().session(&viewer.id).await?.sandbox_id;
    ensure!(after.is_some() && after != before, "a new sandbox");
    let (said, reason) = again.turn("PLAN:text:Last answer.").await?;
    assert_eq!(reason, "end_turn");
    ensure!(said.contains("Last answer."), "{said}");
    let asked = stage.asked("Last answer.");
    ensure!(
        asked.iter().any(|request| mentions(request, "Badger.")),
        "it remembers the first turn: {asked:?}"
    );
    stage.client().stop_session(&viewer.id).await?;
    Ok(())
}
