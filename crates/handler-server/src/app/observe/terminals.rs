//! Reads the screens of terminals when something was written on them, and says what their programs do.
//!
//! A terminal that writes is read at most a few times a second; once more when it has been quiet for a while, since
//! text that stopped arriving means something else than text that arrives. One that is quiet costs nothing.

use super::activity::Found;
use super::agents::processes;
use crate::state::App;
use handler_activity::agents::harness_of;
use handler_activity::{Reading, Screen, ShellState, classify};
use handler_terminal::Look;
use handler_types::SandboxId;
use handler_types::sandbox::SandboxState;
use handler_types::terminal::{TerminalNumber, TerminalState, TerminalView};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// From output to the reading: what is drawn in several pieces is then there.
const SETTLE: Duration = Duration::from_millis(250);
/// Looked at once more after so long without output.
const QUIET: Duration = Duration::from_secs(21);
/// The processes of a terminal are asked for at most so often.
const PROGRAMS: Duration = Duration::from_secs(5);

type Key = (SandboxId, TerminalNumber);

/// Terminals to be read, and when.
#[derive(Debug, Default)]
pub struct Touched {
    due: Mutex<HashMap<Key, Instant>>,
    wake: Notify,
}

impl Touched {
    fn due(&self) -> MutexGuard<'_, HashMap<Key, Instant>> {
        // Short sections without waiting; a panic elsewhere leaves whole entries.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was written on a terminal, or it ended.
    pub fn note(&self, sandbox: &SandboxId, terminal: TerminalNumber) {
        let at = Instant::now() + SETTLE;
        let mut due = self.due();
        let known = due.entry((sandbox.clone(), terminal)).or_insert(at);
        let is_sooner = at < *known;
        *known = at.min(*known);
        let is_new = *known == at;
        drop(due);
        if is_new || is_sooner {
            self.wake.notify_one();
        }
    }

    fn later(&self, key: Key) {
        self.due().entry(key).or_insert(Instant::now() + QUIET);
    }

    fn forget(&self, key: &Key) {
        self.due().remove(key);
    }

    /// The next time something is due.
    fn next(&self) -> Option<Instant> {
        self.due().values().min().copied()
    }

    fn take(&self, now: Instant) -> Vec<Key> {
        let mut due = self.due();
        let ready: Vec<Key> = due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &ready {
            due.remove(key);
        }
        ready
    }
}

/// Starts reading.
pub(super) fn start(app: &Arc<App>) {
    let app = app.clone();
    handler_base::tasks::spawn_named("terminal activity", async move {
        let mut programs = Programs::default();
        loop {
            let touched = app.observe.activities.touched();
            let next = touched.next();
            tokio::select! {
                () = app.shutdown.cancelled() => return,
                () = touched.wake.notified() => {}
                () = at(next) => {
                    for key in touched.take(Instant::now()) {
                        read(&app, key, &mut programs).await;
                    }
                }
            }
        }
    });
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn read(app: &App, key: Key, programs: &mut Programs) {
    let (id, number) = &key;
    let activities = &app.observe.activities;
    let hub = app
        .terminals
        .known(id)
        .into_iter()
        .find(|(n, _)| n == number);
    let state = app.engine.get(id).map(|view| view.state).ok();
    let (
        Some((_, hub)),
        Some(SandboxState::Running | SandboxState::Pausing | SandboxState::Paused),
    ) = (hub, state)
    else {
        activities.terminal_gone(app, id, *number);
        activities.touched().forget(&key);
        return;
    };
    let view = hub.view();
    let Some(look) = hub.look().await else {
        return;
    };
    let quiet_ms = handler_base::clock::now_ms().saturating_sub(look.changed_ms);
    let quiet_ms = u64::try_from(quiet_ms).unwrap_or_default();
    let mut reading = screen(&look, &view, quiet_ms, None);
    let may_be_agent = reading.harness.is_none() && view.state == TerminalState::Running;
    if may_be_agent && let Some(harness) = programs.harness(app, id, &view).await {
        reading = screen(&look, &view, quiet_ms, Some(harness));
    }
    activities.terminal(
        app,
        id,
        *number,
        Found {
            harness: reading.harness.map(str::to_owned),
            state: reading.state,
            why: reading.why,
        },
    );
    if view.state == TerminalState::Running && u128::from(quiet_ms) < QUIET.as_millis() {
        activities.touched().later(key);
    }
}

fn screen(look: &Look, view: &TerminalView, quiet_ms: u64, harness: Option<&str>) -> Reading {
    let rows: Vec<&str> = look.rows.iter().map(String::as_str).collect();
    let marks = &look.osc.shell;
    let shell = match (marks.running, marks.at_prompt, marks.commands) {
        (true, ..) => Some(ShellState::Running),
        (false, true, 0) => Some(ShellState::Fresh),
        (false, true, _) => Some(ShellState::Ended(marks.last_exit)),
        (false, false, _) => None,
    };
    let ended = match view.state {
        TerminalState::Running => None,
        // How it ended may not be known; that it did not fail is then assumed.
        _ => Some(look.exit.or(view.exit.map(|exit| exit.code)).unwrap_or(0)),
    };
    let told = look.osc.state.as_ref();
    classify(&Screen {
        rows: &rows,
        cursor_row: Some(usize::from(look.cursor.0)),
        title: look.title.as_deref().unwrap_or_default(),
        shell,
        reported: told.and_then(|state| state.get("claudeStatus")?.as_str()),
        harness,
        quiet_ms: Some(quiet_ms),
        exit: look.exit.or(ended),
    })
}

/// Which harness runs on which terminal, asked for now and then.
#[derive(Debug, Default)]
struct Programs(HashMap<SandboxId, (Instant, HashMap<u32, &'static str>)>);

impl Programs {
    /// The harness that runs on a terminal, told by the processes on it.
    async fn harness(
        &mut self,
        app: &App,
        id: &SandboxId,
        view: &TerminalView,
    ) -> Option<&'static str> {
        let is_fresh = |known: &(Instant, HashMap<u32, &'static str>)| known.0.elapsed() < PROGRAMS;
        if !self.0.get(id).is_some_and(is_fresh) {
            let found = on_terminals(app, id).await.unwrap_or_default();
            self.0
                .retain(|id, known| is_fresh(known) && app.engine.get(id).is_ok());
            self.0.insert(id.clone(), (Instant::now(), found));
        }
        self.0.get(id)?.1.get(&view.process).copied()
    }
}

/// For each process that has a terminal of its own: the harness that runs on it.
async fn on_terminals(app: &App, id: &SandboxId) -> Option<HashMap<u32, &'static str>> {
    let guest = app.engine.guest(id).ok()?;
    let (started, table) = tokio::join!(guest.processes(), guest.table());
    let (started, table) = (started.ok()?, table.ok()?);
    let mut agents: HashMap<&str, &'static str> = HashMap::new();
    for (process, seen) in table.iter().zip(processes(&table)) {
        let in_front = process.foreground.is_none_or(|group| group == process.pgid);
        if let (Some(tty), Some(harness), true) = (&process.tty, harness_of(&seen), in_front) {
            agents.insert(tty, harness);
        }
    }
    let tty_of = |pid: i32| {
        let found = table.iter().find(|process| process.pid == pid)?;
        found.tty.as_deref()
    };
    let found = started
        .iter()
        .filter(|info| info.tty.is_some() && info.exit.is_none())
        .filter_map(|info| Some((info.process, *agents.get(tty_of(info.pid)?)?)));
    Some(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_writes_all_the_time_is_still_read() {
        let touched = Touched::default();
        let id = SandboxId::from_random([1; 8]);
        touched.note(&id, 1);
        let first = touched.next().expect("due");
        touched.note(&id, 1);
        assert_eq!(touched.next(), Some(first), "put off by more output");
        assert!(touched.take(first).contains(&(id.clone(), 1)));
        touched.later((id.clone(), 1));
        let later = touched.next().expect("due");
        touched.note(&id, 1);
        assert!(touched.next().expect("due") < later);
    }
}
