//! What survives the daemon, in the session's folder.
//!
//! | file | what |
//! | --- | --- |
//! | `events.ndjson` | the event log |
//! | `live.json` | the state after everything up to some point (a snapshot) |
//! | `inputs.<g>.wal` | inputs since the snapshot, each written before it takes effect |
//! | `stdin.<g>.journal` | every byte meant for the agent's input, written before it is sent |
//! | `stdout.<g>.<offset>.part` | the beginning of a very long line of the agent |
//!
//! `<g>` numbers the agent processes of the session. Together with the agent's output, which the other
//! side keeps until a snapshot covers it, these files let the next daemon run everything after the
//! snapshot again. What already took place is recognised by its place: the n-th event after the
//! snapshot exists or not, the bytes at an offset of the journal exist or not.

pub(crate) mod crash;
pub(crate) mod journal;
pub(crate) mod part;
pub(crate) mod snapshot;
pub(crate) mod wal;

mod store;

pub use crash::CrashPoint;
pub(crate) use snapshot::Snapshot;
pub(crate) use store::Disk;
pub(crate) use wal::WalEntry;

use handler_store::log::LogError;
use std::path::{Path, PathBuf};

/// Why the session's files could not be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file system failed.
    #[error("session file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The event log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// `live.json` cannot be read.
    #[error("session state {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is no agent to go on with.
    #[error("no agent of this session was running")]
    NothingToAdopt,
    /// A test stopped the session here.
    #[error("stopped by a test")]
    Crashed,
}

pub(crate) fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> DiskError + use<> {
    let path = path.to_owned();
    move |source| DiskError::Io { path, source }
}
