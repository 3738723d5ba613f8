//! The task that talks to the agent: gives its input from the journal, takes its output, acknowledges.
//!
//! Input comes straight from the journal's file, so nothing piles up in memory when the agent does not
//! read; output waits in a short queue, so the agent is held back when the owner is busy.

use crate::io::{AgentIo, AgentOutput};
use bytes::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Pieces of output that wait for the owner.
const QUEUE: usize = 64;
/// Input given at once, bytes.
const CHUNK: u64 = 64 * 1024;
/// How long one write may hold up reading: an agent that writes before it reads must not wait for us.
const PATIENCE: Duration = Duration::from_secs(2);

/// The owner's end.
#[derive(Debug)]
pub(crate) struct Link {
    /// The agent's output.
    pub(crate) output: mpsc::Receiver<AgentOutput>,
    /// How much of the journal may be given to the agent.
    pub(crate) input: watch::Sender<u64>,
    /// How much output need not be kept.
    pub(crate) acks: watch::Sender<u64>,
    /// Input the agent has taken, bytes.
    pub(crate) taken: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Link {
    /// Starts the task; `limit` is how much of the journal may be given already.
    pub(crate) fn start(io: Box<dyn AgentIo>, journal: Arc<File>, limit: u64) -> Self {
        let (output_in, output) = mpsc::channel(QUEUE);
        let (input, input_seen) = watch::channel(limit);
        let (acks, acks_seen) = watch::channel(0);
        let written = io.received();
        let (taken_in, taken) = watch::channel(written);
        let pump = Pump {
            io,
            journal,
            written,
            input: input_seen,
            acks: acks_seen,
            taken: taken_in,
            is_deaf: false,
        };
        let task = handler_base::tasks::spawn_named("session-link", pump.run(output_in));
        Self {
            output,
            input,
            acks,
            taken,
            task,
        }
    }

    /// Lets the last acknowledgement through and ends the task.
    pub(crate) async fn close(self) {
        drop((self.output, self.input, self.acks));
        self.task.await.ok();
    }
}

struct Pump {
    io: Box<dyn AgentIo>,
    journal: Arc<File>,
    written: u64,
    input: watch::Receiver<u64>,
    acks: watch::Receiver<u64>,
    taken: watch::Sender<u64>,
    /// The agent takes no more input; its end will show in its output.
    is_deaf: bool,
}

impl Pump {
    async fn run(mut self, output: mpsc::Sender<AgentOutput>) {
        // Reading and writing take turns, so that neither starves the other.
        let mut is_input_next = false;
        let mut is_over = false;
        loop {
            let has_input = !self.is_deaf && !is_over && *self.input.borrow() > self.written;
            tokio::select! {
                biased;
                changed = self.acks.changed() => {
                    let end = *self.acks.borrow_and_update();
                    if end > 0 {
                        self.io.ack(end);
                    }
                    if changed.is_err() {
                        return;
                    }
                }
                () = std::future::ready(()), if has_input && is_input_next => {
                    is_input_next = false;
                    self.give().await;
                }
                piece = take(&mut *self.io, &output), if !is_over => {
                    is_input_next = true;
                    let Some((permit, piece)) = piece else { return };
                    is_over = matches!(piece, AgentOutput::Exited { .. } | AgentOutput::Lost { .. });
                    permit.send(piece);
                }
                changed = self.input.changed(), if !has_input => {
                    if changed.is_err() {
                        self.drain_acks();
                        return;
                    }
                }
                () = std::future::ready(()), if has_input => self.give().await,
            }
        }
    }

    fn drain_acks(&mut self) {
        if self.acks.has_changed().unwrap_or(true) {
            let end = *self.acks.borrow_and_update();
            if end > 0 {
                self.io.ack(end);
            }
        }
    }

    /// Gives one chunk of the journal to the agent. A write that does not end in time is given up and made
    /// again from the same offset, which the other side recognises.
    async fn give(&mut self) {
        let limit = *self.input.borrow_and_update();
        let length = (limit - self.written).min(CHUNK);
        let mut chunk = vec![0; usize::try_from(length).unwrap_or(0)];
        if let Err(error) = self.journal.read_exact_at(&mut chunk, self.written) {
            tracing::error!(%error, "the journal of the agent's input cannot be read");
            self.is_deaf = true;
            return;
        }
        let write = self.io.write(self.written, Bytes::from(chunk));
        match tokio::time::timeout(PATIENCE, write).await {
            Ok(Ok(())) => {
                self.written += length;
                self.taken.send_replace(self.written);
            }
            Ok(Err(gone)) => {
                tracing::debug!(%gone, "the agent takes no more input");
                self.is_deaf = true;
            }
            Err(_) => {}
        }
    }
}

/// Takes a piece of output once there is room for it.
async fn take<'a>(
    io: &mut dyn AgentIo,
    output: &'a mpsc::Sender<AgentOutput>,
) -> Option<(mpsc::Permit<'a, AgentOutput>, AgentOutput)> {
    let permit = output.reserve().await.ok()?;
    Some((permit, io.next().await))
}
