//! The owner task of one sandbox: the only one that changes it.
//!
//! Takes commands one after the other, drives the state machine, performs its effects in order, and
//! publishes what came of it. Starts that arrive during a start share its outcome. It is made for an order and
//! leaves when its sandbox rests: one that does nothing costs no task.

pub(super) use super::command::Command;
use super::command::Reply;
use super::gate::Pass;
use super::shared::{Rest, SandboxChange, Shared};
use super::timers::Due;
use crate::error::EngineError;
use crate::filter::FilterError;
use crate::guest::GuestHandle;
use crate::lifecycle::{Event, Phase, Refused, State, step};
use crate::rows::SandboxRow;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use handler_types::SandboxId;
use handler_types::sandbox::{SandboxState, SandboxView};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Longest pause between two removals.
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// The state of one owner task.
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SandboxId,
    pub(super) row: SandboxRow,
    pub(super) state: State,
    /// Removals that were given up so far.
    attempts: u32,
    pub(super) guest: Option<GuestHandle>,
    /// Certificate of the sandbox's authority since its instance started.
    pub(super) ca_pem: Option<String>,
    /// Why it is being taken down, or could not be.
    pub(super) cause: Option<EngineError>,
    /// The running instance is taken over from an earlier daemon.
    pub(super) is_adopting: bool,
    /// When the filter gets the settings again.
    pub(super) refresh: Option<Instant>,
    pub(super) ended: Option<BoxFuture<'static, String>>,
    published: Arc<SandboxRow>,
    commands: mpsc::Receiver<Command>,
    backlog: VecDeque<Command>,
}

enum Input {
    Command(Command),
    Ended(String),
    Stop,
}

impl Owner {
    pub(super) fn new(
        shared: Arc<Shared>,
        row: Arc<SandboxRow>,
        rest: Rest,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        Self {
            id: row.id.clone(),
            row: (*row).clone(),
            published: row,
            shared,
            state: rest.state,
            attempts: rest.attempts,
            guest: None,
            ca_pem: None,
            cause: None,
            is_adopting: false,
            refresh: None,
            ended: None,
            commands,
            backlog: VecDeque::new(),
        }
    }

    /// Runs until the sandbox rests or is gone, or the engine ends.
    pub(super) async fn run(mut self) {
        while self.state.phase != Phase::Gone {
            match self.input().await {
                Input::Command(command) => self.take(command).await,
                Input::Ended(reason) => {
                    self.row.error = Some(reason);
                    self.drive(Event::InstanceEnded).await.ok();
                }
                Input::Stop => break,
            }
            if self.backlog.is_empty() && self.state.is_at_rest() && self.leave_seat() {
                return;
            }
        }
        if let Some(guest) = &self.guest {
            guest.close("the daemon is shutting down");
        }
        self.say_goodbye();
    }

    async fn take(&mut self, command: Command) {
        match command {
            Command::Step { event, reply, pass } => {
                self.command(event, reply, pass).await;
            }
            Command::Wake { reply, pass } => {
                let result = self.wake().await;
                drop(pass);
                self.answer(Some(reply), result);
            }
            Command::Idle => self.idle().await,
            Command::Update(update, reply) => {
                let result = self.update(*update).await;
                self.answer(Some(reply), result);
            }
            Command::SetNetwork(policy, reply) => {
                let result = self.set_network(policy).await;
                self.answer(Some(reply), result);
            }
            Command::RefreshFilter => self.refresh_filter().await,
            Command::RenewFilter(reply) => {
                let result = self.renew_filter().await;
                self.answer(Some(reply), result);
            }
        }
    }

    fn leave_seat(&self) -> bool {
        let rest = Rest {
            state: self.state,
            attempts: self.attempts,
        };
        self.shared.leave_seat(&self.id, &self.commands, rest)
    }

    /// Nobody may wait for an answer that never comes.
    fn say_goodbye(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.backlog.push_back(command);
        }
        let is_gone = self.state.phase == Phase::Gone;
        for command in std::mem::take(&mut self.backlog) {
            command.dismiss(|is_delete| match (is_gone, is_delete) {
                (true, true) => Ok(self.row.view()),
                (true, false) => Err(EngineError::NotFound(self.id.to_string())),
                (false, _) => Err(EngineError::ShuttingDown),
            });
        }
    }

    async fn input(&mut self) -> Input {
        if let Some(command) = self.backlog.pop_front() {
            return Input::Command(command);
        }
        let refresh = self.refresh;
        let refreshed = async {
            match refresh {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let ended = self.ended.as_mut();
        let ended = async {
            match ended {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Input::Stop,
            reason = ended => { self.ended = None; Input::Ended(reason) }
            command = self.commands.recv() => command.map_or(Input::Stop, Input::Command),
            () = refreshed => { self.refresh = None; Input::Command(Command::RefreshFilter) }
        }
    }

    async fn command(&mut self, event: Event, reply: Option<Reply>, pass: Option<Pass>) {
        // What a person orders is no idleness any more.
        if event.is_order() {
            self.row.idled = false;
        }
        let result = self.admitted(event).await;
        // Who is answered may look at once at how many are being started.
        drop(pass);
        let is_start = matches!(event, Event::Start | Event::Restart | Event::Create);
        if is_start {
            // Those who asked for the same meanwhile waited for this one.
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Step {
                        event: Event::Start,
                        reply: waiting,
                        pass,
                    } if self.backlog.is_empty() => {
                        drop(pass);
                        let shared = result
                            .as_ref()
                            .map(Clone::clone)
                            .map_err(EngineError::share);
                        self.answer(waiting, shared);
                    }
                    other => self.backlog.push_back(other),
                }
            }
        }
        self.answer(reply, result);
    }

    /// Drives, when the host takes it on.
    pub(super) async fn admitted(&mut self, event: Event) -> Result<SandboxView, EngineError> {
        if self.row.is_broken && event != Event::Delete && !matches!(event, Event::Recover(_)) {
            return Err(self
                .wrong_state("its entry in the database cannot be read; it can only be removed"));
        }
        if matches!(event, Event::Start | Event::Restart) && !self.state.is_up() {
            self.shared.admit_start(&self.row)?;
        }
        self.drive(event).await
    }

    fn answer(&self, reply: Option<Reply>, result: Result<SandboxView, EngineError>) {
        if let Some(reply) = reply {
            // The one who asked may have gone meanwhile.
            reply.send(result).ok();
        }
    }

    /// Drives the state machine until it comes to rest.
    pub(super) async fn drive(&mut self, event: Event) -> Result<SandboxView, EngineError> {
        self.cause = None;
        self.is_adopting = event.is_adoption();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let before = self.state;
            let (state, effects) = step(before, event).map_err(|why| self.refused(why))?;
            self.state = state;
            self.publish();
            for effect in effects {
                let outcome = self.perform(effect).await;
                events.push_back(outcome);
            }
        }
        self.publish();
        if self.state.phase == Phase::Gone {
            // Before anyone is answered: its name is free from then on.
            self.shared.gone(&self.id);
        }
        self.settle(event)
    }

    fn refused(&mut self, why: Refused) -> EngineError {
        // An admitted start may have been refused: its place is free again.
        self.publish();
        match why {
            Refused::Gone => EngineError::NotFound(self.id.to_string()),
            Refused::Busy | Refused::NotNow | Refused::Doomed => {
                let needed = match (why, self.state.phase) {
                    (Refused::NotNow, Phase::Stopped | Phase::Failed) => {
                        "start it first".to_owned()
                    }
                    _ => why.to_string(),
                };
                self.wrong_state(&needed)
            }
        }
    }

    pub(super) fn wrong_state(&self, needed: &str) -> EngineError {
        EngineError::WrongState {
            sandbox: self.id.to_string(),
            state: word(self.state.shown()).to_owned(),
            needed: needed.to_owned(),
        }
    }

    /// What is to happen at rest, and what the command came to.
    fn settle(&mut self, event: Event) -> Result<SandboxView, EngineError> {
        self.is_adopting = false;
        let cause = self.cause.take();
        self.set_timers();
        match self.state.phase {
            Phase::Running | Phase::Paused => {
                self.attempts = 0;
                self.watch_instance();
                match cause {
                    // Frozen or thawed it was not.
                    Some(cause) if matches!(event, Event::Pause | Event::Resume | Event::Start) => {
                        Err(cause)
                    }
                    _ => Ok(self.row.view()),
                }
            }
            Phase::Gone if event == Event::Create => {
                Err(cause.unwrap_or_else(|| EngineError::NotFound(self.id.to_string())))
            }
            Phase::Failed if self.state.doomed || self.state.held.runs() => match (event, cause) {
                (Event::Create, Some(cause)) => Err(cause),
                (_, cause) => Err(EngineError::Leftover {
                    sandbox: self.id.to_string(),
                    message: cause.map_or_else(|| "unknown".to_owned(), |c| c.detail()),
                }),
            },
            _ => match cause {
                Some(cause) if matches!(event, Event::Start | Event::Restart | Event::Resume) => {
                    Err(cause)
                }
                _ => Ok(self.row.view()),
            },
        }
    }

    /// What is left over is removed again later, each time after a longer while; who runs may become idle.
    fn set_timers(&mut self) {
        let timers = &self.shared.timers;
        if self.state.phase == Phase::Gone {
            return;
        }
        let is_left =
            self.state.phase == Phase::Failed && (self.state.doomed || self.state.held.runs());
        let factor = 2u32.saturating_pow(self.attempts);
        let pause = self.shared.config.timing.retry.saturating_mul(factor);
        let again = Some(Instant::now() + pause.min(LONGEST_RETRY));
        let (remove, clear) = match (is_left, self.state.doomed) {
            (true, true) => (again, None),
            (true, false) => (None, again),
            (false, _) => (None, None),
        };
        self.attempts = if is_left {
            self.attempts.saturating_add(1)
        } else {
            0
        };
        timers.set(&self.id, Due::Remove, remove);
        timers.set(&self.id, Due::Clear, clear);
        self.set_idle_timer();
    }

    /// From now on it is looked at whether somebody uses it.
    pub(super) fn set_idle_timer(&self) {
        let is_running = self.state.phase == Phase::Running;
        let policy = self.row.spec.idle.filter(|_| is_running);
        let at =
            policy.map(|policy| Instant::now() + Duration::from_secs(policy.after_seconds.max(1)));
        self.shared.timers.set(&self.id, Due::Idle, at);
    }

    /// Ends the watch of an instance and starts that of the present one.
    fn watch_instance(&mut self) {
        let Some(instance) = self.row.instance.clone() else {
            return;
        };
        let Ok(driver) = self.shared.config.driver(&self.row.spec.backend) else {
            return;
        };
        let (id, guest) = (self.id.clone(), self.guest.clone());
        // A frozen one taken over has no link yet.
        let closed = async move {
            match guest {
                Some(guest) => guest.closed().await,
                None => std::future::pending().await,
            }
        };
        self.ended = Some(
            async move {
                tokio::select! {
                    () = driver.wait(&id, &instance) => "it ended by itself".to_owned(),
                    reason = closed => format!("its guest cannot be spoken to any more: {reason}"),
                }
            }
            .boxed(),
        );
    }

    /// Publishes the row, when something shown of it changed.
    pub(super) fn publish(&mut self) {
        self.row.state = self.state.shown();
        self.row.remains = self.state.remains();
        if self.state.phase == Phase::Absent || self.state.phase == Phase::Gone {
            return;
        }
        let is_shown = *self.published != self.row && self.published.view() != self.row.view();
        if is_shown {
            self.row.updated_ms = handler_base::clock::now_ms().max(self.row.updated_ms);
        }
        if *self.published != self.row {
            self.published = Arc::new(self.row.clone());
        }
        let (row, is_up) = (self.published.clone(), self.state.is_up());
        let view = self.shared.with(&self.id, |entry| {
            entry.row = row;
            entry.is_up = is_up;
            is_shown.then(|| entry.view())
        });
        if let Ok(Some(view)) = view {
            // Nobody may be listening.
            self.shared
                .changes
                .send(SandboxChange::Changed(Box::new(view)))
                .ok();
        }
    }
}

/// A call to the filter that did not end.
pub(super) fn filter_silent(limit: Duration) -> EngineError {
    FilterError(format!("it did not answer within {limit:?}")).into()
}

/// The state's word.
pub(super) fn word(state: SandboxState) -> &'static str {
    match state {
        SandboxState::Creating => "creating",
        SandboxState::Starting => "starting",
        SandboxState::Running => "running",
        SandboxState::Pausing => "pausing",
        SandboxState::Paused => "paused",
        SandboxState::Resuming => "resuming",
        SandboxState::Stopping => "stopping",
        SandboxState::Stopped => "stopped",
        SandboxState::Failed => "failed",
        SandboxState::Deleting => "deleting",
    }
}
