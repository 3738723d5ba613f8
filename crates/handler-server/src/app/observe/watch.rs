//! Follows what happens to sandboxes and what the filter decides, and writes it down: into logs, counters, activities.
//!
//! One task for the changes of all sandboxes, and one for the commands of each that runs; nothing is asked twice.

use super::log::{EgressDigest, Note};
use super::{host, log};
use crate::state::App;
use handler_engine::SandboxChange;
use handler_engine::guest::{GuestHandle, ProcessHappening};
use handler_types::SandboxId;
use handler_types::guest::{Exit, ProcessInfo};
use handler_types::observe::{LogLevel, LogSource};
use handler_types::sandbox::{SandboxState, SandboxView};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

/// Longest argv written down, characters.
const LONGEST_ARGV: usize = 1000;
/// A guest that is not to be had yet is asked for again after so long.
const AGAIN: Duration = Duration::from_millis(100);
/// Times it is asked for.
const TRIES: u32 = 50;

/// What is known of a sandbox.
struct Seen {
    state: SandboxState,
    warnings: Vec<String>,
    /// When its making began.
    making: Option<Instant>,
    commands: Option<JoinHandle<()>>,
}

impl Drop for Seen {
    fn drop(&mut self) {
        if let Some(commands) = &self.commands {
            commands.abort();
        }
    }
}

/// Starts following.
pub(super) fn start(app: &Arc<App>) {
    let mut changes = app.engine.subscribe();
    let app = app.clone();
    handler_base::tasks::spawn_named("sandbox log", async move {
        let mut watch = Watch {
            app: app.clone(),
            seen: HashMap::new(),
            digest: EgressDigest::default(),
        };
        for view in app.engine.list() {
            watch.found(view);
        }
        let mut egress = app.observe.egress.subscribe(0);
        loop {
            tokio::select! {
                () = app.shutdown.cancelled() => return,
                change = changes.recv() => match change {
                    Ok(SandboxChange::Changed(view)) => watch.changed(*view),
                    Ok(SandboxChange::Removed(id)) => watch.removed(&id).await,
                    Err(RecvError::Lagged(_)) => watch.look_again().await,
                    Err(RecvError::Closed) => return,
                },
                Some(event) = egress.recv() => watch.decided(&event).await,
            }
        }
    });
}

struct Watch {
    app: Arc<App>,
    seen: HashMap<SandboxId, Seen>,
    digest: EgressDigest,
}

impl Watch {
    fn note(&self, id: &SandboxId, level: LogLevel, message: String) {
        let note = Note::new(id, LogSource::Lifecycle, level, message);
        self.app.observe.logs.note(note);
    }

    /// One that an earlier daemon made.
    fn found(&mut self, view: SandboxView) {
        if view.state == SandboxState::Running {
            let message = "taken up by a new daemon".to_owned();
            self.note(&view.id, LogLevel::Info, message);
        }
        let seen = Seen {
            state: view.state,
            warnings: view.warnings.clone(),
            making: None,
            commands: None,
        };
        let (id, runs) = (view.id, view.state == SandboxState::Running);
        self.seen.insert(id.clone(), seen);
        if runs {
            self.runs(&id);
        }
    }

    fn changed(&mut self, view: SandboxView) {
        let id = view.id.clone();
        let is_new = !self.seen.contains_key(&id);
        let seen = self.seen.entry(id.clone()).or_insert_with(|| Seen {
            state: view.state,
            warnings: Vec::new(),
            making: (view.state == SandboxState::Creating).then(Instant::now),
            commands: None,
        });
        let new_warnings: Vec<String> = view
            .warnings
            .iter()
            .filter(|warning| !seen.warnings.contains(warning))
            .cloned()
            .collect();
        seen.warnings = view.warnings.clone();
        let before = std::mem::replace(&mut seen.state, view.state);
        let made = if view.state == SandboxState::Running {
            seen.making.take()
        } else {
            None
        };
        if is_new || before != view.state {
            let (level, message) = step(&view);
            self.note(&id, level, message);
            self.entered(&id, view.state, made);
        }
        for warning in new_warnings {
            self.note(&id, LogLevel::Warning, warning);
        }
    }

    /// It is in another state now.
    fn entered(&mut self, id: &SandboxId, state: SandboxState, made: Option<Instant>) {
        if let Some(began) = made {
            self.app.observe.counters.created(true, began.elapsed());
        }
        match state {
            SandboxState::Running => self.runs(id),
            // Frozen: what is known of it stays.
            SandboxState::Pausing | SandboxState::Paused | SandboxState::Resuming => {}
            _ => {
                if let Some(seen) = self.seen.get_mut(id)
                    && let Some(commands) = seen.commands.take()
                {
                    commands.abort();
                }
                self.app.observe.activities.rests(&self.app, id);
                let (app, id) = (self.app.clone(), id.clone());
                handler_base::tasks::spawn_named("guest log", async move {
                    log::guest::take_in(&app, &id).await;
                });
            }
        }
    }

    fn runs(&mut self, id: &SandboxId) {
        self.app.observe.samples.wake();
        let Some(seen) = self.seen.get_mut(id) else {
            return;
        };
        if seen
            .commands
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let follow = commands(self.app.clone(), id.clone());
        seen.commands = Some(handler_base::tasks::spawn_named("sandbox commands", follow));
    }

    async fn removed(&mut self, id: &SandboxId) {
        if let Some(seen) = self.seen.remove(id)
            && seen.making.is_some()
        {
            self.app.observe.counters.created(false, Duration::ZERO);
        }
        self.digest.forget(id.as_str());
        let observe = &self.app.observe;
        observe.logs.forget(id).await;
        observe.samples.forget(id);
        observe.agents.forget(id);
        observe.activities.forget(id);
    }

    /// Changes were missed: what is there now counts.
    async fn look_again(&mut self) {
        let views = self.app.engine.list();
        let gone: Vec<SandboxId> = self
            .seen
            .keys()
            .filter(|id| !views.iter().any(|view| view.id == **id))
            .cloned()
            .collect();
        for id in gone {
            self.removed(&id).await;
        }
        for view in views {
            self.changed(view);
        }
    }

    async fn decided(&mut self, event: &handler_types::egress::EgressEvent) {
        let Ok(id) = event.sandbox.parse::<SandboxId>() else {
            return;
        };
        if !self.seen.contains_key(&id) {
            return;
        }
        if !self.digest.knows(&event.sandbox) {
            let told_until = self.app.observe.logs.last_egress(&id).await;
            self.digest.begin(&event.sandbox, told_until);
        }
        // The filter tells a new daemon what it still keeps; that was counted by the one before.
        if event.t >= self.app.observe.began_ms {
            self.app.observe.counters.decided(event.decision);
        }
        if let Some(note) = self.digest.line(&id, event) {
            self.app.observe.logs.note(note);
        }
    }
}

/// A step of its life in words.
fn step(view: &SandboxView) -> (LogLevel, String) {
    let word = host::word(view.state);
    match (&view.error, view.state) {
        (Some(error), _) => (LogLevel::Error, format!("{word}: {error}")),
        (None, SandboxState::Failed) => (LogLevel::Error, word.to_owned()),
        (None, _) => (LogLevel::Info, word.to_owned()),
    }
}

/// Follows the commands of one sandbox until it stops.
async fn commands(app: Arc<App>, id: SandboxId) {
    let Some(guest) = guest(&app, &id).await else {
        return;
    };
    let (early, mut happenings) = guest.happenings();
    let mut seen = Processes::default();
    for happening in early {
        seen.take(&app, &id, happening);
    }
    catch_up(&app, &id, &guest, &mut seen).await;
    loop {
        match happenings.recv().await {
            Ok(happening) => seen.take(&app, &id, happening),
            Err(RecvError::Lagged(_)) => catch_up(&app, &id, &guest, &mut seen).await,
            Err(RecvError::Closed) => return,
        }
    }
}

async fn guest(app: &App, id: &SandboxId) -> Option<GuestHandle> {
    for _ in 0..TRIES {
        if let Ok(guest) = app.engine.guest(id) {
            return Some(guest);
        }
        tokio::time::sleep(AGAIN).await;
    }
    None
}

/// What ended while nobody listened, and what was found running.
async fn catch_up(app: &Arc<App>, id: &SandboxId, guest: &GuestHandle, seen: &mut Processes) {
    let open = app.observe.logs.open_processes(id).await;
    for process in open {
        seen.running.entry(process).or_insert(false);
    }
    let Ok(all) = guest.processes().await else {
        return;
    };
    for info in &all {
        match info.exit {
            Some(exit) if seen.running.contains_key(&info.process) => {
                seen.ended(app, id, info.process, exit);
            }
            None if info.tty.is_some() => {
                seen.running.insert(info.process, true);
            }
            _ => {}
        }
    }
}

/// Processes whose start was written down and whose end was not; whether they are on a terminal.
#[derive(Default)]
struct Processes {
    running: HashMap<u32, bool>,
    /// Ends that came before their starts: a short command's end is read from the link while whoever started it
    /// has not told so yet.
    early: BTreeMap<u32, Exit>,
}

/// Processes remembered of one sandbox.
const MOST_PROCESSES: usize = 4096;
/// Ends kept for starts still to come; beyond, the oldest process's is dropped.
const MOST_EARLY: usize = 256;

impl Processes {
    fn take(&mut self, app: &App, id: &SandboxId, happening: ProcessHappening) {
        match happening {
            ProcessHappening::Started(info) => self.started(app, id, &info),
            ProcessHappening::Ended(process, exit) => self.ended(app, id, process, exit),
        }
    }

    fn started(&mut self, app: &App, id: &SandboxId, info: &ProcessInfo) {
        let on_terminal = info.tty.is_some();
        let end = self.early.remove(&info.process);
        if info.key.starts_with(super::agents::OWN_KEY)
            || self.running.len() >= MOST_PROCESSES
            || self.running.insert(info.process, on_terminal).is_some()
        {
            return;
        }
        app.observe.counters.started(on_terminal);
        let (source, what) = kind(on_terminal);
        let message = format!("{what} {} started: {}", info.process, shown(&info.argv));
        let mut note = Note::new(id, source, LogLevel::Info, message);
        note.process = Some(Ok(info.process));
        app.observe.logs.note(note);
        if let Some(exit) = end {
            self.ended(app, id, info.process, exit);
        }
    }

    fn ended(&mut self, app: &App, id: &SandboxId, process: u32, exit: Exit) {
        let Some(on_terminal) = self.running.remove(&process) else {
            self.early.insert(process, exit);
            if self.early.len() > MOST_EARLY {
                self.early.pop_first();
            }
            return;
        };
        let (source, what) = kind(on_terminal);
        let how = match (exit.timed_out, exit.signal) {
            (true, _) => "its time ran out".to_owned(),
            (false, Some(signal)) => format!("signal {signal}"),
            (false, None) => format!("code {}", exit.code),
        };
        let message = format!("{what} {process} ended: {how}");
        let mut note = Note::new(id, source, LogLevel::Info, message);
        note.process = Some(Err(process));
        app.observe.logs.note(note);
    }
}

fn kind(on_terminal: bool) -> (LogSource, &'static str) {
    if on_terminal {
        (LogSource::Terminal, "terminal")
    } else {
        (LogSource::Command, "command")
    }
}

/// Arguments as one would type them, bounded.
fn shown(argv: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let words = argv.iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    let text = words.collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST_ARGV) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_as_they_are_typed_and_bounded() {
        let argv = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shown(&argv(&["sh", "-c", "echo it's"])),
            r"sh -c 'echo it'\''s'"
        );
        let long = shown(&argv(&["x", &"y".repeat(5000)]));
        assert!(long.chars().count() <= LONGEST_ARGV + 2);
    }
}
