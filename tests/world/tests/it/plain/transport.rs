//! C.1: who may connect, and the shape of messages.

use super::stage::{HARNESS, Plain};
use crate::support::http;
use anyhow::{Context as _, ensure};
use handler_types::Problem;
use serde_json::json;

/// The status of a WebSocket request with these headers.
async fn status(plain: &Plain, protocols: &str, origin: Option<&str>) -> anyhow::Result<u16> {
    let port = plain.stage.world.port()?;
    let line = format!("GET {} HTTP/1.1", plain.path(""));
    let (host, protocols) = (
        format!("Host: 127.0.0.1:{port}"),
        format!("Sec-WebSocket-Protocol: {protocols}"),
    );
    let mut head = vec![
        line.as_str(),
        &host,
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        &protocols,
    ];
    let origin = origin.map(|origin| format!("Origin: {origin}"));
    head.extend(origin.as_deref());
    Ok(http(port, &head, "").await?.status)
}

#[tokio::test]
async fn no_token_is_401_and_a_bad_origin_is_403() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("who may connect").await? else {
        return Ok(());
    };
    let token = format!("acp.v1, bearer.{}", plain.stage.world.token()?);
    ensure!(status(&plain, "acp.v1", None).await? == 401);
    ensure!(status(&plain, "acp.v1, bearer.wrong", None).await? == 401);
    ensure!(status(&plain, &token, Some("https://evil.example")).await? == 403);
    let page = plain.stage.client().sandboxes("", 10).await?;
    ensure!(page.items.is_empty(), "a refusal makes nothing: {page:#?}");
    Ok(())
}

async fn refusal(plain: &Plain, path: &str) -> anyhow::Result<Problem> {
    let error = plain.stage.client().socket(path, "acp.v1").await.err();
    let error = error.with_context(|| format!("{path} was accepted"))?;
    Ok(error.problem().context("no problem")?.clone())
}

#[tokio::test]
async fn an_unknown_agent_is_404_and_an_unusable_model_400_before_anything_is_made()
-> anyhow::Result<()> {
    let Some(plain) = Plain::set("refused before accepting").await? else {
        return Ok(());
    };
    let unknown = refusal(&plain, "/v1/agents/nobody/acp").await?;
    ensure!(
        (unknown.status, unknown.title.as_str()) == (404, "agent not found"),
        "{unknown:?}"
    );
    for (query, named) in [
        ("?provider=nobody", "nobody"),
        ("?provider=scripted&model=no-such", "no-such"),
        ("?harness=no-such&provider=scripted", "no-such"),
        ("?harness=gemini-cli&provider=scripted", "not installed"),
    ] {
        let problem = refusal(&plain, &plain.path(query)).await?;
        ensure!(
            (problem.status, problem.title.as_str()) == (400, "model access unusable")
                && problem.detail.contains(named),
            "{query}: {problem:?}"
        );
    }
    let page = plain.stage.client().sandboxes("", 10).await?;
    ensure!(page.items.is_empty(), "{page:#?}");
    // One that is named whole and usable is taken.
    let query = format!("?harness={HARNESS}&provider=scripted&model=scripted");
    let talk = plain.connect(&query).await?;
    ensure!(talk.hello["result"]["protocolVersion"] == 1);
    Ok(())
}

#[tokio::test]
async fn a_message_of_1_mb_arrives_intact_in_one_frame_both_ways() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("a message of 1 MB").await? else {
        return Ok(());
    };
    let mut talk = plain.open().await?;
    let said = talk.turn("big 1048576").await?;
    ensure!(said.len() == 1 << 20 && said.bytes().all(|byte| byte == b'x'));
    let chunks = talk.seen.iter().filter(|m| m["method"] == "session/update");
    ensure!(chunks.count() == 1, "one line, one frame");
    let text = "y".repeat(1 << 20);
    ensure!(talk.turn(&text).await? == text, "and there and back again");
    Ok(())
}

#[tokio::test]
async fn binary_is_closed_with_1003_and_more_than_16_mib_with_1009() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("what is no message").await? else {
        return Ok(());
    };
    let mut talk = plain.open().await?;
    talk.socket
        .send_binary(bytes::Bytes::from_static(b"{}"))
        .await?;
    ensure!(talk.closed().await?.0 == 1003);
    let mut talk = plain.open().await?;
    let many = "z".repeat((16 << 20) + 1);
    talk.send(json!({"jsonrpc": "2.0", "method": "_x", "params": {"a": many}}))
        .await?;
    let (code, reason) = talk.closed().await?;
    ensure!(
        (code, reason.contains("16 MiB")) == (1009, true),
        "{reason}"
    );
    let mut talk = plain.open().await?;
    talk.prompt("big 17000000").await?;
    ensure!(talk.closed().await?.0 == 1009, "the agent's message too");
    plain.no_sandbox().await?;
    plain.stage.world.assert_clean(crate::support::LONG).await
}
