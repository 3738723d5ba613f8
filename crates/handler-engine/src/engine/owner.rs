//! The owner task of one sandbox: the only one that changes it.
//!
//! Takes commands one after the other, drives the state machine, performs its effects in order, and
//! publishes what came of it. Starts that arrive during a start share its outcome.

use super::shared::{SandboxChange, Shared};
use crate::error::EngineError;
use crate::filter::FilterError;
use crate::guest::GuestHandle;
use crate::lifecycle::{Event, Phase, Refused, State, step};
use crate::rows::SandboxRow;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use handler_types::SandboxId;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{SandboxState, SandboxView};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Where the outcome of a command goes.
pub(super) type Reply = oneshot::Sender<Result<SandboxView, EngineError>>;

/// What can be asked of an owner.
#[derive(Debug)]
pub(super) enum Command {
    /// One of the state machine's commands.
    Step(Event, Reply),
    /// Another network policy.
    SetNetwork(NetworkPolicy, Reply),
    /// A new filter process knows nothing of this sandbox: put its settings again.
    RefreshFilter,
}

/// What an owner does by itself after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// The filter gets the settings again.
    RefreshFilter,
    /// What was left over is removed again.
    Again(Event),
}

/// The state of one owner task.
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SandboxId,
    pub(super) row: SandboxRow,
    pub(super) state: State,
    pub(super) guest: Option<GuestHandle>,
    /// Certificate of the sandbox's authority since its instance started.
    pub(super) ca_pem: Option<String>,
    /// Why it is being taken down, or could not be.
    pub(super) cause: Option<EngineError>,
    /// The running instance is taken over from an earlier daemon.
    pub(super) is_adopting: bool,
    pub(super) wake: Option<(Instant, Wake)>,
    pub(super) ended: Option<BoxFuture<'static, String>>,
    pub(super) published: watch::Sender<Arc<SandboxRow>>,
    pub(super) guest_published: watch::Sender<Option<GuestHandle>>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) backlog: VecDeque<Command>,
}

enum Input {
    Command(Command),
    Ended(String),
    Wake(Wake),
    Stop,
}

impl Owner {
    /// Runs until the sandbox is gone or the engine ends.
    pub(super) async fn run(mut self) {
        while self.state.phase != Phase::Gone {
            match self.input().await {
                Input::Command(Command::Step(event, reply)) => self.command(event, reply).await,
                Input::Command(Command::SetNetwork(policy, reply)) => {
                    let result = self.set_network(policy).await;
                    self.answer(reply, result);
                }
                Input::Command(Command::RefreshFilter) | Input::Wake(Wake::RefreshFilter) => {
                    self.refresh_filter().await;
                }
                Input::Ended(reason) => {
                    self.row.error = Some(reason);
                    self.drive(Event::InstanceEnded).await.ok();
                }
                Input::Wake(Wake::Again(event)) => {
                    self.drive(event).await.ok();
                }
                Input::Stop => break,
            }
        }
        if let Some(guest) = &self.guest {
            guest.close("the daemon is shutting down");
        }
        self.leave();
    }

    /// Says goodbye: nobody may wait for an answer that never comes.
    fn leave(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.backlog.push_back(command);
        }
        let is_gone = self.state.phase == Phase::Gone;
        for command in std::mem::take(&mut self.backlog) {
            let (reply, is_delete) = match command {
                Command::Step(event, reply) => (reply, event == Event::Delete),
                Command::SetNetwork(_, reply) => (reply, false),
                Command::RefreshFilter => continue,
            };
            let result = match (is_gone, is_delete) {
                (true, true) => Ok(self.row.view()),
                (true, false) => Err(EngineError::NotFound(self.id.to_string())),
                (false, _) => Err(EngineError::ShuttingDown),
            };
            self.answer(reply, result);
        }
    }

    async fn input(&mut self) -> Input {
        if let Some(command) = self.backlog.pop_front() {
            return Input::Command(command);
        }
        let wake = self.wake;
        let woken = async {
            match wake {
                Some((at, what)) => {
                    tokio::time::sleep_until(at).await;
                    what
                }
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
            what = woken => { self.wake = None; Input::Wake(what) }
        }
    }

    async fn command(&mut self, event: Event, reply: Reply) {
        let result = self.drive(event).await;
        let is_start = matches!(event, Event::Start | Event::Restart | Event::Create);
        if is_start {
            // Those who asked for the same meanwhile waited for this one.
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Step(Event::Start, waiting) if self.backlog.is_empty() => {
                        let shared = result
                            .as_ref()
                            .map(Clone::clone)
                            .map_err(EngineError::share);
                        waiting.send(shared).ok();
                    }
                    other => self.backlog.push_back(other),
                }
            }
        }
        self.answer(reply, result);
    }

    fn answer(&self, reply: Reply, result: Result<SandboxView, EngineError>) {
        // The one who asked may have gone meanwhile.
        reply.send(result).ok();
    }

    /// Drives the state machine until it comes to rest.
    pub(super) async fn drive(&mut self, event: Event) -> Result<SandboxView, EngineError> {
        self.cause = None;
        self.wake = self.wake.take_if(|(_, what)| *what == Wake::RefreshFilter);
        self.is_adopting = event == Event::Adopt;
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

    fn refused(&self, why: Refused) -> EngineError {
        match why {
            Refused::Gone => EngineError::NotFound(self.id.to_string()),
            Refused::Busy | Refused::NotNow | Refused::Doomed => EngineError::WrongState {
                sandbox: self.id.to_string(),
                state: word(self.state.shown()).to_owned(),
                needed: why.to_string(),
            },
        }
    }

    /// What is to happen at rest, and what the command came to.
    fn settle(&mut self, event: Event) -> Result<SandboxView, EngineError> {
        self.is_adopting = false;
        let cause = self.cause.take();
        match self.state.phase {
            Phase::Running => {
                self.watch_instance();
                Ok(self.row.view())
            }
            Phase::Gone if event == Event::Create => {
                Err(cause.unwrap_or_else(|| EngineError::NotFound(self.id.to_string())))
            }
            Phase::Failed if self.state.doomed || self.state.held.runs() => {
                let again = if self.state.doomed {
                    Event::Delete
                } else {
                    Event::Stop
                };
                let at = Instant::now() + self.shared.config.timing.retry;
                self.wake = Some((at, Wake::Again(again)));
                match (event, cause) {
                    (Event::Create, Some(cause)) => Err(cause),
                    (_, cause) => Err(EngineError::Leftover {
                        sandbox: self.id.to_string(),
                        message: cause.map_or_else(|| "unknown".to_owned(), |c| c.detail()),
                    }),
                }
            }
            _ => match cause {
                Some(cause) if matches!(event, Event::Start | Event::Restart) => Err(cause),
                _ => Ok(self.row.view()),
            },
        }
    }

    /// Ends the watch of an instance and starts that of the present one.
    fn watch_instance(&mut self) {
        let (Some(guest), Some(instance)) = (self.guest.clone(), self.row.instance.clone()) else {
            return;
        };
        let Ok(driver) = self.shared.config.driver(&self.row.spec.backend) else {
            return;
        };
        let id = self.id.clone();
        self.ended = Some(
            async move {
                tokio::select! {
                    () = driver.wait(&id, &instance) => "it ended by itself".to_owned(),
                    reason = guest.closed() => format!("its guest cannot be spoken to any more: {reason}"),
                }
            }
            .boxed(),
        );
    }

    /// Publishes the row, when something shown of it changed.
    pub(super) fn publish(&mut self) {
        self.row.state = self.state.shown();
        if self.state.phase == Phase::Absent || self.state.phase == Phase::Gone {
            return;
        }
        let before = self.published.borrow().clone();
        if *before == self.row {
            return;
        }
        let is_shown = before.view() != self.row.view();
        if is_shown {
            self.row.updated_ms = handler_base::clock::now_ms().max(self.row.updated_ms);
        }
        self.published.send_replace(Arc::new(self.row.clone()));
        if is_shown {
            let change = SandboxChange::Changed(Box::new(self.row.view()));
            // Nobody may be listening.
            self.shared.changes.send(change).ok();
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
