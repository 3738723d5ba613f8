//! A process's stream on ours. What was printed is acknowledged, so that nothing is lost when the
//! connection breaks: the follower comes back and goes on behind the last byte it printed.

use super::exec::exit_code;
use crate::context::Context;
use crate::exit::Failure;
use handler_client::{Client, Socket, SocketMessage};
use handler_types::api::{StreamCommand, StreamEvent};
use handler_types::guest::Stream;
use std::time::{Duration, Instant};

/// Printed bytes after which they are acknowledged; well below what the guest keeps.
const ACK_EVERY: u64 = 128 * 1024;
/// How long a lost connection is tried to be made again.
const COME_BACK: Duration = Duration::from_secs(30);

/// What came next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Followed {
    /// The process ended; this command's exit code.
    Ended(u8),
    /// Something was printed, or nothing.
    Going,
}

/// An attached process.
pub(super) struct Follower<'a> {
    client: &'a Client,
    context: &'a Context,
    /// Address of the process.
    path: String,
    socket: Socket,
    /// Offset behind the last byte printed.
    seen: u64,
    acked: u64,
    comes_back: bool,
    /// Nothing is acknowledged: others may read it again.
    only_looks: bool,
}

impl<'a> Follower<'a> {
    /// Attaches. With `comes_back` a lost connection is made again; not for input that must arrive whole,
    /// since what was under way when it broke is not known.
    pub(super) async fn attach(
        client: &'a Client,
        context: &'a Context,
        sandbox: &str,
        process: u32,
        comes_back: bool,
    ) -> Result<Self, Failure> {
        let sandbox = handler_client::transport::encode(sandbox);
        let path = format!("/v1/sandboxes/{sandbox}/processes/{process}/attach?ack=client");
        let socket = client.socket(&path, "process.v1").await?;
        Ok(Self {
            client,
            context,
            path,
            socket,
            seen: 0,
            acked: 0,
            comes_back,
            only_looks: false,
        })
    }

    /// Attaches without acknowledging anything, so that it can be read again.
    pub(super) async fn look(
        client: &'a Client,
        context: &'a Context,
        sandbox: &str,
        process: u32,
    ) -> Result<Self, Failure> {
        let mut follower = Self::attach(client, context, sandbox, process, true).await?;
        follower.only_looks = true;
        Ok(follower)
    }

    /// Offset behind the last byte printed.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes and prints the next message. Cancel safe while it waits.
    pub(super) async fn receive(&mut self) -> SocketMessage {
        self.socket.next().await
    }

    /// Prints a message and does what it asks for.
    pub(super) async fn take(&mut self, message: SocketMessage) -> Result<Followed, Failure> {
        match message {
            SocketMessage::Binary(bytes) => {
                self.print(&bytes);
                if !self.only_looks && self.seen - self.acked >= ACK_EVERY {
                    self.acked = self.seen;
                    // A connection that breaks here shows in the next message.
                    self.command(&StreamCommand::Ack { up_to: self.seen })
                        .await
                        .ok();
                }
            }
            SocketMessage::Text(text) => match serde_json::from_str::<StreamEvent>(&text) {
                Ok(StreamEvent::Attached { offset, .. }) => {
                    self.seen = offset;
                    self.acked = offset;
                }
                Ok(StreamEvent::Exited { exit }) => {
                    if exit.timed_out {
                        let what =
                            "handler: the time limit ran out; everything it started was killed";
                        self.context.out.note(what);
                    }
                    return Ok(Followed::Ended(exit_code(exit.code)));
                }
                Ok(StreamEvent::Closed { reason, retry }) if retry => {
                    self.come_back(&reason).await?;
                }
                Ok(StreamEvent::Closed { reason, .. }) => return Err(Failure::Failed(reason)),
                Err(_) => {}
            },
            SocketMessage::Closed { reason, .. } => self.come_back(&reason).await?,
        }
        Ok(Followed::Going)
    }

    fn print(&mut self, frame: &[u8]) {
        let Some((stream, bytes)) = frame.split_first() else {
            return;
        };
        if Stream::from_byte(*stream) == Some(Stream::Stderr) {
            self.context.out.error_bytes(bytes);
        } else {
            self.context.out.bytes(bytes);
        }
        self.seen += bytes.len() as u64;
    }

    async fn come_back(&mut self, reason: &str) -> Result<(), Failure> {
        let lost = || Failure::Failed(format!("the stream ended early: {reason}"));
        if !self.comes_back {
            return Err(lost());
        }
        let path = format!("{}&from={}", self.path, self.seen);
        let deadline = Instant::now() + COME_BACK;
        loop {
            match self.client.socket(&path, "process.v1").await {
                Ok(socket) => {
                    self.socket = socket;
                    return Ok(());
                }
                // The daemon is back and says no: the sandbox or the process is gone.
                Err(error) if error.problem().is_some_and(|p| p.status == 404) => {
                    return Err(error.into());
                }
                Err(_) if Instant::now() > deadline => return Err(lost()),
                Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        }
    }

    /// Sends input.
    pub(super) async fn input(&mut self, bytes: Vec<u8>) -> Result<(), Failure> {
        let sent = self.socket.send_binary(bytes.into()).await;
        // On a terminal a lost key is typed again; the loss itself shows in the next message.
        if self.comes_back { Ok(()) } else { Ok(sent?) }
    }

    /// Sends a command.
    pub(super) async fn command(&mut self, command: &StreamCommand) -> Result<(), Failure> {
        let text = serde_json::to_string(command).map_err(|e| Failure::Failed(e.to_string()))?;
        let sent = self.socket.send_text(text).await;
        if self.comes_back { Ok(()) } else { Ok(sent?) }
    }
}
