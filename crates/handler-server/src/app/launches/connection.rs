//! A plain ACP connection: one socket, one sandbox, one agent process (contract C.3).

use super::Launch;
use super::lane::{Lane, LaneEnd, lane};
use crate::app::agent::GuestAgent;
use crate::app::audit;
use crate::app::sandboxes::engine_error;
use crate::http::problem::ApiResult;
use crate::http::viewer::{AGENT_FAILED, GOING_AWAY, MAX_MESSAGE, NOT_TEXT, close_frame};
use crate::state::App;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use handler_base::tasks::spawn_named;
use handler_engine::guest::{GuestHandle, StreamItem};
use handler_session::acp::codes::{CLOSE_TOO_BIG, CLOSE_TOO_SLOW};
use handler_session::acp::{LineDecoder, LineEvent};
use handler_session::plain::{Passed, Relay, RelayConfig};
use handler_store::Redactor;
use handler_types::SandboxId;
use handler_types::guest::Stream;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// What an agent says on standard error is logged up to here, bytes.
const MAX_LOGGED: usize = 64 * 1024;
/// How long a client may take to hear what was said before the end.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long the daemon waits for the sandboxes of its connections at its end.
const LEAVE: Duration = Duration::from_secs(20);

/// Connections under way.
#[derive(Debug, Default)]
pub struct Connections {
    tasks: TaskTracker,
}

impl Connections {
    /// Waits until each has removed its sandbox. The daemon is stopping already.
    pub async fn leave(&self) {
        self.tasks.close();
        tokio::time::timeout(LEAVE, self.tasks.wait()).await.ok();
    }
}

/// Close code and reason.
type Ending = (u16, String);
type Sink = SplitSink<WebSocket, Message>;

/// Runs a connection to its end; its sandbox is gone then.
pub async fn run(socket: WebSocket, app: Arc<App>, launch: Launch) {
    // In a task of its own that the daemon waits for: whatever becomes of the socket, the sandbox goes.
    let tasks = app.connections.tasks.clone();
    tasks.spawn(async move {
        let (sink, source) = socket.split();
        let made = make(&app, launch).await;
        let (sandbox, ending, sink) = match made {
            Ok((sandbox, link)) => {
                let (ending, sink) = link.run(&app, sink, source).await;
                (Some(sandbox), ending, sink)
            }
            Err((sandbox, detail)) => (sandbox, Some((AGENT_FAILED, detail)), Some(sink)),
        };
        if let (Some((code, reason)), Some(mut sink)) = (ending, sink) {
            let frame = Message::Close(Some(close_frame(code, &reason)));
            tokio::time::timeout(LAST_WORDS, sink.send(frame))
                .await
                .ok();
        }
        let Some(sandbox) = sandbox else { return };
        if let Err(error) = app.engine.delete(&sandbox).await {
            tracing::warn!(%sandbox, %error, "the sandbox of a connection could not be removed");
        }
    });
}

/// Makes the sandbox and starts the agent in it.
async fn make(
    app: &Arc<App>,
    launch: Launch,
) -> Result<(SandboxId, Link), (Option<SandboxId>, String)> {
    let label = format!("acp-{}", handler_base::random::hex(4));
    let spec = launch.prepared.spec.clone();
    // Nobody empties its caches before its sandbox is known to have them.
    let using = app.caches_turn.read().await;
    let made = crate::app::agent::make(app, spec, label, launch.prepared.login.as_ref()).await;
    drop(using);
    let view = made.map_err(|error| (None, error.0.detail))?;
    audit::made(app, &view).await;
    launch.touch(app).await;
    let id = view.id;
    match Link::start(app, &id, launch).await {
        Ok(link) => Ok((id, link)),
        Err(error) => Err((Some(id), error.0.detail)),
    }
}

/// An agent's process and what is said to it.
struct Link {
    sandbox: SandboxId,
    agent: GuestAgent,
    relay: Relay,
    decoder: LineDecoder,
    redactor: Redactor,
    logged: usize,
    exit: Option<i32>,
}

impl Link {
    async fn start(app: &App, sandbox: &SandboxId, launch: Launch) -> ApiResult<Self> {
        let guest = app.engine.guest(sandbox).map_err(engine_error)?;
        let agent = GuestAgent::start(guest, launch.prepared.process).await?;
        Ok(Self {
            sandbox: sandbox.clone(),
            agent,
            relay: Relay::new(RelayConfig {
                scope: launch.scope,
                defaults: launch.prepared.defaults,
                instructions: launch.agent.instructions,
            }),
            decoder: LineDecoder::new(MAX_MESSAGE),
            redactor: Redactor::new(launch.prepared.redact),
            logged: 0,
            exit: None,
        })
    }

    /// Carries messages both ways until either side ends; none: the client is gone.
    async fn run(
        mut self,
        app: &App,
        sink: Sink,
        mut source: SplitStream<WebSocket>,
    ) -> (Option<Ending>, Option<Sink>) {
        let (mut to_client, client_end) = lane();
        let (mut to_agent, agent_end) = lane();
        let speaking = tokio::spawn(speak(sink, client_end));
        let (guest, process, offset) = self.agent.input();
        let feeding = spawn_named(
            "connection to agent",
            feed(guest, process, offset, agent_end),
        );
        let ending = loop {
            tokio::select! {
                () = app.shutdown.cancelled() => break Some((GOING_AWAY, "the daemon is stopping".to_owned())),
                message = source.next(), if to_agent.has_room() => {
                    match self.heard(app, message, &mut to_client, &mut to_agent) {
                        Ok(true) => {}
                        Ok(false) => break None,
                        Err(ending) => break Some(ending),
                    }
                }
                () = to_agent.moves(), if !to_agent.has_room() => {}
                item = self.agent.item(), if to_client.has_room() => {
                    if let Err(ending) = self.said(item, &mut to_client, &mut to_agent) {
                        break Some(ending);
                    }
                }
                () = to_client.moves(), if !to_client.has_room() => {}
            }
        };
        feeding.abort();
        drop((to_client, to_agent));
        (ending, last_words(speaking).await)
    }

    /// Takes what the client sent; false: it is gone.
    fn heard(
        &mut self,
        app: &App,
        message: Option<Result<Message, axum::Error>>,
        to_client: &mut Lane,
        to_agent: &mut Lane,
    ) -> Result<bool, Ending> {
        match message {
            Some(Ok(Message::Text(text))) if text.len() > MAX_MESSAGE => Err(too_big("a message")),
            Some(Ok(Message::Text(text))) => {
                // Live: the agent's list may have changed meanwhile.
                let Ok(view) = app.engine.get(&self.sandbox) else {
                    return Ok(true);
                };
                let passed = self.relay.client(text.as_bytes(), &view.network);
                route(passed, to_client, to_agent).map(|()| true)
            }
            Some(Ok(Message::Binary(_))) => Err((NOT_TEXT, "send text frames".to_owned())),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(true),
            Some(Ok(Message::Close(_)) | Err(_)) | None => Ok(false),
        }
    }

    /// Takes what the agent's process did.
    fn said(
        &mut self,
        item: StreamItem,
        to_client: &mut Lane,
        to_agent: &mut Lane,
    ) -> Result<(), Ending> {
        match item {
            StreamItem::Chunk {
                offset,
                stream,
                bytes,
            } => {
                let end = offset + bytes.len() as u64;
                if stream == Stream::Stderr {
                    self.log(&bytes);
                } else {
                    for (_, event) in self.decoder.push(end, &bytes) {
                        let LineEvent::Line(line) = event else {
                            return Err(too_big("a message of the agent"));
                        };
                        if !line.is_empty() {
                            route(self.relay.agent(&line), to_client, to_agent)?;
                        }
                    }
                    if self.decoder.is_skipping() {
                        return Err(too_big("a message of the agent"));
                    }
                }
                self.agent.ack_to(end);
                Ok(())
            }
            StreamItem::Exited(exit) => {
                self.exit = Some(exit.code);
                Ok(())
            }
            StreamItem::End { .. } => {
                let code = self
                    .exit
                    .map_or_else(|| "unknown".to_owned(), |code| code.to_string());
                Err((AGENT_FAILED, format!("agent exited ({code})")))
            }
            StreamItem::Lost(reason) => {
                tracing::debug!(sandbox = %self.sandbox, reason, "a connection lost its agent");
                Err((AGENT_FAILED, "agent exited (its sandbox ended)".to_owned()))
            }
        }
    }

    /// Standard error is logged, never passed on (C.2).
    fn log(&mut self, bytes: &Bytes) {
        if self.logged >= MAX_LOGGED {
            return;
        }
        self.logged += bytes.len();
        let text = String::from_utf8_lossy(bytes);
        let text = self.redactor.redact(&text);
        for line in text.lines() {
            tracing::info!(sandbox = %self.sandbox, line, "an agent says");
        }
    }
}

fn too_big(what: &str) -> Ending {
    let reason = format!("{what} of more than 16 MiB");
    (CLOSE_TOO_BIG, reason)
}

fn route(passed: Option<Passed>, to_client: &mut Lane, to_agent: &mut Lane) -> Result<(), Ending> {
    let is_taken = match passed {
        Some(Passed::Client(bytes)) => to_client.put(bytes),
        Some(Passed::Agent(mut bytes)) => {
            bytes.push(b'\n');
            to_agent.put(bytes)
        }
        None => true,
    };
    if is_taken {
        return Ok(());
    }
    Err((CLOSE_TOO_SLOW, "too much waits to be read".to_owned()))
}

/// Sends what comes to the client; gives the sink back for the last word.
async fn speak(mut sink: Sink, mut messages: LaneEnd) -> Option<Sink> {
    while let Some(message) = messages.next().await {
        let Ok(text) = Utf8Bytes::try_from(message) else {
            continue;
        };
        sink.send(Message::Text(text)).await.ok()?;
    }
    Some(sink)
}

/// Lets the client hear what was said before the end, if it listens.
async fn last_words(mut speaking: JoinHandle<Option<Sink>>) -> Option<Sink> {
    match tokio::time::timeout(LAST_WORDS, &mut speaking).await {
        Ok(sink) => sink.ok().flatten(),
        Err(_) => {
            speaking.abort();
            None
        }
    }
}

/// Gives the agent what comes.
async fn feed(guest: GuestHandle, process: u32, mut offset: u64, mut messages: LaneEnd) {
    while let Some(message) = messages.next().await {
        let length = message.len() as u64;
        if let Err(error) = guest.write_stdin(process, offset, message).await {
            tracing::debug!(%error, "an agent takes no more input");
            return;
        }
        offset += length;
    }
}
