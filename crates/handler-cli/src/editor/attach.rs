//! A socket to a session, past its setup: `initialize` and `session/load` answered.

use super::rpc::{Message, RpcError};
use handler_client::{Client, Socket, SocketMessage};
use serde_json::{Value, json};

/// Ids of the setup. The editor's own ids pass on the same socket; these would be odd ones for it.
const INITIALIZE: &str = "handler-acp-initialize";
const LOAD: &str = "handler-acp-load";

/// An attached socket and what was said meanwhile.
pub(super) struct Attached {
    pub(super) socket: Socket,
    /// The conversation's id for the daemon.
    pub(super) acp: String,
    /// The agent's capabilities.
    pub(super) capabilities: Value,
    /// Result of `session/load`: modes and options.
    pub(super) result: Value,
    /// What came before that result, in order.
    pub(super) early: Vec<Message>,
}

/// Attaches; the daemon starts the session's agent if need be. `cwd` must lie in the session's folder; none: that
/// folder itself.
///
/// # Errors
/// Why it does not run.
pub(super) async fn attach(
    client: &Client,
    session: &str,
    cwd: Option<&str>,
    after: u64,
) -> Result<Attached, RpcError> {
    let mut socket = client
        .socket(&format!("/v1/sessions/{session}/acp"), "acp.v1")
        .await?;
    let mut early = Vec::new();
    let hello = json!({"jsonrpc": "2.0", "id": INITIALIZE, "method": "initialize",
        "params": {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": super::program()}});
    socket.send_text(hello.to_string()).await?;
    let mut agent = answer(&mut socket, INITIALIZE, &mut early).await?;
    // Its own name for the conversation is known once the agent runs, which the answer waited for.
    let view = client.session(session).await?;
    let acp = view.acp_session_id.unwrap_or_default();
    let load = json!({"jsonrpc": "2.0", "id": LOAD, "method": "session/load",
        "params": {"sessionId": acp, "cwd": cwd.unwrap_or(&view.scope), "mcpServers": [],
            "_meta": {"handler.dev/afterSeq": after}}});
    socket.send_text(load.to_string()).await?;
    let result = answer(&mut socket, LOAD, &mut early).await?;
    Ok(Attached {
        socket,
        acp,
        capabilities: agent
            .get_mut("agentCapabilities")
            .map(Value::take)
            .unwrap_or_default(),
        result,
        early,
    })
}

async fn answer(
    socket: &mut Socket,
    id: &str,
    early: &mut Vec<Message>,
) -> Result<Value, RpcError> {
    loop {
        let text = match socket.next().await {
            SocketMessage::Text(text) => text,
            SocketMessage::Binary(_) => continue,
            SocketMessage::Closed { reason, .. } => {
                return Err(RpcError::failed(format!(
                    "the session does not run: {reason}"
                )));
            }
        };
        let Ok(message) = Message::parse(text.as_bytes()) else {
            continue;
        };
        if message.method.is_some() || message.id.as_ref() != Some(&json!(id)) {
            early.push(message);
            continue;
        }
        return match message.field("error") {
            None => Ok(message.field("result").cloned().unwrap_or_default()),
            Some(error) => {
                let text = error
                    .get("message")
                    .and_then(Value::as_str)
                    .unwrap_or("refused");
                let code = error.get("code").and_then(Value::as_i64).unwrap_or(-32603);
                Err(RpcError::new(code, text))
            }
        };
    }
}
