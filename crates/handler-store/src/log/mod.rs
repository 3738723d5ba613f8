//! Event logs: one append-only file of JSON lines per session, each line numbered.
//!
//! A line is `{"seq":n,"t":"<RFC 3339>","kind":"…",…}`; numbers start at 1 and grow by one. The log adds
//! `seq` and `t`. Beside the file lies a sparse index (`<file>.idx`) that only saves time: it is made
//! anew when it is missing or does not fit.
//!
//! Invariants: a line is in the file, whole, before its number is told to anyone; a line told about is
//! never changed; after a crash of this program nothing told is lost (after a crash of the machine, what
//! came after the last [`EventLog::sync`] may be). Readers see whole lines only.

mod append;
mod blocks;
mod history;
mod index;
mod locked;
mod open;
mod read;

use index::Index;
use locked::LockedFile;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

pub use blocks::seq_of;
pub use history::LogHistory;
pub use read::LogReader;

/// Longest line, in bytes, newline included.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// The end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogEnd {
    /// Number of the last line; 0: none.
    pub seq: u64,
    /// Bytes of all lines.
    pub bytes: u64,
}

/// Why a log could not be opened, written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Someone has it open already, in this program or another.
    #[error("event log {} is open already", path.display())]
    AlreadyOpen {
        /// The file.
        path: PathBuf,
    },
    /// A line is not one a log wrote; nothing was changed.
    #[error("event log {} is damaged at byte {offset}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
    },
    /// No room on its disk. The log is as before and can be used again when there is room.
    #[error("no space left for event log {}", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// An event has no `kind`, or has a `seq` or `t` of its own.
    #[error("an event needs a text `kind` and must not have `{field}`")]
    NotAnEvent {
        /// What is wrong or missing.
        field: &'static str,
    },
    /// An event is longer than [`MAX_LINE`].
    #[error("an event of {bytes} bytes is longer than a line may be ({MAX_LINE})")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// An event cannot be written as JSON.
    #[error("an event cannot be written")]
    Encode(#[from] serde_json::Error),
    /// The file system failed.
    #[error("event log {} cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// An open log; clones share it. All calls are blocking and short; [`EventLog::sync`] waits for the disk.
#[derive(Debug, Clone)]
pub struct EventLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    file: LockedFile,
    writer: Mutex<append::Writer>,
    index: Mutex<Index>,
    end: watch::Sender<LogEnd>,
}

impl EventLog {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Number of the last line; 0 when the log is empty.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.end().seq
    }

    /// The end of the log.
    #[must_use]
    pub fn end(&self) -> LogEnd {
        *self.0.end.borrow()
    }

    /// Follows the end of the log: changes after each append. Together with
    /// [`EventLog::read_from`] this is how a viewer misses nothing.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<LogEnd> {
        self.0.end.subscribe()
    }

    /// Waits until all lines are on the disk. Blocks: milliseconds, or more on a busy disk.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn sync(&self) -> Result<(), LogError> {
        self.0.file.sync_data().map_err(|source| self.0.io(source))
    }
}

impl Shared {
    /// Names the file in an error.
    fn io(&self, source: io::Error) -> LogError {
        io_error(&self.path, source)
    }
}

fn io_error(path: &Path, source: io::Error) -> LogError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            LogError::NoSpace { path }
        }
        _ => LogError::Io { path, source },
    }
}
