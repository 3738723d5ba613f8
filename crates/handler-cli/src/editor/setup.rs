//! What is answered before there is a conversation: who this is, and which sessions there are.

use super::rpc::RpcError;
use handler_client::Client;
use serde_json::{Value, json};

/// Sessions of one answer.
const PAGE: u32 = 50;

/// The answer to `initialize`. Version 1 whatever was asked for: the editor decides whether it can go on.
///
/// What agents can take in a prompt is told in full; see [`super::content`].
pub(super) fn initialize() -> Value {
    json!({
        "protocolVersion": 1,
        "agentInfo": super::program(),
        "authMethods": [],
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": true, "embeddedContext": true},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
        },
    })
}

/// The answer to `session/list`, those of `cwd` if it is given, the last active first.
///
/// # Errors
/// What the daemon refuses.
pub(super) async fn list(client: &Client, params: &Value) -> Result<Value, RpcError> {
    let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
    let page = client.sessions(text("cwd"), text("cursor"), PAGE).await?;
    let sessions: Vec<Value> = page
        .items
        .iter()
        .map(|session| {
            json!({"sessionId": session.id, "cwd": session.scope, "title": session.title,
                "updatedAt": session.last_activity_at})
        })
        .collect();
    Ok(json!({"sessions": sessions, "nextCursor": page.next_cursor}))
}

/// Removes a session with its history, for `session/delete`.
///
/// # Errors
/// What the daemon refuses.
pub(super) async fn delete(client: &Client, params: &Value) -> Result<Value, RpcError> {
    let session = params
        .get("sessionId")
        .and_then(Value::as_str)
        .ok_or_else(|| RpcError::invalid("sessionId is missing"))?;
    client.delete_session(session).await?;
    Ok(json!({}))
}
