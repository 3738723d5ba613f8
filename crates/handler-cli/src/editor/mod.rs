//! `handler acp`: an ACP agent on standard input and output, for editors. Each conversation of the editor is a
//! session of the daemon, which it outlives.
//!
//! ```text
//! editor ── lines ──▶ Bridge ── by session ──▶ Conversation ── WebSocket ──▶ daemon
//!        ◀───────────────── Out ◀──────────────────┘
//! ```
//!
//! Invariant: the editor knows a conversation by the session's id, the daemon by the agent's; each message that
//! passes has exactly that one name changed, and the ids of the agent's questions.

mod asked;
mod attach;
mod content;
mod conversation;
mod open;
mod orphan;
mod rpc;
mod setup;
mod stdio;

use crate::exit::Failure;
use asked::Asked;
use conversation::{Conversation, Start};
use handler_client::Client;
use rpc::{Message, RpcError};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use stdio::{Lines, Out};
use tokio::sync::mpsc;

pub use open::Defaults;

/// Messages that wait for one conversation; an editor that sends more waits.
const QUEUE: usize = 256;

/// What all conversations share.
#[derive(Clone)]
struct Shared {
    client: Client,
    out: Out,
    asked: Arc<Asked>,
    defaults: Arc<Defaults>,
}

/// The editor's side.
struct Bridge {
    shared: Shared,
    conversations: HashMap<String, mpsc::Sender<Message>>,
    opened: mpsc::Sender<Conversation>,
}

/// Serves the editor until its input ends. Sessions go on without it.
///
/// # Errors
/// When standard input or output fails.
pub async fn serve(client: Client, defaults: Defaults) -> Result<(), Failure> {
    let (opened, mut new) = mpsc::channel(8);
    let mut bridge = Bridge {
        shared: Shared {
            client,
            out: Out::new(),
            asked: Arc::default(),
            defaults: Arc::new(defaults),
        },
        conversations: HashMap::new(),
        opened,
    };
    let mut lines = Lines::new();
    loop {
        tokio::select! {
            line = lines.next() => match line {
                Some(Ok(line)) => bridge.take(&line).await,
                Some(Err(error)) => return Err(Failure::local("cannot read what the editor says", error)),
                None => return Ok(()),
            },
            Some(conversation) = new.recv() => bridge.adopt(conversation),
        }
    }
}

impl Bridge {
    async fn take(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match Message::parse(line) {
            Ok(message) => self.route(message).await,
            Err(error) => self.shared.out.error(&Value::Null, &error).await,
        }
    }

    async fn route(&mut self, mut message: Message) {
        if message.method.is_none() {
            if let Some(to) = self.shared.asked.answer(&mut message) {
                // A conversation that is gone needs no answer.
                to.send(message).await.ok();
            }
            return;
        }
        match (
            message.method.as_deref().unwrap_or_default(),
            message.id.clone(),
        ) {
            ("initialize", Some(id)) => self.shared.out.result(&id, setup::initialize()).await,
            ("session/new", Some(id)) => self.open(id, message, Start::New),
            ("session/load", Some(id)) => self.open(id, message, Start::Load),
            ("session/resume", Some(id)) => self.open(id, message, Start::Resume),
            ("session/list" | "session/delete", Some(id)) => self.ask(id, message),
            (method, _) if method.starts_with("$/") => {}
            _ => self.pass(message).await,
        }
    }

    /// To the conversation that the message names.
    async fn pass(&mut self, message: Message) {
        let named = message.session().map(str::to_owned);
        let to = named.as_ref().and_then(|name| self.conversations.get(name));
        if let Some(to) = to {
            // The task of a conversation ends with the bridge only.
            to.send(message).await.ok();
            return;
        }
        if let Some(id) = &message.id {
            let method = message.method.as_deref().unwrap_or_default();
            let error = match named {
                Some(name) => RpcError::invalid(format!(
                    "session {name} is not open here; call session/load or session/new first"
                )),
                None => RpcError::unknown_method(method),
            };
            self.shared.out.error(id, &error).await;
        }
    }

    fn open(&self, id: Value, message: Message, start: Start) {
        let (shared, opened) = (self.shared.clone(), self.opened.clone());
        handler_base::tasks::spawn_named("open a conversation", async move {
            match open::open(&shared, &message, start).await {
                Ok(conversation) => {
                    // First known, then answered: the editor's next message must find it.
                    let (conversation, ready) = conversation.answering(id);
                    if opened.send(conversation).await.is_ok() {
                        ready.await.ok();
                    }
                }
                Err(error) => shared.out.error(&id, &error).await,
            }
        });
    }

    /// What needs no conversation.
    fn ask(&self, id: Value, message: Message) {
        let shared = self.shared.clone();
        handler_base::tasks::spawn_named("ask about sessions", async move {
            let answer = match message.method.as_deref() {
                Some("session/list") => setup::list(&shared.client, &message.params).await,
                _ => setup::delete(&shared.client, &message.params).await,
            };
            match answer {
                Ok(result) => shared.out.result(&id, result).await,
                Err(error) => shared.out.error(&id, &error).await,
            }
        });
    }

    /// Runs a conversation; one of the same session that was open before ends.
    fn adopt(&mut self, conversation: Conversation) {
        // What the former one's agent asked goes with it: the new one is asked again.
        self.shared.asked.withdraw_all(conversation.name());
        let (to, from) = mpsc::channel(QUEUE);
        self.conversations
            .insert(conversation.name().to_owned(), to.clone());
        handler_base::tasks::spawn_named("conversation", conversation.run(to.downgrade(), from));
    }
}

/// Facts that any conversation may show.
fn program() -> Value {
    json!({"name": "handler", "title": "Handler", "version": env!("CARGO_PKG_VERSION")})
}
