//! Brings rows and reality together when the daemon starts: rows, instances, folders and the filter's
//! list are compared; what lives is adopted, what was half-way is finished or undone, what nobody knows is
//! removed. Killed at any point it is simply run again.

use super::Engine;
use super::owner::Command;
use super::shared::{Shared, blocking};
use crate::error::EngineError;
use crate::lifecycle::{After, Event, State};
use crate::rows::{Intent, SandboxRow};
use futures::stream::StreamExt as _;
use handler_types::SandboxId;
use handler_types::sandbox::SandboxState;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Sandboxes looked after at once.
const AT_ONCE: usize = 16;

/// What exists, by the sandbox it belongs to.
#[derive(Debug, Default)]
struct Found(BTreeMap<SandboxId, BTreeSet<String>>);

impl Found {
    fn add(&mut self, id: SandboxId, what: impl Into<String>) {
        self.0.entry(id).or_default().insert(what.into());
    }
}

/// Compares and mends.
pub(super) async fn reconcile(engine: &Engine) -> Result<(), EngineError> {
    let shared = &engine.shared;
    let rows = shared.config.rows.all().await?;
    let found = look(shared).await?;
    let known: BTreeSet<SandboxId> = rows.iter().map(|row| row.id.clone()).collect();
    let orphans = found.0.iter().filter(|(id, _)| !known.contains(*id));
    futures::stream::iter(orphans)
        .for_each_concurrent(AT_ONCE, |(id, what)| async move {
            tracing::warn!(sandbox = %id, ?what, "something of a sandbox without a row is removed");
            remove_orphan(shared, id).await;
        })
        .await;
    futures::stream::iter(rows)
        .for_each_concurrent(AT_ONCE, |row| recover(engine, row, &found))
        .await;
    Ok(())
}

async fn look(shared: &Shared) -> Result<Found, EngineError> {
    let mut found = Found::default();
    let folders = shared.folders.clone();
    let ids = blocking(move || {
        folders.sweep()?;
        folders.ids()
    })
    .await?;
    for id in ids {
        found.add(id, "folder");
    }
    for driver in &shared.config.drivers {
        for observed in driver.list_owned(&shared.config.owner).await {
            found.add(observed.id, observed.what);
        }
    }
    let limit = shared.config.timing.filter;
    match timeout(limit, shared.config.egress.list()).await {
        Ok(Ok(sandboxes)) => {
            for id in sandboxes.iter().filter_map(|id| id.parse().ok()) {
                found.add(id, "filter settings");
            }
        }
        Ok(Err(error)) => tracing::warn!(%error, "the filter does not say what it knows"),
        Err(_) => tracing::warn!("the filter does not answer"),
    }
    Ok(found)
}

/// Removes everything of a sandbox that has no row. What fails is left for the next start.
async fn remove_orphan(shared: &Shared, id: &SandboxId) {
    let config = &shared.config;
    let mut is_dead = true;
    for driver in &config.drivers {
        let destroyed = timeout(
            config.timing.destroy,
            driver.destroy(id, &config.owner, None),
        );
        match destroyed.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                is_dead = false;
                tracing::warn!(sandbox = %id, %error, "an orphan could not be removed");
            }
            Err(_) => {
                is_dead = false;
                tracing::warn!(sandbox = %id, "an orphan could not be removed in time");
            }
        }
    }
    match timeout(config.timing.filter, config.egress.remove(id)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(sandbox = %id, %error, "its filter settings stay"),
        Err(_) => tracing::warn!(sandbox = %id, "its filter settings stay"),
    }
    if !is_dead {
        return;
    }
    let (folders, id) = (shared.folders.clone(), id.clone());
    let removed = blocking(move || {
        folders.remove_runtime(&id)?;
        folders.remove_kept(&id)
    });
    if let Err(error) = removed.await {
        tracing::warn!(error = %error.detail(), "an orphan's folders stay");
    }
}

/// What to do with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// It is at rest and nothing runs: leave it.
    Rest,
    /// Feed this to the state machine.
    Drive(Event),
}

async fn recover(engine: &Engine, mut row: SandboxRow, found: &Found) {
    let shared = &engine.shared;
    let networked = row.spec.network.needs_egress();
    let Ok(driver) = shared.config.driver(&row.spec.backend) else {
        // Nothing is known or can be done about it here; its row stays as it is.
        row.error = Some(format!(
            "there is no backend `{}` in this daemon",
            row.spec.backend
        ));
        row.state = SandboxState::Failed;
        engine.adopt_entry(row, State::found(networked));
        return;
    };
    let is_alive = match (&row.instance, row.intent, row.state) {
        (Some(instance), None, SandboxState::Running) => driver.is_alive(&row.id, instance).await,
        _ => false,
    };
    let seen = found.0.get(&row.id);
    let only_home = seen.is_none_or(|seen| seen.iter().all(|what| what == "folder"));
    let course = course(&mut row, is_alive, only_home);
    let mut state = State::found(networked);
    // Also of a sandbox without network: an earlier policy may have left settings behind.
    state.held.filter = networked || !only_home;
    let Course::Drive(event) = course else {
        let phase = match row.state {
            SandboxState::Failed => crate::lifecycle::Phase::Failed,
            _ => crate::lifecycle::Phase::Stopped,
        };
        let mut rest = State { phase, ..state };
        rest.held = crate::lifecycle::Held {
            row: true,
            kept: true,
            runtime: true,
            ..Default::default()
        };
        engine.adopt_entry(row, rest);
        return;
    };
    if event != Event::Adopt {
        tracing::info!(sandbox = %row.id, state = ?row.state, intent = ?row.intent, "a sandbox is brought to rest");
    }
    let id = row.id.clone();
    let commands = engine.adopt_entry(row, state);
    let (reply, outcome) = oneshot::channel();
    if commands.send(Command::Step(event, reply)).await.is_ok()
        && let Ok(Err(error)) = outcome.await
    {
        tracing::warn!(sandbox = %id, error = %error.detail(), "a sandbox could not be brought to rest");
    }
}

/// Decides, from the row and what was seen of the sandbox.
fn course(row: &mut SandboxRow, is_alive: bool, only_home: bool) -> Course {
    let after = match (row.intent, row.state) {
        (Some(Intent::Create | Intent::Delete), _)
        | (None, SandboxState::Creating | SandboxState::Deleting) => After::Gone,
        (Some(Intent::Start), _) | (None, SandboxState::Starting) => {
            row.error = Some("the daemon ended while it was being started".to_owned());
            After::Stopped
        }
        (Some(Intent::Stop), _) | (None, SandboxState::Stopping) => After::Stopped,
        (
            None,
            SandboxState::Running
            | SandboxState::Pausing
            | SandboxState::Paused
            | SandboxState::Resuming,
        ) if is_alive => return Course::Drive(Event::Adopt),
        (
            None,
            SandboxState::Running
            | SandboxState::Pausing
            | SandboxState::Paused
            | SandboxState::Resuming,
        ) => {
            row.error = Some("it ended while the daemon was not running".to_owned());
            After::Stopped
        }
        (None, SandboxState::Stopped | SandboxState::Failed) if only_home => return Course::Rest,
        (None, SandboxState::Stopped) => After::Stopped,
        (None, SandboxState::Failed) => After::Failed,
    };
    Course::Drive(Event::Recover(after))
}
