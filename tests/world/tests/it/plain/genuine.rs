//! A genuine agent program, over a plain connection and on a person's terminal, with the same kept conversations.

use super::stage::Talk;
use crate::sessions::viewer::said;
use crate::sessions::{LONG, Stage};
use anyhow::{Context as _, ensure};
use handler_testkit::eventually;
use handler_types::agent::{AgentRequest, ModelAccess};
use serde_json::{Value, json};

async fn turn(talk: &mut Talk, session: &Value, text: &str) -> anyhow::Result<String> {
    let from = talk.seen.len();
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    let answer = talk.call("session/prompt", prompt).await?;
    ensure!(answer["result"]["stopReason"] == "end_turn", "{answer}");
    Ok(said(&talk.seen[from..]))
}

async fn no_sandbox(stage: &Stage) -> anyhow::Result<()> {
    eventually("no sandbox", LONG, || async {
        let page = stage.client().sandboxes("", 10).await.ok()?;
        page.items.is_empty().then_some(())
    })
    .await
}

#[tokio::test]
async fn pi_over_a_plain_connection_and_in_its_own_terminal() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("pi by itself", &["pi"]).await? else {
        return Ok(());
    };
    let client = stage.client();
    let asked = AgentRequest {
        name: Some("Dev".into()),
        models: vec![ModelAccess {
            harness: Some("pi".into()),
            account: None,
            provider: Some("scripted".into()),
            model: None,
        }],
        scope: Some(stage.project.to_string_lossy().into_owned()),
        ..AgentRequest::default()
    };
    let agent = client.create_agent(&asked).await?;
    let path = format!("/v1/agents/{}/acp", agent.id);
    let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let folder = json!({"cwd": &stage.project, "mcpServers": []});

    let mut talk = Talk::connect(&client, &path).await?;
    talk.call("initialize", hello.clone()).await?;
    let opened = talk.call("session/new", folder.clone()).await?;
    let session = opened["result"]["sessionId"].clone();
    ensure!(session.is_string(), "{opened}");
    let file = stage.project.join("plain.txt");
    let task = format!("PLAN:write:{}|by a plain connection", file.display());
    turn(&mut talk, &session, &task).await?;
    ensure!(stage.read("plain.txt")?.contains("by a plain connection"));
    talk.socket.close().await;
    no_sandbox(&stage).await?;

    // Another sandbox, the same conversation: it is kept with the agent.
    let mut talk = Talk::connect(&client, &path).await?;
    talk.call("initialize", hello).await?;
    let load = json!({"sessionId": session, "cwd": &stage.project, "mcpServers": []});
    let loaded = talk.call("session/load", load).await?;
    ensure!(loaded.get("result").is_some(), "{loaded}");
    ensure!(
        turn(&mut talk, &session, "PLAN:text:again")
            .await?
            .contains("again")
    );
    talk.socket.close().await;
    no_sandbox(&stage).await?;

    let mut tty = stage
        .world
        .on_tty(&["terminal", "Dev", "--", "--continue"], (110, 40))?;
    tty.until("plain.txt")
        .await
        .context("the conversation of before")?;
    tty.type_in("PLAN:text:typed by a person\r")?;
    eventually("the model's turn", LONG, || async {
        let asked = stage.asked("typed by a person");
        (!asked.is_empty()).then_some(())
    })
    .await?;
    // The key is not in the sandbox, and it was the right one all the same: the model takes no other.
    ensure!(!tty.text().contains(&stage.key));
    tty.type_in("/quit\r")?;
    ensure!(tty.ended().await? == 0, "{}", tty.text());
    no_sandbox(&stage).await?;
    stage.world.assert_clean(LONG).await
}
