//! One bounded log per sandbox: steps of its life, commands, terminals, refusals of the filter, what its guest said.
//!
//! Lines are written by one task, in order, with secret values taken out, into the sandbox's own state folder: they
//! outlive the daemon and go with the sandbox. Who writes never waits: what comes too fast is counted and left out.

mod egress;
mod file;
pub(crate) mod guest;
pub(crate) mod redact;

use file::{Disk, Stored};
use handler_types::SandboxId;
use handler_types::observe::{LogLevel, LogLine, LogLines, LogSource};
use redact::Redaction;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{broadcast, mpsc};

pub(crate) use egress::EgressDigest;

/// Lines that wait to be written.
const WAITING: usize = 2048;
/// Lines written at a time.
const BATCH: usize = 256;
/// Lines kept for followers that are slow; one further behind reads the file.
const LIVE: usize = 1024;
/// Longest message, bytes.
pub const LONGEST: usize = 4096;
/// Most lines of one answer.
pub const MOST_LINES: usize = 10_000;

/// Something to be written.
#[derive(Debug, Clone)]
pub struct Note {
    /// Whose log.
    pub id: SandboxId,
    /// Where it comes from.
    pub source: LogSource,
    /// How much it matters.
    pub level: LogLevel,
    /// What happened.
    pub message: String,
    /// When, milliseconds since the epoch.
    pub at: i64,
    /// The process it is about: `Ok` it started, `Err` it ended.
    pub process: Option<Result<u32, u32>>,
    /// Where in the guest's own file its text ends.
    pub guest_end: Option<u64>,
}

impl Note {
    /// A line of now.
    #[must_use]
    pub fn new(id: &SandboxId, source: LogSource, level: LogLevel, message: String) -> Self {
        Self {
            id: id.clone(),
            source,
            level,
            message,
            at: handler_base::clock::now_ms(),
            process: None,
            guest_end: None,
        }
    }
}

enum Order {
    Write(Box<Note>),
    Forget(SandboxId),
}

/// Which lines are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// Only these sources; none: all.
    pub source: Option<LogSource>,
    /// Not before, milliseconds since the epoch.
    pub since: Option<i64>,
    /// Only behind this number.
    pub after: Option<u64>,
    /// At most the last so many.
    pub tail: usize,
}

impl Wanted {
    fn fits(&self, line: &LogLine, at: i64) -> bool {
        self.source.is_none_or(|source| source == line.source)
            && self.since.is_none_or(|since| at >= since)
            && self.after.is_none_or(|after| line.seq > after)
    }
}

/// The logs.
#[derive(Debug)]
pub struct SandboxLogs {
    disk: Arc<Mutex<Disk>>,
    redaction: Arc<Redaction>,
    orders: mpsc::Sender<Order>,
    inbox: Mutex<Option<mpsc::Receiver<Order>>>,
    live: broadcast::Sender<(SandboxId, LogLine)>,
    left_out: Arc<AtomicU64>,
}

impl SandboxLogs {
    /// In the folders below `sandboxes`.
    pub(super) fn new(sandboxes: PathBuf, redaction: Redaction) -> Self {
        let (orders, inbox) = mpsc::channel(WAITING);
        Self {
            disk: Arc::new(Mutex::new(Disk::new(sandboxes))),
            redaction: Arc::new(redaction),
            orders,
            inbox: Mutex::new(Some(inbox)),
            live: broadcast::channel(LIVE).0,
            left_out: Arc::default(),
        }
    }

    /// Starts the task that writes; a second call does nothing.
    pub(super) fn start(&self) {
        let taken = self
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(inbox) = taken else { return };
        let writer = Writer {
            disk: self.disk.clone(),
            redaction: self.redaction.clone(),
            live: self.live.clone(),
            left_out: self.left_out.clone(),
        };
        handler_base::tasks::spawn_named("sandbox logs", writer.run(inbox));
    }

    /// Writes a line, soon.
    pub fn note(&self, note: Note) {
        if self.orders.try_send(Order::Write(Box::new(note))).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A sandbox is gone; its files went with its folder.
    pub(super) async fn forget(&self, id: &SandboxId) {
        self.orders.send(Order::Forget(id.clone())).await.ok();
    }

    /// Lines of all sandboxes from now on.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<(SandboxId, LogLine)> {
        self.live.subscribe()
    }

    /// Lines of a sandbox that are kept.
    pub async fn read(&self, id: &SandboxId, wanted: Wanted) -> LogLines {
        let id = id.clone();
        self.with_disk(move |disk| disk.read(&id, &wanted)).await
    }

    /// Processes that were started and of whose end nothing is written, as far as is kept.
    pub(super) async fn open_processes(&self, id: &SandboxId) -> Vec<u32> {
        let id = id.clone();
        self.with_disk(move |disk| disk.open_processes(&id)).await
    }

    /// When the last line about the filter was, milliseconds since the epoch; 0: never.
    pub(super) async fn last_egress(&self, id: &SandboxId) -> i64 {
        let id = id.clone();
        self.with_disk(move |disk| disk.last_egress(&id)).await
    }

    /// What the guest wrote into its own file since it was last taken in: lines, and where they end.
    pub(super) async fn guest_text(&self, id: &SandboxId) -> (Vec<String>, u64) {
        let id = id.clone();
        self.with_disk(move |disk| disk.guest_text(&id)).await
    }

    async fn with_disk<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Disk) -> T + Send + 'static,
    ) -> T {
        let disk = self.disk.clone();
        tokio::task::spawn_blocking(move || {
            work(&mut disk.lock().unwrap_or_else(PoisonError::into_inner))
        })
        .await
        .unwrap_or_default()
    }
}

struct Writer {
    disk: Arc<Mutex<Disk>>,
    redaction: Arc<Redaction>,
    live: broadcast::Sender<(SandboxId, LogLine)>,
    left_out: Arc<AtomicU64>,
}

impl Writer {
    async fn run(self, mut inbox: mpsc::Receiver<Order>) {
        let mut batch = Vec::new();
        while inbox.recv_many(&mut batch, BATCH).await > 0 {
            let orders = std::mem::take(&mut batch);
            let redactor = self.redaction.now().await;
            let disk = self.disk.clone();
            let left_out = self.left_out.swap(0, Ordering::Relaxed);
            let written = tokio::task::spawn_blocking(move || {
                let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
                let mut lines = Vec::new();
                for order in orders {
                    match order {
                        Order::Forget(id) => disk.forget(&id),
                        Order::Write(note) => {
                            let message = shorten(&redactor.redact(&note.message));
                            let stored = Stored::of(&note, message);
                            lines.extend(disk.append(&note.id, stored));
                        }
                    }
                }
                lines
            })
            .await;
            if left_out > 0 {
                tracing::warn!(left_out, "lines of sandbox logs came too fast");
            }
            for line in written.unwrap_or_default() {
                // Nobody may be following.
                self.live.send(line).ok();
            }
        }
    }
}

/// One line of bounded length, without control characters.
fn shorten(message: &str) -> String {
    let mut text = String::with_capacity(message.len().min(LONGEST));
    for c in message.chars() {
        if text.len() + c.len_utf8() > LONGEST {
            break;
        }
        text.push(if c.is_control() { ' ' } else { c });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_bounded_line() {
        assert_eq!(shorten("a\nb\x1b[31m"), "a b [31m");
        assert!(shorten(&"é".repeat(5000)).len() <= LONGEST);
    }
}
