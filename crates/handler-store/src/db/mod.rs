//! The database: one writer thread, a few readers, and the format it is kept in.
//!
//! Owns how statements reach SQLite; what they say is in [`crate::rows`]. Nothing here blocks the
//! runtime: callers wait for answers, not for the disk.

mod connect;
mod cursor;
mod error;
mod migrate;
mod readers;
mod writer;

use crate::rows::{Agents, Idempotency, KeyValues, Projects, Sandboxes, SessionTexts, Sessions};
use readers::Readers;
use rusqlite::Connection;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use writer::Writer;

pub(crate) use cursor::{Cursor, page_limit};
pub(crate) use error::broken_unique;
pub use error::{OpenError, StoreError};

/// A handle to the database; clones share it.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    readers: Arc<Readers>,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Store {
    /// Opens the database (0600, made when missing) and brings it to the newest format. Requests left
    /// under way by an earlier daemon are forgotten. Blocks for some milliseconds; must be called
    /// by the one daemon that holds the lock of the state folder.
    ///
    /// # Errors
    /// [`OpenError`]; a newer or foreign database is left as it is.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        let sqlite = |source| OpenError::Sqlite {
            path: path.to_owned(),
            source,
        };
        connect::touch(path).map_err(io)?;
        let mut db = connect::writer(path).map_err(|source| match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => OpenError::Foreign {
                path: path.to_owned(),
            },
            _ => sqlite(source),
        })?;
        migrate::migrate(&mut db, path, migrate::MIGRATIONS)?;
        crate::rows::forget_under_way(&db).map_err(sqlite)?;
        let (writer, ended) = Writer::start(db).map_err(io)?;
        Ok(Self(Arc::new(Inner {
            writer,
            readers: Arc::new(Readers::new(path.to_owned())),
            ended: Mutex::new(Some(ended)),
        })))
    }

    /// The sandboxes.
    #[must_use]
    pub fn sandboxes(&self) -> Sandboxes {
        Sandboxes(self.clone())
    }

    /// The sessions.
    #[must_use]
    pub fn sessions(&self) -> Sessions {
        Sessions(self.clone())
    }

    /// The projects.
    #[must_use]
    pub fn projects(&self) -> Projects {
        Projects(self.clone())
    }

    /// The agents.
    #[must_use]
    pub fn agents(&self) -> Agents {
        Agents(self.clone())
    }

    /// What was said in sessions, and what their turns used.
    #[must_use]
    pub fn session_texts(&self) -> SessionTexts {
        SessionTexts(self.clone())
    }

    /// Answers kept for `Idempotency-Key`.
    #[must_use]
    pub fn idempotency(&self) -> Idempotency {
        Idempotency(self.clone())
    }

    /// Small settings the daemon keeps for itself.
    #[must_use]
    pub fn kv(&self) -> KeyValues {
        KeyValues(self.clone())
    }

    /// Does what was sent before, then closes the database. Every clone answers
    /// [`StoreError::Closed`] afterwards. Dropping all clones closes it as well, without waiting.
    pub async fn close(self) {
        self.0.readers.close().await;
        self.0.writer.stop().await;
        let ended = self
            .0
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(ended) = ended {
            ended.await.ok();
        }
    }

    /// Runs a job on the writer thread.
    pub(crate) async fn write<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.0.writer.run(job).await
    }

    /// Runs a job on a reading connection.
    pub(crate) async fn read<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.0.readers.run(job).await
    }
}
