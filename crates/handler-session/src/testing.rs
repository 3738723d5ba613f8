//! A guest with a scripted agent, in memory: numbered streams that survive the session's owner.
//!
//! It holds output until acknowledged, ignores input it has, and notes whatever a real guest would call
//! a fault. Attaching again replaces the link before, as a daemon that comes back does.

mod agent;
mod viewer;

pub use agent::{AgentTurn, BasicAgent};
pub use viewer::TestViewer;

use crate::io::{AgentGone, AgentIo, AgentOutput};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// What an agent does about one line of its input.
pub trait Agent: Send {
    /// Takes a line; writes answers to `out`.
    fn on_line(&mut self, line: &Value, out: &mut AgentOut);
}

impl<F: FnMut(&Value, &mut AgentOut) + Send> Agent for F {
    fn on_line(&mut self, line: &Value, out: &mut AgentOut) {
        self(line, out);
    }
}

/// What an agent writes.
#[derive(Debug, Default)]
pub struct AgentOut {
    pieces: Vec<(bool, Vec<u8>)>,
    exit: Option<i32>,
}

impl AgentOut {
    /// A message as one line.
    pub fn send(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes());
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.pieces.push((false, bytes.to_vec()));
    }

    /// Standard error.
    pub fn err(&mut self, text: &str) {
        self.pieces.push((true, text.as_bytes().to_vec()));
    }

    /// The messages written so far.
    pub fn sent(&self) -> impl Iterator<Item = Value> {
        self.pieces
            .iter()
            .filter_map(|(_, bytes)| serde_json::from_slice(bytes).ok())
    }

    /// The agent ends.
    pub fn exit(&mut self, code: i32) {
        self.exit = Some(code);
    }
}

struct Segment {
    start: u64,
    is_err: bool,
    bytes: Bytes,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

struct State {
    agent: Box<dyn Agent>,
    epoch: u64,
    output: VecDeque<Segment>,
    output_end: u64,
    acked: u64,
    input: Vec<u8>,
    line_start: usize,
    lines: Vec<String>,
    over: Option<AgentOutput>,
    is_deaf: bool,
    chunk: usize,
    faults: Vec<String>,
}

/// A guest that outlives the links to it.
#[derive(Clone)]
pub struct FakeGuest {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl std::fmt::Debug for FakeGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeGuest")
    }
}

impl FakeGuest {
    /// A guest that runs `agent`.
    #[must_use]
    pub fn new(agent: impl Agent + 'static) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                agent: Box::new(agent),
                epoch: 0,
                output: VecDeque::new(),
                output_end: 0,
                acked: 0,
                input: Vec::new(),
                line_start: 0,
                lines: Vec::new(),
                over: None,
                is_deaf: false,
                chunk: usize::MAX,
                faults: Vec::new(),
            })),
            changed: Arc::new(Notify::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Output comes in pieces of at most `bytes`.
    #[must_use]
    pub fn with_chunks(self, bytes: usize) -> Self {
        self.lock().chunk = bytes.max(1);
        self
    }

    /// A new link; one made before is dead from now on.
    #[must_use]
    pub fn attach(&self) -> Box<dyn AgentIo> {
        let mut state = self.lock();
        state.epoch += 1;
        let io = FakeIo {
            guest: self.clone(),
            epoch: state.epoch,
            next: state.acked,
            received: state.input.len() as u64,
        };
        drop(state);
        self.changed.notify_waiters();
        Box::new(io)
    }

    /// The agent writes by itself.
    pub fn emit(&self, write: impl FnOnce(&mut AgentOut)) {
        let mut out = AgentOut::default();
        write(&mut out);
        self.lock().take(out);
        self.changed.notify_waiters();
    }

    /// The sandbox is gone.
    pub fn lose(&self, reason: &str) {
        self.lock().over = Some(AgentOutput::Lost {
            reason: reason.to_owned(),
        });
        self.changed.notify_waiters();
    }

    /// Whether the agent leaves its input unread.
    pub fn set_deaf(&self, is_deaf: bool) {
        self.lock().is_deaf = is_deaf;
        self.changed.notify_waiters();
    }

    /// Every line the agent read.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// Output acknowledged, bytes.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.lock().acked
    }

    /// Output written, bytes.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.lock().output_end
    }

    /// What a real guest would have refused.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.lock().faults.clone()
    }

    /// Waits until the agent has read a line that contains `text`.
    ///
    /// # Panics
    /// After 20 s.
    pub async fn wait_line(&self, text: &str) {
        wait_for(&format!("the agent to read {text}"), || {
            self.lines().iter().any(|line| line.contains(text))
        })
        .await;
    }
}

/// Waits for a condition.
///
/// # Panics
/// After 20 s.
pub async fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited too long for {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl State {
    fn take(&mut self, out: AgentOut) {
        for (is_err, bytes) in out.pieces {
            let bytes = Bytes::from(bytes);
            let start = self.output_end;
            self.output_end += bytes.len() as u64;
            self.output.push_back(Segment {
                start,
                is_err,
                bytes,
            });
        }
        if let Some(code) = out.exit {
            self.over.get_or_insert(AgentOutput::Exited { code });
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some(at) = memchr::memchr(b'\n', &self.input[self.line_start..]) {
            let line = self.input[self.line_start..self.line_start + at].to_vec();
            self.line_start += at + 1;
            let text = String::from_utf8_lossy(&line).into_owned();
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => {
                    let mut out = AgentOut::default();
                    self.agent.on_line(&value, &mut out);
                    self.take(out);
                }
                Err(error) => self.faults.push(format!("not JSON: {text}: {error}")),
            }
            self.lines.push(text);
        }
    }

    fn piece(&self, next: u64) -> Option<AgentOutput> {
        let segment = self.output.iter().find(|segment| segment.end() > next)?;
        let from = usize::try_from(next.saturating_sub(segment.start)).unwrap_or(0);
        let to = segment.bytes.len().min(from.saturating_add(self.chunk));
        let (end, bytes) = (segment.start + to as u64, segment.bytes.slice(from..to));
        Some(if segment.is_err {
            AgentOutput::Stderr { end, bytes }
        } else {
            AgentOutput::Stdout { end, bytes }
        })
    }
}

struct FakeIo {
    guest: FakeGuest,
    epoch: u64,
    next: u64,
    received: u64,
}

#[async_trait]
impl AgentIo for FakeIo {
    async fn next(&mut self) -> AgentOutput {
        loop {
            let changed = self.guest.changed.clone();
            let changed = changed.notified();
            {
                let state = self.guest.lock();
                if state.epoch == self.epoch {
                    if let Some(piece) = state.piece(self.next) {
                        if let AgentOutput::Stdout { end, .. } | AgentOutput::Stderr { end, .. } =
                            &piece
                        {
                            self.next = *end;
                        }
                        return piece;
                    }
                    if let Some(over) = &state.over {
                        return over.clone();
                    }
                }
            }
            // The wait has a limit because a notification may fall between the look and the wait.
            tokio::time::timeout(Duration::from_millis(5), changed)
                .await
                .ok();
        }
    }

    fn ack(&mut self, end: u64) {
        let mut state = self.guest.lock();
        if state.epoch != self.epoch {
            return;
        }
        if end > state.output_end {
            let fault = format!("acknowledged {end} of {}", state.output_end);
            state.faults.push(fault);
        }
        state.acked = state.acked.max(end);
        let acked = state.acked;
        state.output.retain(|segment| segment.end() > acked);
    }

    async fn write(&mut self, offset: u64, bytes: Bytes) -> Result<(), AgentGone> {
        loop {
            {
                let mut state = self.guest.lock();
                if state.epoch != self.epoch || state.over.is_some() {
                    return Err(AgentGone("the link is dead".to_owned()));
                }
                if !state.is_deaf {
                    let have = state.input.len() as u64;
                    if offset > have {
                        let fault = format!("input at {offset}, but {have} bytes were there");
                        state.faults.push(fault);
                        return Ok(());
                    }
                    let known = usize::try_from(have - offset).unwrap_or(usize::MAX);
                    if known < bytes.len() {
                        state.receive(&bytes[known..]);
                    }
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.guest.changed.notify_waiters();
        Ok(())
    }

    fn received(&self) -> u64 {
        self.received
    }
}
