//! What the engine's tasks share: the registry of sandboxes and the fan-out of their changes.
//!
//! Invariant: orders go to an owner, and an owner leaves its seat, only under the registry's lock: none is lost.

use super::admission::Books;
use super::config::EngineConfig;
use super::owner::{Command, Owner};
use super::timers::Timers;
use super::usage::Usage;
use crate::error::EngineError;
use crate::folders::SandboxFolders;
use crate::guest::GuestHandle;
use crate::lifecycle::State;
use crate::rows::SandboxRow;
use handler_types::SandboxId;
use handler_types::sandbox::SandboxView;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Orders that may wait for one owner.
const WAITING: usize = 1024;

/// A change of a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxChange {
    /// It is new, or something of it changed.
    Changed(Box<SandboxView>),
    /// It is gone.
    Removed(SandboxId),
}

/// What an owner leaves behind when its sandbox is at rest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    pub(super) state: State,
    /// Removals that were given up so far.
    pub(super) attempts: u32,
}

/// Who looks after a sandbox.
#[derive(Debug)]
pub(super) enum Seat {
    /// Its owner task.
    Owned(mpsc::Sender<Command>),
    /// Nobody: it rests.
    Resting(Rest),
}

/// One sandbox as the others see it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) row: Arc<SandboxRow>,
    pub(super) guest: Option<GuestHandle>,
    pub(super) usage: Arc<Usage>,
    pub(super) seat: Seat,
    /// Its limits count as handed out.
    pub(super) is_up: bool,
    /// It is being put to rest because nobody uses it: who wants its guest now has to wake it.
    pub(super) is_leaving: bool,
}

impl Entry {
    /// What the API shows of it.
    pub(super) fn view(&self) -> SandboxView {
        let mut view = self.row.view();
        view.life.used_at = self.usage.last_ms().map(handler_base::clock::rfc3339);
        view
    }

    /// The last use known, also by a command that ended.
    pub(super) fn last_use(&self) -> Instant {
        let ended = self.guest.as_ref().and_then(GuestHandle::last_exit);
        ended
            .into_iter()
            .chain([self.usage.last()])
            .max()
            .unwrap_or_else(Instant::now)
    }
}

/// Shared by the engine and all owner tasks.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: EngineConfig,
    pub(super) folders: SandboxFolders,
    pub(super) changes: broadcast::Sender<SandboxChange>,
    registry: Mutex<HashMap<SandboxId, Entry>>,
    pub(super) timers: Timers,
    pub(super) books: Books,
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
            books: Books::new(&config),
            config,
            changes,
            registry: Mutex::default(),
            timers: Timers::default(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, HashMap<SandboxId, Entry>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at one sandbox, or changes what is seen of it.
    pub(super) fn with<T>(
        &self,
        id: &SandboxId,
        look: impl FnOnce(&mut Entry) -> T,
    ) -> Result<T, EngineError> {
        self.registry()
            .get_mut(id)
            .map(look)
            .ok_or_else(|| EngineError::NotFound(id.to_string()))
    }

    /// Puts a sandbox in, at rest in this state; it gets an owner with its first order.
    pub(super) fn add(&self, row: Arc<SandboxRow>, state: State) {
        let mut registry = self.registry();
        self.add_to(&mut registry, row, state);
    }

    pub(super) fn add_to(
        &self,
        registry: &mut HashMap<SandboxId, Entry>,
        row: Arc<SandboxRow>,
        state: State,
    ) {
        let entry = Entry {
            guest: None,
            usage: Usage::new(),
            seat: Seat::Resting(Rest { state, attempts: 0 }),
            is_up: state.is_up(),
            is_leaving: false,
            row: row.clone(),
        };
        registry.insert(row.id.clone(), entry);
    }

    /// Gives an order to a sandbox's owner; one that rests gets an owner for it.
    pub(super) fn deliver(
        self: &Arc<Self>,
        id: &SandboxId,
        command: Command,
    ) -> Result<(), EngineError> {
        let mut registry = self.registry();
        let entry = registry
            .get_mut(id)
            .ok_or_else(|| EngineError::NotFound(id.to_string()))?;
        if self.stop.is_cancelled() {
            return Err(EngineError::ShuttingDown);
        }
        let rest = match &entry.seat {
            Seat::Owned(orders) => {
                return orders.try_send(command).map_err(|error| match error {
                    mpsc::error::TrySendError::Full(_) => EngineError::TooMany {
                        message: format!("{WAITING} orders wait for sandbox {id} already"),
                        retry_after: Duration::from_secs(1),
                    },
                    mpsc::error::TrySendError::Closed(_) => EngineError::ShuttingDown,
                });
            }
            Seat::Resting(rest) => *rest,
        };
        let (orders, inbox) = mpsc::channel(WAITING);
        if orders.try_send(command).is_err() {
            return Err(EngineError::ShuttingDown);
        }
        let owner = Owner::new(self.clone(), entry.row.clone(), rest, inbox);
        entry.seat = Seat::Owned(orders);
        self.spawn(owner);
        Ok(())
    }

    fn spawn(&self, owner: Owner) {
        let kill = self.kill.clone();
        // Boxed: what it needs while it works is larger than what a task is.
        let owned = Box::pin(owner.run());
        let owned = self.tasks.track_future(async move {
            tokio::select! {
                biased;
                () = kill.cancelled() => {}
                () = owned => {}
            }
        });
        handler_base::tasks::spawn_named("sandbox owner", owned);
    }

    /// An owner whose sandbox rests leaves its seat, unless orders came meanwhile.
    pub(super) fn leave_seat(
        &self,
        id: &SandboxId,
        inbox: &mpsc::Receiver<Command>,
        rest: Rest,
    ) -> bool {
        let mut registry = self.registry();
        match registry.get_mut(id) {
            Some(entry) if inbox.is_empty() => {
                entry.seat = Seat::Resting(rest);
                true
            }
            _ => false,
        }
    }

    /// Gives a stopped sandbox its place among the running.
    pub(super) fn admit_start(&self, row: &SandboxRow) -> Result<(), EngineError> {
        let mut registry = self.registry();
        self.books
            .admit(&registry, &row.spec, Some(&row.id), true)?;
        if let Some(entry) = registry.get_mut(&row.id) {
            entry.is_up = true;
        }
        Ok(())
    }

    /// Gives a running sandbox other limits.
    pub(super) fn admit_more(&self, row: &SandboxRow) -> Result<(), EngineError> {
        let mut registry = self.registry();
        self.books
            .admit(&registry, &row.spec, Some(&row.id), false)?;
        if let Some(entry) = registry.get_mut(&row.id) {
            entry.row = Arc::new(row.clone());
        }
        Ok(())
    }

    /// Gives a sandbox a name that no other has, from now on; what its owner publishes next counts.
    pub(super) fn take_name(&self, id: &SandboxId, name: Option<&str>) -> Result<(), EngineError> {
        let Some(name) = name else {
            return Ok(());
        };
        super::check_name(name)?;
        let mut registry = self.registry();
        check_free(&registry, name, Some(id))?;
        if let Some(entry) = registry.get_mut(id) {
            let mut row = (*entry.row).clone();
            row.spec.name = Some(name.to_owned());
            entry.row = Arc::new(row);
        }
        Ok(())
    }

    /// Takes on another sandbox, when its name is free and the host has room.
    pub(super) fn admit_new(&self, row: SandboxRow, state: State) -> Result<(), EngineError> {
        let mut registry = self.registry();
        if let Some(name) = &row.spec.name {
            check_free(&registry, name, None)?;
        }
        self.books.admit(&registry, &row.spec, None, true)?;
        self.add_to(&mut registry, Arc::new(row), state);
        Ok(())
    }

    /// Forgets a sandbox that is gone, and tells everyone.
    pub(super) fn gone(&self, id: &SandboxId) {
        self.timers.forget(id);
        let entry = self.registry().remove(id);
        drop(entry);
        // Nobody may be listening.
        self.changes.send(SandboxChange::Removed(id.clone())).ok();
    }

    pub(super) fn rows(&self) -> Vec<Arc<SandboxRow>> {
        let registry = self.registry();
        registry.values().map(|entry| entry.row.clone()).collect()
    }
}

fn check_free(
    registry: &HashMap<SandboxId, Entry>,
    name: &str,
    apart: Option<&SandboxId>,
) -> Result<(), EngineError> {
    let is_taken = registry
        .iter()
        .any(|(id, entry)| Some(id) != apart && entry.row.name() == name);
    if is_taken {
        return Err(EngineError::NameTaken(name.to_owned()));
    }
    Ok(())
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
