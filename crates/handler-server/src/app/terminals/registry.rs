//! Which terminals there are: read from the disk once per sandbox, then kept.

use super::hub::Hub;
use super::owner::Owner;
use super::record::{Folder, numbers};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_base::tasks::spawn_named;
use handler_types::terminal::TerminalNumber;
use handler_types::{ProblemCode, SandboxId};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::task::TaskTracker;

/// Terminals of one sandbox by number.
type Known = BTreeMap<TerminalNumber, Hub>;

#[derive(Debug, Default)]
struct Sandbox {
    hubs: Known,
    /// The highest number given so far.
    highest: TerminalNumber,
}

/// All terminals.
#[derive(Debug, Default)]
pub struct Terminals {
    sandboxes: Mutex<HashMap<SandboxId, Sandbox>>,
    /// Held while a sandbox's terminals are read from the disk.
    loading: tokio::sync::Mutex<()>,
    owners: TaskTracker,
}

impl Terminals {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Sandbox>> {
        self.sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The doors of a sandbox's terminals, as far as they were asked for or found at start.
    #[must_use]
    pub fn known(&self, sandbox: &SandboxId) -> Vec<(TerminalNumber, Hub)> {
        let sandboxes = self.lock();
        let hubs = sandboxes.get(sandbox).map(|s| &s.hubs);
        let hubs = hubs.into_iter().flatten();
        hubs.map(|(number, hub)| (*number, hub.clone())).collect()
    }
}

fn folder_of(app: &App, sandbox: &SandboxId) -> PathBuf {
    app.settings.layout.sandbox_dir(sandbox).join("terminals")
}

/// What a disk that does not take a terminal is answered as.
pub(super) fn disk_error(error: &io::Error) -> ApiError {
    if error.kind() == io::ErrorKind::StorageFull {
        return ApiError::new(
            ProblemCode::NoSpace,
            "no room to keep a terminal; make room in the state folder",
        );
    }
    ApiError::internal("keep a terminal", error)
}

/// The terminals of a sandbox; those an earlier daemon left are taken up.
pub(super) async fn load(app: &Arc<App>, sandbox: &SandboxId) -> Known {
    let _only_one = app.terminals.loading.lock().await;
    if let Some(known) = app.terminals.lock().get(sandbox) {
        return known.hubs.clone();
    }
    let path = folder_of(app, sandbox);
    let found = {
        let path = path.clone();
        tokio::task::spawn_blocking(move || numbers(&path)).await
    };
    let numbers = found
        .map_err(io::Error::other)
        .flatten()
        .unwrap_or_else(|error| {
            tracing::warn!(%error, %sandbox, "its terminals cannot be listed");
            Vec::new()
        });
    let highest = numbers.iter().copied().max().unwrap_or(0);
    app.terminals
        .lock()
        .entry(sandbox.clone())
        .or_default()
        .highest = highest;
    for number in numbers {
        let folder = Folder::of(&path, number);
        match folder.read_record() {
            Ok(record) if record.terminal == number => {
                let (owner, hub, commands) =
                    Owner::new(app.clone(), sandbox.clone(), folder, record);
                adopt(app, sandbox, number, &hub, owner.run(commands));
            }
            // A daemon that ended between the folder and the record started nothing yet.
            _ => folder.remove(),
        }
    }
    let sandboxes = app.terminals.lock();
    sandboxes
        .get(sandbox)
        .map(|s| s.hubs.clone())
        .unwrap_or_default()
}

/// A folder for a new terminal of a sandbox whose terminals are loaded.
pub(super) async fn make_folder(
    app: &Arc<App>,
    sandbox: &SandboxId,
) -> ApiResult<(TerminalNumber, Folder)> {
    let path = folder_of(app, sandbox);
    let highest = app.terminals.lock().get(sandbox).map_or(0, |s| s.highest);
    let made = tokio::task::spawn_blocking(move || Folder::make(&path, highest)).await;
    let (number, folder) = made
        .map_err(io::Error::other)
        .flatten()
        .map_err(|error| disk_error(&error))?;
    let mut sandboxes = app.terminals.lock();
    let entry = sandboxes.entry(sandbox.clone()).or_default();
    entry.highest = entry.highest.max(number);
    Ok((number, folder))
}

/// Runs an owner and keeps the door to it.
pub(super) fn adopt(
    app: &App,
    sandbox: &SandboxId,
    terminal: TerminalNumber,
    hub: &Hub,
    owner: impl Future<Output = ()> + Send + 'static,
) {
    let token = app.terminals.owners.token();
    spawn_named("terminal", async move {
        owner.await;
        drop(token);
    });
    let mut sandboxes = app.terminals.lock();
    let entry = sandboxes.entry(sandbox.clone()).or_default();
    entry.hubs.insert(terminal, hub.clone());
}

/// Forgets a closed terminal.
pub(super) fn drop_one(app: &App, sandbox: &SandboxId, terminal: TerminalNumber) {
    if let Some(entry) = app.terminals.lock().get_mut(sandbox) {
        entry.hubs.remove(&terminal);
    }
    app.observe.activities.terminal_gone(app, sandbox, terminal);
}

/// Forgets the terminals of a sandbox that is gone: with the last door their owners end.
pub fn forget(app: &App, sandbox: &SandboxId) {
    app.terminals.lock().remove(sandbox);
}

/// Takes up what an earlier daemon left, so that its output is read.
pub async fn take_up(app: &Arc<App>) {
    for sandbox in app.engine.list() {
        load(app, &sandbox.id).await;
    }
}

/// Waits until all owners have written what they have. The daemon is stopping already.
pub async fn leave(app: &App) {
    app.terminals.owners.close();
    app.terminals.owners.wait().await;
}
