//! The one clock of all sandboxes: ends of life, idleness, removals to be tried again.
//!
//! One task sleeps until the earliest time. Uses do not move times: one that comes due is looked at again and
//! set anew, so that a use costs nothing here. Ends of life go by the calendar (a machine that slept or whose clock
//! was set is noticed within half a minute), everything else by a clock that nobody can set.

use super::agenda::Agenda;
use super::owner::Command;
use super::shared::Shared;
use crate::lifecycle::Event;
use handler_types::SandboxId;
use handler_types::sandbox::SandboxState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long the calendar is trusted.
const CALENDAR: Duration = Duration::from_secs(30);
/// Until something that could not be ordered is ordered again.
const AGAIN: Duration = Duration::from_secs(1);

/// What comes due besides the end of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Due {
    /// Nobody may have used it for a while.
    Idle,
    /// A removal that was given up.
    Remove,
    /// What is left of one that should be at rest.
    Clear,
}

#[derive(Debug, Default)]
struct Agendas {
    calendar: Agenda<SandboxId, i64>,
    clock: Agenda<(SandboxId, Due), Instant>,
}

/// All times.
#[derive(Debug, Default)]
pub(super) struct Timers {
    agendas: Mutex<Agendas>,
    earlier: Notify,
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Agendas> {
        self.agendas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it is to be removed, in milliseconds since the epoch.
    pub(super) fn expire(&self, id: &SandboxId, at_ms: Option<i64>) {
        if self.lock().calendar.set(id, at_ms) {
            self.earlier.notify_one();
        }
    }

    /// When this comes due.
    pub(super) fn set(&self, id: &SandboxId, due: Due, at: Option<Instant>) {
        if self.lock().clock.set(&(id.clone(), due), at) {
            self.earlier.notify_one();
        }
    }

    /// It is gone.
    pub(super) fn forget(&self, id: &SandboxId) {
        let mut agendas = self.lock();
        agendas.calendar.set(id, None);
        for due in [Due::Idle, Due::Remove, Due::Clear] {
            agendas.clock.set(&(id.clone(), due), None);
        }
    }

    /// Until when to sleep; `None`: nothing is set.
    fn next(&self) -> Option<Instant> {
        let agendas = self.lock();
        let now = Instant::now();
        let calendar = agendas.calendar.next().map(|at_ms| {
            let left = at_ms.saturating_sub(handler_base::clock::now_ms()).max(0);
            now + Duration::from_millis(left.unsigned_abs()).min(CALENDAR)
        });
        calendar.into_iter().chain(agendas.clock.next()).min()
    }

    fn take_due(&self) -> (Vec<SandboxId>, Vec<(SandboxId, Due)>) {
        let mut agendas = self.lock();
        let ended = agendas.calendar.take_due(handler_base::clock::now_ms());
        (ended, agendas.clock.take_due(Instant::now()))
    }
}

/// Runs until the engine ends.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let next = shared.timers.next();
        let sleep = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.kill.cancelled() => return,
            () = shared.timers.earlier.notified() => {}
            () = sleep => {}
        }
        let (ended, due) = shared.timers.take_due();
        for id in ended {
            end_life(&shared, &id);
        }
        for (id, due) in due {
            fire(&shared, &id, due);
        }
    }
}

/// Its time is over, unless it was given another one meanwhile.
fn end_life(shared: &Arc<Shared>, id: &SandboxId) {
    let now = handler_base::clock::now_ms();
    let Ok(expires) = shared.with(id, |entry| entry.row.expires_ms) else {
        return;
    };
    match expires {
        Some(at) if at <= now => {
            tracing::info!(sandbox = %id, "its time is over: it is removed");
            if shared.deliver(id, Command::order(Event::Delete)).is_err() {
                let again = now.saturating_add(i64::try_from(AGAIN.as_millis()).unwrap_or(1000));
                shared.timers.expire(id, Some(again));
            }
        }
        later => shared.timers.expire(id, later),
    }
}

fn fire(shared: &Arc<Shared>, id: &SandboxId, due: Due) {
    let command = match due {
        Due::Idle => {
            let Some(again) = idle_again(shared, id) else {
                return;
            };
            if let Some(at) = again {
                shared.timers.set(id, Due::Idle, Some(at));
                return;
            }
            Command::Idle
        }
        Due::Remove => Command::order(Event::Delete),
        Due::Clear => Command::order(Event::Stop),
    };
    if shared.deliver(id, command).is_err() {
        shared.timers.set(id, due, Some(Instant::now() + AGAIN));
    }
}

/// When to look again whether nobody uses it: `Some(None)` at once, `None` never.
fn idle_again(shared: &Shared, id: &SandboxId) -> Option<Option<Instant>> {
    let look = |entry: &mut super::shared::Entry| {
        let policy = entry.row.spec.idle?;
        if entry.row.state != SandboxState::Running {
            return None;
        }
        let after = Duration::from_secs(policy.after_seconds.max(1));
        let now = Instant::now();
        if entry.usage.is_held() {
            // It ends later than now, and from then on counts the whole time.
            return Some(Some(now + after));
        }
        let at = entry.last_use() + after;
        Some((at > now).then_some(at))
    };
    shared.with(id, look).ok().flatten()
}
