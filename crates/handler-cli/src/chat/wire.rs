//! The ACP conversation with the daemon: ids, requests, answers.

use super::message::Incoming;
use crate::exit::Failure;
use handler_client::{Client, Socket, SocketMessage};
use handler_types::session::SessionView;
use serde_json::{Value, json};

/// An attached socket.
pub(super) struct Wire {
    socket: Socket,
    session: String,
    next_id: u64,
    prompts: Vec<u64>,
    last_seq: u64,
}

impl Wire {
    /// Attaches and replays into `early` until the daemon's answer to `session/load`.
    pub(super) async fn open(
        client: &Client,
        session: &SessionView,
        after: u64,
        mut early: impl FnMut(Incoming),
    ) -> Result<Self, Failure> {
        let socket = client
            .socket(&format!("/v1/sessions/{}/acp", session.id), "acp.v1")
            .await?;
        let mut wire = Self {
            socket,
            session: String::new(),
            next_id: 2,
            prompts: Vec::new(),
            last_seq: after,
        };
        wire.request(
            0,
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": {},
                "clientInfo": {"name": "handler", "version": env!("CARGO_PKG_VERSION")}}),
        )
        .await?;
        wire.wait_for(0, &mut early).await?;
        // The conversation's id is known once the agent runs, which the answer above waited for.
        let view = client.session(session.id.as_str()).await?;
        wire.session = view.acp_session_id.unwrap_or_default();
        let load = json!({"sessionId": wire.session, "cwd": view.scope, "mcpServers": [],
            "_meta": {"handler.dev/afterSeq": after}});
        wire.request(1, "session/load", load).await?;
        wire.wait_for(1, &mut early).await?;
        Ok(wire)
    }

    async fn wait_for(
        &mut self,
        wanted: u64,
        early: &mut impl FnMut(Incoming),
    ) -> Result<(), Failure> {
        loop {
            match self.socket.next().await {
                SocketMessage::Text(text) => match self.read(&text) {
                    Some(Incoming::Answer { id, result }) if id == json!(wanted) => {
                        if let Some(error) = result.get("error") {
                            let text = error.get("message").and_then(Value::as_str);
                            return Err(Failure::Failed(text.unwrap_or("refused").to_owned()));
                        }
                        return Ok(());
                    }
                    Some(message) => early(message),
                    None => {}
                },
                SocketMessage::Binary(_) => {}
                SocketMessage::Closed { reason, .. } => {
                    return Err(Failure::Failed(format!(
                        "the session does not run: {reason}"
                    )));
                }
            }
        }
    }

    async fn request(&mut self, id: u64, method: &str, params: Value) -> Result<(), Failure> {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await
    }

    async fn send(&mut self, message: Value) -> Result<(), Failure> {
        Ok(self.socket.send_text(message.to_string()).await?)
    }

    pub(super) async fn next(&mut self) -> SocketMessage {
        self.socket.next().await
    }

    /// Sorts a frame and remembers how far the log was seen.
    pub(super) fn read(&mut self, text: &str) -> Option<Incoming> {
        let (message, seq) = Incoming::parse(text)?;
        self.last_seq = self.last_seq.max(seq.unwrap_or(0));
        Some(message)
    }

    /// Number of the last event seen: where to go on after a lost connection.
    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Whether a prompt sent here has no answer yet.
    pub(super) fn awaits_answer(&self) -> bool {
        !self.prompts.is_empty()
    }

    pub(super) async fn prompt(&mut self, text: &str) -> Result<(), Failure> {
        let id = self.next_id;
        self.next_id += 1;
        self.prompts.push(id);
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        self.request(id, "session/prompt", params).await
    }

    /// Whether an answer is to a prompt sent here (and no longer awaited then).
    pub(super) fn take_prompt(&mut self, id: &Value) -> bool {
        let before = self.prompts.len();
        self.prompts.retain(|prompt| id.as_u64() != Some(*prompt));
        self.prompts.len() != before
    }

    pub(super) async fn cancel(&mut self) -> Result<(), Failure> {
        let params = json!({"sessionId": self.session});
        self.send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}))
            .await
    }

    pub(super) async fn answer(&mut self, id: &Value, option: &str) -> Result<(), Failure> {
        let outcome = json!({"outcome": "selected", "optionId": option});
        self.send(json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}}))
            .await
    }

    pub(super) async fn refuse(&mut self, id: &Value, method: &str) -> Result<(), Failure> {
        let error = json!({"code": -32601, "message": format!("{method}: not served here")});
        self.send(json!({"jsonrpc": "2.0", "id": id, "error": error}))
            .await
    }

    pub(super) async fn close(self) {
        self.socket.close().await;
    }
}
