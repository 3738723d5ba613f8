//! Brings rows and reality together when the daemon starts: rows, instances, folders and the filter's
//! list are compared; what lives is adopted, what was half-way is finished or undone, what nobody knows is
//! removed. Killed at any point it is simply run again.

use super::Engine;
use super::command::Command;
use super::shared::{Shared, blocking};
use crate::error::EngineError;
use crate::lifecycle::{After, Event, Held, Phase, State};
use crate::rows::{Intent, SandboxRow};
use futures::stream::StreamExt as _;
use handler_types::SandboxId;
use handler_types::sandbox::SandboxState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Sandboxes looked after at once.
const AT_ONCE: usize = 16;

/// How long a driver may think about whether an instance lives.
const LOOK: Duration = Duration::from_secs(10);

/// What exists of one sandbox.
#[derive(Debug, Default)]
struct Seen {
    what: BTreeSet<String>,
    /// There is more than what a sandbox at rest keeps.
    is_more: bool,
}

/// What exists, by the sandbox it belongs to.
#[derive(Debug, Default)]
struct Found(BTreeMap<SandboxId, Seen>);

impl Found {
    fn add(&mut self, id: SandboxId, what: impl Into<String>, is_more: bool) {
        let seen = self.0.entry(id).or_default();
        seen.what.insert(what.into());
        seen.is_more |= is_more;
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
        .for_each_concurrent(AT_ONCE, |(id, seen)| async move {
            tracing::warn!(sandbox = %id, what = ?seen.what, "something of a sandbox without a row is removed");
            remove_orphan(shared, id).await;
        })
        .await;
    let found = Arc::new(found);
    let mut restless = Vec::new();
    for row in rows {
        restless.extend(seat(engine, row, &found));
    }
    settle(engine, restless, found).await;
    Ok(())
}

/// Brings what does not rest to rest. What takes long is waited for no longer: it goes on behind.
async fn settle(engine: &Engine, rows: Vec<SandboxRow>, found: Arc<Found>) {
    let limit = engine.shared.config.timing.reconcile;
    let (done, all_done) = oneshot::channel();
    let engine = engine.clone();
    let kill = engine.shared.kill.clone();
    let tasks = engine.shared.tasks.clone();
    tasks.spawn(async move {
        let all = futures::stream::iter(rows)
            .for_each_concurrent(AT_ONCE, |row| recover(&engine, row, &found));
        tokio::select! {
            () = kill.cancelled() => {}
            () = engine.shared.stop.cancelled() => {}
            () = all => {}
        }
        // The one who waited may have given up.
        done.send(()).ok();
    });
    if timeout(limit, all_done).await.is_err() {
        tracing::warn!(
            "some sandboxes do not come to rest; the daemon starts without waiting for them"
        );
    }
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
        found.add(id, "folder", false);
    }
    for driver in &shared.config.drivers {
        for observed in driver.list_owned(&shared.config.owner).await {
            found.add(observed.id, observed.what, observed.running);
        }
    }
    let limit = shared.config.timing.filter;
    match timeout(limit, shared.config.egress.list()).await {
        Ok(Ok(sandboxes)) => {
            for id in sandboxes.iter().filter_map(|id| id.parse().ok()) {
                found.add(id, "filter settings", true);
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

/// Gives a row its place in the registry; one that does not rest comes back.
fn seat(engine: &Engine, mut row: SandboxRow, found: &Found) -> Option<SandboxRow> {
    let shared = &engine.shared;
    let networked = row.spec.network.needs_egress();
    shared.timers.expire(&row.id, row.expires_ms);
    let is_known = shared.config.driver(&row.spec.backend).is_ok();
    if row.is_broken || !is_known {
        // Nothing is known or can be done about it here; its row stays as it is.
        if !row.is_broken {
            let error = format!("there is no backend `{}` in this daemon", row.spec.backend);
            row.error = Some(error);
        }
        row.state = SandboxState::Failed;
        shared.add(Arc::new(row), State::found(networked));
        return None;
    }
    let is_more = found.0.get(&row.id).is_some_and(|seen| seen.is_more);
    let is_resting = row.intent.is_none()
        && matches!(row.state, SandboxState::Stopped | SandboxState::Failed)
        && !is_more;
    if !is_resting {
        // Also of a sandbox without network: an earlier policy may have left settings behind.
        let mut state = State::found(networked);
        state.held.filter = networked || is_more;
        shared.add(Arc::new(row.clone()), state);
        return Some(row);
    }
    let phase = match row.state {
        SandboxState::Failed => Phase::Failed,
        _ => Phase::Stopped,
    };
    let state = State {
        phase,
        held: Held::resting(),
        ..State::found(networked)
    };
    shared.add(Arc::new(row), state);
    None
}

async fn recover(engine: &Engine, mut row: SandboxRow, found: &Found) {
    let shared = &engine.shared;
    let world = look_at(shared, &row).await;
    let event = course(&mut row, world);
    let id = row.id.clone();
    let seen = found.0.get(&id);
    let is_taken_over = matches!(event, Event::Adopt | Event::AdoptPaused);
    if !is_taken_over {
        tracing::info!(sandbox = %id, state = ?row.state, intent = ?row.intent, ?seen, "a sandbox is brought to rest");
    }
    // Its reason is for the owner, which has not begun yet.
    let is_there = shared.with(&id, |entry| entry.row = Arc::new(row));
    let (reply, outcome) = oneshot::channel();
    let command = Command::Step {
        event,
        reply: Some(reply),
        pass: None,
    };
    if is_there.is_ok()
        && shared.deliver(&id, command).is_ok()
        && let Ok(Err(error)) = outcome.await
    {
        tracing::warn!(sandbox = %id, error = %error.detail(), "a sandbox could not be brought to rest");
    }
}

/// How an instance was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum World {
    Dead,
    Alive,
    Frozen,
}

async fn look_at(shared: &Shared, row: &SandboxRow) -> World {
    let may_live = matches!(
        (row.intent, row.state),
        (Some(Intent::Pause | Intent::Resume), _)
            | (
                None,
                SandboxState::Running
                    | SandboxState::Pausing
                    | SandboxState::Paused
                    | SandboxState::Resuming
            )
    );
    let (Some(instance), true) = (&row.instance, may_live) else {
        return World::Dead;
    };
    let Ok(driver) = shared.config.driver(&row.spec.backend) else {
        return World::Dead;
    };
    let look = async {
        match driver.is_alive(&row.id, instance).await {
            false => World::Dead,
            true if driver.is_paused(&row.id, instance).await => World::Frozen,
            true => World::Alive,
        }
    };
    // A driver that does not know is asked again by taking over, which finds out.
    timeout(LOOK, look).await.unwrap_or(World::Alive)
}

/// Decides, from the row and how its instance was found.
fn course(row: &mut SandboxRow, world: World) -> Event {
    let after = match (row.intent, row.state) {
        (Some(Intent::Create | Intent::Delete), _)
        | (None, SandboxState::Creating | SandboxState::Deleting) => After::Gone,
        (Some(Intent::Start), _) | (None, SandboxState::Starting) => {
            row.error = Some("the daemon ended while it was being started".to_owned());
            After::Stopped
        }
        (Some(Intent::Stop), _) | (None, SandboxState::Stopping | SandboxState::Stopped) => {
            After::Stopped
        }
        (None, SandboxState::Failed) => After::Failed,
        (Some(Intent::Pause | Intent::Resume), _)
        | (
            None,
            SandboxState::Running
            | SandboxState::Pausing
            | SandboxState::Paused
            | SandboxState::Resuming,
        ) => match (world, row.state, row.intent) {
            (World::Frozen, ..) => return Event::AdoptPaused,
            (World::Alive, SandboxState::Running, None) => return Event::Adopt,
            // It may be half frozen.
            (World::Alive, ..) => return Event::AdoptThawed,
            (World::Dead, ..) => {
                row.error = Some("it ended while the daemon was not running".to_owned());
                After::Stopped
            }
        },
    };
    Event::Recover(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::sandbox::SandboxSpec;

    #[test]
    fn what_was_half_way_is_finished_or_undone_by_what_is_found() {
        use SandboxState as S;
        use World::{Alive, Dead, Frozen};
        let stopped = Event::Recover(After::Stopped);
        let gone = Event::Recover(After::Gone);
        for (intent, state, world, wanted) in [
            (None, S::Running, Alive, Event::Adopt),
            (None, S::Running, Frozen, Event::AdoptPaused),
            (None, S::Running, Dead, stopped),
            (None, S::Paused, Frozen, Event::AdoptPaused),
            (None, S::Paused, Alive, Event::AdoptThawed),
            (None, S::Paused, Dead, stopped),
            (Some(Intent::Pause), S::Pausing, Alive, Event::AdoptThawed),
            (Some(Intent::Pause), S::Running, Alive, Event::AdoptThawed),
            (Some(Intent::Pause), S::Pausing, Frozen, Event::AdoptPaused),
            (Some(Intent::Resume), S::Resuming, Alive, Event::AdoptThawed),
            (
                Some(Intent::Resume),
                S::Resuming,
                Frozen,
                Event::AdoptPaused,
            ),
            (Some(Intent::Resume), S::Resuming, Dead, stopped),
            (Some(Intent::Create), S::Creating, Alive, gone),
            (Some(Intent::Delete), S::Deleting, Frozen, gone),
            (Some(Intent::Start), S::Starting, Alive, stopped),
            (Some(Intent::Stop), S::Stopping, Frozen, stopped),
            (None, S::Failed, Dead, Event::Recover(After::Failed)),
        ] {
            let mut row = SandboxRow {
                intent,
                state,
                ..SandboxRow::of(SandboxSpec::default())
            };
            assert_eq!(
                course(&mut row, world),
                wanted,
                "{intent:?} {state:?} {world:?}"
            );
        }
    }
}
