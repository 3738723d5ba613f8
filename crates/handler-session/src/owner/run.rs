//! The owner's loop: what it waits for, when it saves, how it ends.

use super::commands::Command;
use super::facts::SessionFacts;
use super::link::Link;
use super::stderr::Stderr;
use crate::acp::codec::{LineDecoder, LineEvent};
use crate::acp::codes;
use crate::attach::Roster;
use crate::core::SessionConfig;
use crate::disk::{Disk, DiskError, WalEntry};
use crate::io::AgentOutput;
use crate::live::{Input, LiveState, Phase};
use bytes::Bytes;
use handler_types::session::StopHow;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// A snapshot follows a change after this time at most.
const SAVE_AFTER: Duration = Duration::from_millis(100);
/// Output taken in since the last snapshot that asks for the next one, bytes.
const SAVE_OUTPUT: u64 = 128 * 1024;
/// Inputs since the last snapshot that ask for the next one, bytes.
const SAVE_INPUTS: u64 = 256 * 1024;

/// What an owner is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) config: SessionConfig,
    pub(crate) state: LiveState,
    pub(crate) disk: Disk,
    pub(crate) link: Link,
    pub(crate) decoder: LineDecoder,
    pub(crate) line_offset: u64,
    pub(crate) read_offset: u64,
    pub(crate) again: Vec<WalEntry>,
    pub(crate) is_adopted: bool,
    pub(crate) first: Option<Input>,
    pub(crate) facts: watch::Sender<SessionFacts>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) own: mpsc::WeakSender<Command>,
}

/// The owner of one session.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(super) config: SessionConfig,
    pub(super) state: LiveState,
    pub(super) disk: Disk,
    pub(super) link: Link,
    pub(super) roster: Roster,
    pub(super) facts: watch::Sender<SessionFacts>,
    pub(super) own: mpsc::WeakSender<Command>,
    pub(super) again: VecDeque<WalEntry>,
    pub(super) is_catching_up: bool,
    /// Agent's output after the last line processed.
    pub(super) line_offset: u64,
    pub(super) last_state_frame: Vec<u8>,
    pub(super) idle_since: Option<i64>,
    /// The daemon's side failed.
    pub(super) broken: Option<String>,
    pub(super) is_changed: bool,
    pub(super) is_dirty: bool,
    pub(super) ended: Option<String>,
    commands: mpsc::Receiver<Command>,
    decoder: LineDecoder,
    stderr: Stderr,
    /// Agent's output taken in.
    pub(super) seen: u64,
    pub(super) saved: u64,
    pub(super) save_at: Option<Instant>,
    pub(super) born: Instant,
    pub(super) grace_ends: Option<Instant>,
    first: Option<Input>,
    released: Option<oneshot::Sender<()>>,
    is_released: bool,
}

impl Owner {
    pub(crate) fn new(parts: Parts) -> Self {
        let stderr = Stderr::new(&parts.config.dir);
        Self {
            config: parts.config,
            state: parts.state,
            disk: parts.disk,
            link: parts.link,
            roster: Roster::default(),
            facts: parts.facts,
            own: parts.own,
            again: parts.again.into(),
            is_catching_up: parts.is_adopted,
            line_offset: parts.line_offset,
            last_state_frame: Vec::new(),
            idle_since: None,
            broken: None,
            is_changed: true,
            is_dirty: false,
            ended: None,
            commands: parts.commands,
            decoder: parts.decoder,
            stderr,
            seen: parts.read_offset,
            saved: parts.read_offset,
            save_at: None,
            born: Instant::now(),
            grace_ends: None,
            first: parts.first,
            released: None,
            is_released: false,
        }
    }

    /// Runs until the session ends or is let go.
    pub(crate) async fn run(mut self) {
        match self.serve().await {
            Ok(()) => {}
            // A test killed the daemon here: nothing more may happen.
            Err(DiskError::Crashed) => return,
            Err(error) => {
                tracing::error!(session = %self.config.id, %error, "the session's files failed");
                self.broken = Some(error.to_string());
                self.state.note_ended();
                self.publish();
                self.roster.close_all(
                    codes::CLOSE_BROKEN,
                    "the daemon could not store the session",
                );
            }
        }
        if let Some(reason) = self.ended.take() {
            self.publish();
            self.roster.close_all(codes::CLOSE_STOPPED, &reason);
        }
        let log = self.disk.log().clone();
        tokio::task::spawn_blocking(move || log.sync()).await.ok();
        let released = self.released.take();
        let Self { link, disk, .. } = self;
        link.close().await;
        drop(disk);
        if let Some(reply) = released {
            reply.send(()).ok();
        }
    }

    async fn serve(&mut self) -> Result<(), DiskError> {
        if let Some(first) = self.first.take() {
            self.input(first)?;
        }
        self.run_again()?;
        self.settle()?;
        while self.ended.is_none() && !self.is_released {
            let wake = self.next_wake();
            tokio::select! {
                command = self.commands.recv(), if !self.is_catching_up => match command {
                    Some(command) => self.command(command)?,
                    None => self.is_released = true,
                },
                viewer = self.roster.left() => {
                    self.is_changed |= self.roster.detach(viewer);
                }
                piece = self.link.output.recv() => self.output(piece)?,
                () = tokio::time::sleep_until(wake) => self.on_time()?,
            }
            self.settle()?;
        }
        self.give_up_catching_up_if_over()?;
        self.save()
    }

    fn give_up_catching_up_if_over(&mut self) -> Result<(), DiskError> {
        if self.ended.is_some() {
            self.give_up_catching_up()
        } else {
            Ok(())
        }
    }

    pub(super) fn release(&mut self, reply: oneshot::Sender<()>) {
        self.is_released = true;
        self.released = Some(reply);
    }

    /// What follows every step.
    fn settle(&mut self) -> Result<(), DiskError> {
        if !self.is_catching_up && !self.roster.has_live() && self.state.has_extension_request() {
            self.input(Input::RefuseExtensions)?;
        }
        if std::mem::take(&mut self.is_changed) {
            self.publish();
        }
        let is_full = self.seen.saturating_sub(self.saved) >= SAVE_OUTPUT
            || self.disk.wal_length() >= SAVE_INPUTS;
        if is_full {
            return self.save();
        }
        if self.is_dirty && self.save_at.is_none() {
            self.save_at = Some(Instant::now() + SAVE_AFTER);
        }
        Ok(())
    }

    pub(super) fn save(&mut self) -> Result<(), DiskError> {
        self.save_at = None;
        // A snapshot drops the inputs on disk: not before all of them have been run again.
        if !self.again.is_empty() {
            return Ok(());
        }
        let ack = self
            .disk
            .save(&self.state, self.line_offset, self.seen, &self.decoder)?;
        self.link.acks.send_replace(ack);
        self.saved = self.seen;
        self.is_dirty = false;
        self.publish();
        Ok(())
    }

    fn output(&mut self, piece: Option<AgentOutput>) -> Result<(), DiskError> {
        match piece {
            Some(AgentOutput::Stdout { end, bytes }) => {
                let bytes = self.unseen(end, bytes);
                for (offset, event) in self.decoder.push(end, &bytes) {
                    if self.ended.is_some() {
                        break;
                    }
                    self.take_line(offset, event)?;
                }
                self.seen = self.seen.max(end);
                self.is_dirty = true;
                Ok(())
            }
            Some(AgentOutput::Stderr { end, bytes }) => {
                let bytes = self.unseen(end, bytes);
                self.stderr.push(&bytes, self.disk.redactor());
                self.seen = self.seen.max(end);
                self.is_dirty = true;
                Ok(())
            }
            Some(AgentOutput::Exited { code }) => {
                self.agent_over(StopHow::Exited, format!("agent exited ({code})"), code != 0)
            }
            Some(AgentOutput::Lost { reason }) => self.agent_over(
                StopHow::Error,
                format!("the agent was lost: {reason}"),
                true,
            ),
            None => {
                let detail = "the link to the agent ended".to_owned();
                self.agent_over(StopHow::Error, detail, true)
            }
        }
    }

    fn take_line(&mut self, offset: u64, event: LineEvent) -> Result<(), DiskError> {
        match event {
            LineEvent::Line(line) => self.line(&line, offset)?,
            LineEvent::TooLong => {
                tracing::warn!(session = %self.config.id, "a line of the agent was too long");
                self.state.dropped += 1;
                self.line_offset = offset;
            }
        }
        if self.is_catching_up {
            self.run_again()
        } else {
            Ok(())
        }
    }

    /// The part of a piece that was not taken in before: after a new link output may come again.
    fn unseen(&self, end: u64, bytes: Bytes) -> Bytes {
        let start = end.saturating_sub(bytes.len() as u64);
        if start > self.seen {
            tracing::warn!(session = %self.config.id, from = self.seen, to = start, "output of the agent is missing");
        }
        let known = usize::try_from(self.seen.saturating_sub(start)).unwrap_or(usize::MAX);
        bytes.slice(known.min(bytes.len())..)
    }

    fn agent_over(
        &mut self,
        how: StopHow,
        mut detail: String,
        is_error: bool,
    ) -> Result<(), DiskError> {
        self.give_up_catching_up()?;
        if self.state.phase == Phase::Ended {
            self.ended.get_or_insert(detail);
            return Ok(());
        }
        if self.state.phase == Phase::Starting {
            detail.push_str(" before it was ready");
        }
        if is_error || self.state.phase == Phase::Starting {
            detail = self.with_stderr(detail);
        }
        self.input(Input::End {
            how,
            detail,
            is_error,
        })
    }

    /// Adds the agent's last words.
    pub(super) fn with_stderr(&self, mut text: String) -> String {
        let tail = self.stderr.tail(self.disk.redactor());
        if !tail.is_empty() {
            text.push_str("; its last messages: ");
            text.push_str(&tail);
        }
        text
    }
}
