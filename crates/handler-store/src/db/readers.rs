//! A few reading connections, opened when first needed and used on the runtime's blocking threads.

use super::connect;
use super::error::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Most reads at once; more wait.
const READERS: usize = 4;

/// The pool.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    free: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            free: Mutex::new(Vec::with_capacity(READERS)),
            permits: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// Runs a read. A connection whose job panics is not used again.
    pub(super) async fn run<T, F>(self: &Arc<Self>, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        let pool = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let db = match pool.take() {
                Some(db) => db,
                None => connect::reader(&pool.path)?,
            };
            let result = job(&db);
            pool.give_back(db);
            result
        });
        read.await.map_err(|_| StoreError::Closed)?
    }

    /// Refuses further reads, waits for those under way and closes the connections.
    pub(super) async fn close(&self) {
        let all = u32::try_from(READERS).unwrap_or(u32::MAX);
        if let Ok(permits) = self.permits.acquire_many(all).await {
            permits.forget();
        }
        self.permits.close();
        drop(std::mem::take(&mut *self.lock()));
    }

    fn take(&self) -> Option<Connection> {
        self.lock().pop()
    }

    fn give_back(&self, db: Connection) {
        self.lock().push(db);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
