//! Kept output of commands: who keeps it, and who reads it.
//!
//! Of each process one at a time takes the output from the guest: a viewer while there is one, else a task that only
//! keeps it. Both keep what passes. Who wants it claims it; whoever has it sees that and lets go.

mod kept;

use crate::state::App;
use handler_engine::guest::{GuestCallError, GuestHandle, ProcessStream, StreamItem};
use handler_types::SandboxId;
use handler_types::guest::{GuestErrorCode, ProcessInfo, Stream};
use kept::Kept;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// How long a new process is left to its starter before its output is kept.
const FIRST: Duration = Duration::from_millis(300);
/// Attempts to attach when output is acknowledged meanwhile.
const TRIES: u32 = 5;
/// Processes after whose start the files of forgotten ones are removed.
const SWEEP_EVERY: u32 = 64;

/// Bytes of a guest's boot id in file names: processes are numbered anew by each guest of a sandbox.
const BOOT: usize = 12;

type Key = (SandboxId, String);

/// What the files of a process are called.
fn name(guest: &GuestHandle, process: u32) -> String {
    format!("{}{process}", prefix(guest))
}

fn prefix(guest: &GuestHandle) -> String {
    let plain = guest.boot().chars().filter(char::is_ascii_alphanumeric);
    let boot: String = plain.take(BOOT).collect();
    format!("{boot}-")
}

/// The kept output of one process, and the turn to take it from the guest.
#[derive(Debug)]
pub struct Spool {
    turn: tokio::sync::Mutex<()>,
    /// Counts claims of viewers.
    claims: watch::Sender<u64>,
    kept: Mutex<Kept>,
}

/// A viewer's turn. It ends when a newer viewer claims it.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The output, from the first byte the guest still has.
    pub stream: ProcessStream,
    /// Tells when it is over.
    pub claim: Claim,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

/// A viewer's claim.
#[derive(Debug)]
pub struct Claim {
    mine: u64,
    claims: watch::Receiver<u64>,
}

impl Claim {
    /// Returns when a newer viewer wants it. Cancel safe.
    pub async fn lost(&mut self) {
        let mine = self.mine;
        if self.claims.wait_for(|newest| *newest > mine).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// All kept outputs.
#[derive(Debug)]
pub struct Spools {
    sandboxes: PathBuf,
    /// Those in use.
    open: Mutex<HashMap<Key, Weak<Spool>>>,
    totals: Mutex<HashMap<SandboxId, Arc<AtomicU64>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spools {
    /// Below the daemon's state folder.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self {
            sandboxes: state.join("sandboxes"),
            open: Mutex::default(),
            totals: Mutex::default(),
        }
    }

    fn folder(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes.join(id.as_str()).join("output")
    }

    /// The kept output of a process, if it is one whose output is kept.
    #[must_use]
    pub fn find(&self, id: &SandboxId, guest: &GuestHandle, process: u32) -> Option<Arc<Spool>> {
        let name = name(guest, process);
        let [data, _] = kept::paths(&self.folder(id), &name);
        if !data.is_file() {
            return None;
        }
        self.open(id, name).ok()
    }

    fn open(&self, id: &SandboxId, name: String) -> io::Result<Arc<Spool>> {
        let folder = self.folder(id);
        let total = self.total(id, &folder);
        let mut open = lock(&self.open);
        if let Some(spool) = open
            .get(&(id.clone(), name.clone()))
            .and_then(Weak::upgrade)
        {
            return Ok(spool);
        }
        open.retain(|_, spool| spool.strong_count() > 0);
        let kept = Kept::open(&folder, &name, total)?;
        let spool = Arc::new(Spool {
            turn: tokio::sync::Mutex::new(()),
            claims: watch::Sender::new(0),
            kept: Mutex::new(kept),
        });
        open.insert((id.clone(), name), Arc::downgrade(&spool));
        Ok(spool)
    }

    /// Bytes kept of a sandbox; counted once.
    fn total(&self, id: &SandboxId, folder: &Path) -> Arc<AtomicU64> {
        let mut totals = lock(&self.totals);
        if let Some(total) = totals.get(id) {
            return total.clone();
        }
        let sizes = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let sum = sizes
            .filter_map(|entry| Some(entry.metadata().ok()?.len()))
            .sum();
        let total = Arc::new(AtomicU64::new(sum));
        totals.insert(id.clone(), total.clone());
        total
    }

    /// Keeps the output of a process that was just started. When that cannot be (a full disk), it is as if nobody
    /// listened: the process waits when it has said much.
    pub fn begin(self: &Arc<Self>, id: &SandboxId, guest: &GuestHandle, process: u32) {
        let made = handler_base::fs::create_private_dir(&self.folder(id))
            .and_then(|()| self.open(id, name(guest, process)));
        match made {
            Ok(spool) => {
                let guest = guest.clone();
                handler_base::tasks::spawn_named("keep output", async move {
                    tokio::time::sleep(FIRST).await;
                    spool.keep(guest, process).await;
                });
            }
            Err(error) => tracing::warn!(%error, process, "output cannot be kept"),
        }
        if process.is_multiple_of(SWEEP_EVERY) {
            self.sweep(id, guest);
        }
    }

    /// Removes what is kept of a process.
    pub fn forget(&self, id: &SandboxId, guest: &GuestHandle, process: u32) {
        self.remove(id, &name(guest, process));
    }

    fn remove(&self, id: &SandboxId, name: &str) {
        lock(&self.open).remove(&(id.clone(), name.to_owned()));
        for path in kept::paths(&self.folder(id), name) {
            let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            let is_gone = std::fs::remove_file(&path).is_ok();
            if let (true, Some(total)) = (is_gone, lock(&self.totals).get(id)) {
                let less = |total: u64| Some(total.saturating_sub(size));
                total
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                    .ok();
            }
        }
    }

    /// Removes what is kept of processes that the guest does not know any more.
    fn sweep(self: &Arc<Self>, id: &SandboxId, guest: &GuestHandle) {
        let (spools, id, guest) = (self.clone(), id.clone(), guest.clone());
        handler_base::tasks::spawn_named("sweep kept output", async move {
            let before = spools.on_disk(&id);
            let Ok(known) = guest.processes().await else {
                return;
            };
            let prefix = prefix(&guest);
            for found in before {
                let number = found.strip_prefix(&prefix).and_then(|n| n.parse().ok());
                if known.iter().all(|info| Some(info.process) != number) {
                    spools.remove(&id, &found);
                }
            }
        });
    }

    /// Names of all that is kept of a sandbox.
    fn on_disk(&self, id: &SandboxId) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder(id))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| {
                Some(
                    entry
                        .file_name()
                        .to_str()?
                        .strip_suffix(".data")?
                        .to_owned(),
                )
            })
            .collect()
    }
}

/// Goes on keeping, after a start of the daemon, in every sandbox that runs.
pub fn take_up(app: &Arc<App>) {
    for view in app.engine.list() {
        let processes = app.spools.on_disk(&view.id);
        // Not woken for it: while it rests nothing is said.
        let Ok(guest) = app.engine.guest(&view.id) else {
            continue;
        };
        let prefix = prefix(&guest);
        for found in processes {
            let number = found
                .strip_prefix(&prefix)
                .and_then(|n| n.parse::<u32>().ok());
            let Some(process) = number else { continue };
            if let Ok(spool) = app.spools.open(&view.id, found) {
                let guest = guest.clone();
                handler_base::tasks::spawn_named("keep output", async move {
                    spool.keep(guest, process).await;
                });
            }
        }
    }
}

impl Spool {
    /// Takes output from the guest and keeps it, until it ends or a viewer takes over.
    pub async fn keep(self: Arc<Self>, guest: GuestHandle, process: u32) {
        let mut claims = self.claims.subscribe();
        let Ok(_turn) = self.turn.try_lock() else {
            // Someone has it; who leaves sees to it that it goes on.
            return;
        };
        let Ok(mut stream) = attach(&guest, process).await else {
            return;
        };
        loop {
            let item = tokio::select! {
                _ = claims.changed() => return,
                item = stream.next() => item,
            };
            match item {
                StreamItem::Chunk {
                    offset,
                    stream: which,
                    bytes,
                } => {
                    let up_to = lock(&self.kept).add(offset, which, &bytes, true);
                    stream.ack(up_to);
                }
                StreamItem::Exited(_) => {}
                StreamItem::End { .. } | StreamItem::Lost(_) => return,
            }
        }
    }

    /// Takes over for a viewer: whoever had it before is told and lets go.
    ///
    /// # Errors
    /// What the guest refuses.
    pub async fn take_over(
        &self,
        guest: &GuestHandle,
        process: u32,
    ) -> Result<Turn<'_>, GuestCallError> {
        let mut mine = 0;
        self.claims.send_modify(|newest| {
            *newest += 1;
            mine = *newest;
        });
        let turn = self.turn.lock().await;
        Ok(Turn {
            stream: attach(guest, process).await?,
            claim: Claim {
                mine,
                claims: self.claims.subscribe(),
            },
            _turn: turn,
        })
    }

    /// Keeps what passed a viewer; the offset below which the guest may forget.
    pub fn add(&self, offset: u64, stream: Stream, bytes: &[u8]) -> u64 {
        lock(&self.kept).add(offset, stream, bytes, false)
    }

    /// Offset of the first byte kept.
    #[must_use]
    pub fn start(&self) -> u64 {
        lock(&self.kept).start()
    }

    /// Offset behind what is kept.
    #[must_use]
    pub fn end(&self) -> u64 {
        lock(&self.kept).end()
    }

    /// A kept piece.
    ///
    /// # Errors
    /// Of the disk.
    pub fn read(&self, offset: u64) -> io::Result<Option<(Stream, Vec<u8>)>> {
        lock(&self.kept).read(offset)
    }
}

/// Attaches at the first byte the guest still has.
async fn attach(guest: &GuestHandle, process: u32) -> Result<ProcessStream, GuestCallError> {
    let mut tries = 0;
    loop {
        let ProcessInfo { acked, .. } = guest.process(process).await?;
        match guest.attach(process, acked).await {
            // Acknowledged by another since.
            Err(GuestCallError::Refused(error))
                if error.code == GuestErrorCode::Invalid && tries < TRIES =>
            {
                tries += 1;
            }
            result => return result,
        }
    }
}
