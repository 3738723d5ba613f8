//! One conversation: the editor's messages to the session's socket and back, the socket made anew when it is lost.

use super::Shared;
use super::attach::{Attached, attach};
use super::content;
use super::orphan::Prompts;
use super::rpc::{Message, RpcError};
use handler_client::{Socket, SocketMessage};
use handler_types::session::SessionView;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How long a lost daemon is waited for.
const COME_BACK: Duration = Duration::from_secs(60);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(300);

/// How a conversation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// `session/new`.
    New,
    /// `session/load`: with what was said.
    Load,
    /// `session/resume`: without.
    Resume,
}

/// See the module.
pub(super) struct Conversation {
    shared: Shared,
    /// The session's id, by which the editor knows it.
    name: String,
    /// The id by which the daemon knows it.
    acp: String,
    capabilities: Value,
    socket: Option<Socket>,
    /// Number of the last event passed on.
    last_seq: u64,
    prompts: Prompts,
    /// The setup's answer and what goes before or after it.
    opening: Option<Opening>,
}

struct Opening {
    start: Start,
    result: Value,
    early: Vec<Message>,
    answer: Option<(Value, oneshot::Sender<()>)>,
}

impl Conversation {
    pub(super) fn new(
        shared: Shared,
        session: &SessionView,
        attached: Attached,
        start: Start,
    ) -> Self {
        let last_seq = if start == Start::Resume {
            session.last_seq
        } else {
            0
        };
        Self {
            shared,
            name: session.id.to_string(),
            acp: attached.acp,
            capabilities: attached.capabilities,
            socket: Some(attached.socket),
            last_seq,
            prompts: Prompts::default(),
            opening: Some(Opening {
                start,
                result: attached.result,
                early: attached.early,
                answer: None,
            }),
        }
    }

    /// Which request of the editor this answers; the receiver is told when it has.
    pub(super) fn answering(mut self, id: Value) -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        if let Some(opening) = &mut self.opening {
            opening.answer = Some((id, sender));
        }
        (self, receiver)
    }

    /// By which the editor knows it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs until the bridge drops its end.
    pub(super) async fn run(
        mut self,
        own: mpsc::WeakSender<Message>,
        mut from: mpsc::Receiver<Message>,
    ) {
        self.open(&own).await;
        loop {
            tokio::select! {
                message = from.recv() => match message {
                    Some(message) => self.take_editors(message, &own).await,
                    None => break,
                },
                frame = next(&mut self.socket) => match frame {
                    SocketMessage::Text(text) => self.take_daemons(&text, &own).await,
                    SocketMessage::Binary(_) => {}
                    SocketMessage::Closed { code, reason } => self.closed(code, &reason, &own).await,
                },
            }
        }
        if let Some(socket) = self.socket.take() {
            socket.close().await;
        }
    }

    /// History goes before the answer to `session/load`; of a new session the editor must know the name first.
    async fn open(&mut self, own: &mpsc::WeakSender<Message>) {
        let Some(opening) = self.opening.take() else {
            return;
        };
        let (before, after) = match opening.start {
            Start::Load => (opening.early, Vec::new()),
            Start::New | Start::Resume => (Vec::new(), opening.early),
        };
        for message in before {
            self.pass(message, own).await;
        }
        if let Some((id, told)) = opening.answer {
            let mut result = opening.result;
            if !result.is_object() {
                result = json!({});
            }
            if opening.start == Start::New {
                result["sessionId"] = json!(self.name);
            }
            self.shared.out.result(&id, result).await;
            told.send(()).ok();
        }
        for message in after {
            self.pass(message, own).await;
        }
    }

    async fn take_editors(&mut self, message: Message, own: &mpsc::WeakSender<Message>) {
        let (id, method) = (message.id.clone(), message.method.clone());
        if let Err(error) = self.send(message, own).await {
            let request = id.filter(|_| method.is_some());
            if let Some(id) = request {
                self.prompts.answered(&id);
                self.shared.out.error(&id, &error).await;
            }
        }
    }

    async fn send(
        &mut self,
        mut message: Message,
        own: &mpsc::WeakSender<Message>,
    ) -> Result<(), RpcError> {
        let method = message.method.as_deref().unwrap_or_default().to_owned();
        if method == "session/close" {
            return self.close(message.id).await;
        }
        if self.socket.is_none() {
            if message.id.is_none() || message.method.is_none() {
                // Nothing to cancel, and nobody to answer.
                return Ok(());
            }
            self.attach_again(own).await?;
        }
        message.rename(&self.acp);
        if method == "session/prompt" {
            content::adapt(&mut message.params, &self.capabilities)?;
            self.prompts.sent(message.id.clone().unwrap_or_default());
        }
        let socket = self
            .socket
            .as_mut()
            .ok_or_else(|| RpcError::failed("the session does not run"))?;
        Ok(socket.send_text(message.to_line()).await?)
    }

    /// Stops the session; its history stays.
    async fn close(&mut self, id: Option<Value>) -> Result<(), RpcError> {
        self.shared.client.stop_session(&self.name).await?;
        if let Some(id) = id {
            self.shared.out.result(&id, json!({})).await;
        }
        Ok(())
    }

    async fn take_daemons(&mut self, text: &str, own: &mpsc::WeakSender<Message>) {
        if let Ok(message) = Message::parse(text.as_bytes()) {
            self.pass(message, own).await;
        }
    }

    /// One message of the daemon for the editor. Names of Handler's own are not the editor's.
    async fn pass(&mut self, mut message: Message, own: &mpsc::WeakSender<Message>) {
        let seq = message
            .params
            .pointer("/_meta/handler.dev~1seq")
            .and_then(Value::as_u64);
        self.last_seq = self.last_seq.max(seq.unwrap_or(0));
        match (message.method.as_deref(), &message.id) {
            (None, Some(id)) => self.prompts.answered(&id.clone()),
            (Some("_handler/permission_resolved"), _) => {
                let id = message.params.get("requestId").cloned().unwrap_or_default();
                if let Some(name) = self.shared.asked.withdraw(&self.name, &id) {
                    self.shared
                        .out
                        .notify("$/cancel_request", json!({"requestId": name}))
                        .await;
                }
                return;
            }
            (Some(method), None) if method.starts_with("_handler/") => {
                self.settle(method, &message.params).await;
                return;
            }
            (Some(_), Some(_)) => {
                if let Some(to) = own.upgrade() {
                    self.shared.asked.ask(&self.name, &mut message, &to);
                }
            }
            _ => {}
        }
        message.rename(&self.name.clone());
        self.shared.out.send(&message).await;
    }

    async fn settle(&mut self, method: &str, params: &Value) {
        if let Some((prompts, reason)) = self.prompts.ended(method, params) {
            for id in prompts {
                self.shared
                    .out
                    .result(&id, json!({"stopReason": reason}))
                    .await;
            }
        }
    }

    async fn closed(&mut self, code: u16, reason: &str, own: &mpsc::WeakSender<Message>) {
        self.socket = None;
        for name in self.shared.asked.withdraw_all(&self.name) {
            self.shared
                .out
                .notify("$/cancel_request", json!({"requestId": name}))
                .await;
        }
        // Broken, a daemon that goes away, or too slow: the session goes on.
        if matches!(code, 1001 | 1005 | 1006 | 4003) {
            self.prompts.lost();
            if self.come_back(own).await {
                return;
            }
        }
        let error = RpcError::failed(format!("the session ended: {reason}"));
        for id in self.prompts.give_up() {
            self.shared.out.error(&id, &error).await;
        }
    }

    async fn come_back(&mut self, own: &mpsc::WeakSender<Message>) -> bool {
        let deadline = Instant::now() + COME_BACK;
        while Instant::now() < deadline {
            if self.attach_again(own).await.is_ok() {
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    }

    async fn attach_again(&mut self, own: &mpsc::WeakSender<Message>) -> Result<(), RpcError> {
        let attached = attach(&self.shared.client, &self.name, None, self.last_seq).await?;
        self.socket = Some(attached.socket);
        self.acp = attached.acp;
        self.capabilities = attached.capabilities;
        for message in attached.early {
            self.pass(message, own).await;
        }
        Ok(())
    }
}

async fn next(socket: &mut Option<Socket>) -> SocketMessage {
    match socket {
        Some(socket) => socket.next().await,
        None => std::future::pending().await,
    }
}
