//! C.4: each policy step, seen from both ends of a real connection.

use super::stage::{Plain, SESSION};
use anyhow::ensure;
use serde_json::{Value, json};

/// The error code and the policy step of a refusal.
fn refused(answer: &Value) -> (i64, &str) {
    let error = &answer["error"];
    let step = error["data"]["policy"].as_str().unwrap_or_default();
    (error["code"].as_i64().unwrap_or_default(), step)
}

#[tokio::test]
async fn p1_the_agent_is_never_offered_files_or_a_terminal() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("P1").await? else {
        return Ok(());
    };
    let talk = plain.connect("").await?;
    let got = &talk.hello["result"]["_meta"]["got"]["clientCapabilities"];
    let none = json!({"readTextFile": false, "writeTextFile": false});
    ensure!(got["fs"] == none && got["terminal"] == false, "{got}");
    ensure!(got["elicitation"] == json!({"form": {}}), "the rest stays");
    ensure!(
        talk.hello["result"]["authMethods"] == json!([]),
        "what is refused is not offered"
    );
    Ok(())
}

#[tokio::test]
async fn p2_p3_p8_what_a_conversation_is_opened_with_is_checked() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("P2, P3 and P8").await? else {
        return Ok(());
    };
    let mut talk = plain.connect("").await?;
    let inside = plain.stage.project.join("inner");
    let far =
        json!([{"name": "far", "type": "http", "url": "https://far.example/mcp", "headers": []}]);
    for method in [
        "session/new",
        "session/load",
        "session/resume",
        "session/fork",
    ] {
        let with = |cwd: Value, servers: Value| json!({"sessionId": SESSION, "cwd": cwd, "mcpServers": servers});
        let answer = talk.call(method, with(json!("/etc"), json!([]))).await?;
        ensure!(refused(&answer) == (-32001, "P2"), "{method}: {answer}");
        let answer = talk.call(method, with(json!("x"), json!([]))).await?;
        ensure!(refused(&answer) == (-32001, "P2"), "{method}: {answer}");
        let more = json!({"sessionId": SESSION, "cwd": inside, "mcpServers": [],
            "additionalDirectories": ["/etc"]});
        let answer = talk.call(method, more).await?;
        ensure!(refused(&answer) == (-32001, "P2"), "{method}: {answer}");
        let answer = talk.call(method, with(json!(inside), far.clone())).await?;
        ensure!(refused(&answer) == (-32002, "P3"), "{method}: {answer}");
    }
    // The list is the one of now: what is allowed meanwhile passes.
    let entries = handler_types::learn::EntriesRequest {
        entries: vec!["far.example:443".parse()?],
    };
    let id = plain.agent.id.as_str();
    plain.stage.client().agent_allow(id, &entries).await?;
    let params = json!({"cwd": inside, "mcpServers": far, "_meta": {"kept": [1.5]}});
    let answer = talk.call("session/new", params.clone()).await?;
    // P8: the agent has no server of the platform's, so the list arrives as it was sent, with all else.
    ensure!(answer["result"]["_meta"]["got"] == params, "{answer}");
    Ok(())
}

#[tokio::test]
async fn p4_the_agent_reaches_no_file_or_terminal_of_the_client() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("P4").await? else {
        return Ok(());
    };
    let mut talk = plain.open().await?;
    for method in ["fs/read_text_file", "terminal/create"] {
        let said = talk.turn(&format!("call {method}")).await?;
        ensure!(said.contains("-32003") && said.contains("P4"), "{said}");
    }
    talk.turn("tell fs/something").await?;
    let is_client_access = |m: &&Value| {
        let method = m["method"].as_str().unwrap_or_default();
        method.starts_with("fs/") || method.starts_with("terminal/")
    };
    ensure!(talk.seen.iter().find(is_client_access).is_none());
    Ok(())
}

#[tokio::test]
async fn p5_heartbeats_stop_here_and_p6_extensions_pass_both_ways() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("P5 and P6").await? else {
        return Ok(());
    };
    let mut talk = plain.open().await?;
    talk.send(json!({"jsonrpc": "2.0", "method": "$/ping"}))
        .await?;
    talk.send(json!({"jsonrpc": "2.0", "method": "_vendor/note", "params": {"a": 1}}))
        .await?;
    let answer = talk.call("_vendor/ask", json!({})).await?;
    ensure!(
        answer["result"] == json!({"did": "_vendor/ask"}),
        "{answer}"
    );
    let said = crate::sessions::viewer::said(&talk.seen);
    ensure!(said == "heard _vendor/note", "{said}");
    talk.turn("tell _vendor/told").await?;
    ensure!(talk.seen.iter().any(|m| m["method"] == "_vendor/told"));
    // An extension of the agent that asks is answered by the client.
    talk.prompt("call _vendor/question").await?;
    let question = loop {
        let message = talk.hear().await?;
        if message["method"] == "_vendor/question" {
            break message;
        }
    };
    talk.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": {"yes": true}}))
        .await?;
    ensure!(talk.hear().await?.to_string().contains("yes"));
    let answer = talk.call("authenticate", json!({"methodId": "x"})).await?;
    ensure!(refused(&answer).0 == -32601, "{answer}");
    Ok(())
}

#[tokio::test]
async fn p7_a_conversation_is_in_the_agents_mode_or_not_handed_out() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("P7").await? else {
        return Ok(());
    };
    let mut talk = plain.connect("").await?;
    let answer = talk.call("session/new", plain.folder()).await?;
    ensure!(
        answer["result"]["modes"]["currentModeId"] == "default",
        "{answer}"
    );
    ensure!(talk.turn("mode ?").await?.ends_with("default"));
    // `bypassPermissions` is not offered by this program.
    let mut asked = handler_types::agent::AgentRequest::from(plain.agent.clone());
    asked.permissions = handler_types::harness::PermissionMode::Bypass;
    asked.confirm_risks = true;
    let id = plain.agent.id.as_str();
    plain.stage.client().put_agent(id, &asked).await?;
    let mut talk = plain.connect("").await?;
    let answer = talk.call("session/new", plain.folder()).await?;
    ensure!(refused(&answer) == (-32004, "P7"), "{answer}");
    let prompt = json!({"sessionId": SESSION, "prompt": []});
    let answer = talk.call("session/prompt", prompt).await?;
    ensure!(refused(&answer).0 == -32602, "{answer}");
    Ok(())
}

#[tokio::test]
async fn p9_the_instructions_stand_before_a_new_conversations_first_prompt() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("P9").await? else {
        return Ok(());
    };
    let mut talk = plain.open().await?;
    ensure!(talk.turn("one").await? == "Mind the gap.\n\none");
    ensure!(talk.turn("two").await? == "two");
    let load = json!({"sessionId": SESSION, "cwd": &plain.stage.project, "mcpServers": []});
    talk.call("session/load", load).await?;
    ensure!(talk.turn("three").await? == "three");
    Ok(())
}
