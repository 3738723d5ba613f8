//! What the engine's tasks share: the registry of sandboxes and the fan-out of their changes.

use super::config::EngineConfig;
use super::owner::Command;
use super::usage::Usage;
use crate::error::EngineError;
use crate::folders::SandboxFolders;
use crate::guest::GuestHandle;
use crate::rows::SandboxRow;
use handler_types::SandboxId;
use handler_types::sandbox::SandboxView;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A change of a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxChange {
    /// It is new, or something of it changed.
    Changed(Box<SandboxView>),
    /// It is gone.
    Removed(SandboxId),
}

/// One sandbox as the others see it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) row: watch::Receiver<Arc<SandboxRow>>,
    pub(super) guest: watch::Receiver<Option<GuestHandle>>,
    pub(super) usage: Arc<Usage>,
}

/// Shared by the engine and all owner tasks.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: EngineConfig,
    pub(super) folders: SandboxFolders,
    pub(super) changes: broadcast::Sender<SandboxChange>,
    registry: Mutex<HashMap<SandboxId, Entry>>,
    /// Cancelled when owners are to end after what they are doing; their sandboxes go on.
    pub(super) stop: CancellationToken,
    /// Cancelled when owners are to end at once, as if the daemon had been killed.
    pub(super) kill: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Shared {
    pub(super) fn new(config: EngineConfig, changes: broadcast::Sender<SandboxChange>) -> Self {
        Self {
            folders: config.folders(),
            config,
            changes,
            registry: Mutex::default(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    fn registry(&self) -> MutexGuard<'_, HashMap<SandboxId, Entry>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn entry(&self, id: &SandboxId) -> Result<Entry, EngineError> {
        self.registry()
            .get(id)
            .cloned()
            .ok_or_else(|| EngineError::NotFound(id.to_string()))
    }

    pub(super) fn add(&self, id: SandboxId, entry: Entry) {
        self.registry().insert(id, entry);
    }

    /// Forgets a sandbox that is gone, and tells everyone.
    pub(super) fn gone(&self, id: &SandboxId) {
        self.registry().remove(id);
        // Nobody may be listening.
        self.changes.send(SandboxChange::Removed(id.clone())).ok();
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.registry().values().cloned().collect()
    }

    pub(super) fn rows(&self) -> Vec<Arc<SandboxRow>> {
        self.registry()
            .values()
            .map(|entry| entry.row.borrow().clone())
            .collect()
    }
}

/// Runs blocking work of the file system.
pub(super) async fn blocking<T, F>(work: F) -> Result<T, EngineError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, crate::folders::FolderError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(EngineError::ShuttingDown),
    }
}
