//! The engine: the one door to sandboxes. Each has an [`owner`] task; this is the registry in front of them.

mod config;
mod effects;
mod network;
mod owner;
mod reconcile;
mod shared;
mod usage;

pub use config::{EffectProbe, EngineConfig, EngineTiming};
pub use shared::SandboxChange;
pub use usage::UseGuard;

use crate::error::EngineError;
use crate::guest::GuestHandle;
use crate::lifecycle::{Event, State};
use crate::rows::SandboxRow;
use handler_types::SandboxId;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{SandboxSpec, SandboxState, SandboxView};
use owner::{Command, Owner};
use shared::{Entry, Shared};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// Commands that may wait for one owner.
const WAITING: usize = 64;
/// Changes kept for a subscriber that is slow; one further behind is told how many it missed.
const CHANGES: usize = 1024;

/// What to make.
#[derive(Debug, Clone)]
pub struct CreateArgs {
    /// The sandbox. Phantoms are in its environment already; their values are resolved from `phantoms`.
    pub spec: SandboxSpec,
    /// Free text shown in the filter's events (the session id).
    pub label: String,
}

/// Owns all sandboxes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// Starts the engine: what an earlier one left is adopted, finished, undone or removed first.
    ///
    /// # Errors
    /// [`EngineError`] when rows or folders cannot be read.
    pub async fn start(config: EngineConfig) -> Result<Self, EngineError> {
        let (changes, _) = broadcast::channel(CHANGES);
        let engine = Self {
            shared: Arc::new(Shared::new(config, changes)),
        };
        let mut generation = engine.shared.config.egress.generation();
        generation.mark_unchanged();
        reconcile::reconcile(&engine).await?;
        engine.follow_filter(generation);
        Ok(engine)
    }

    /// Puts all settings again whenever a new filter process took over.
    fn follow_filter(&self, mut generation: watch::Receiver<u64>) {
        let shared = self.shared.clone();
        let stop = shared.stop.clone();
        self.shared.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = shared.kill.cancelled() => return,
                    changed = generation.changed() => if changed.is_err() { return },
                }
                for entry in shared.entries() {
                    entry.commands.send(Command::RefreshFilter).await.ok();
                }
            }
        });
    }

    /// Makes and starts a sandbox. When it fails, nothing is left of it.
    ///
    /// # Errors
    /// [`EngineError`]: a wrong name, a name that is taken, a spec the backend cannot enforce, a host that cannot
    /// run it, a secret without a value, a backend that failed.
    pub async fn create(&self, args: CreateArgs) -> Result<SandboxView, EngineError> {
        let CreateArgs { spec, label } = args;
        if let Some(name) = &spec.name {
            check_name(name)?;
            if self.shared.rows().iter().any(|row| row.name() == name) {
                return Err(EngineError::NameTaken(name.clone()));
            }
        }
        self.shared.config.driver(&spec.backend)?.accept(&spec)?;
        if self.shared.stop.is_cancelled() {
            return Err(EngineError::ShuttingDown);
        }
        let now = handler_base::clock::now_ms();
        let state = State::absent(spec.network.needs_egress());
        let row = SandboxRow {
            id: SandboxId::from_random(handler_base::random::bytes()),
            spec,
            label,
            state: SandboxState::Creating,
            intent: None,
            error: None,
            instance: None,
            created_ms: now,
            updated_ms: now,
        };
        let is_making = SandboxChange::Changed(Box::new(row.view()));
        let commands = self.adopt_entry(row, state);
        // Nobody may be listening.
        self.shared.changes.send(is_making).ok();
        // Sent at once, so that giving up here cannot leave an owner without its command.
        let (reply, outcome) = oneshot::channel();
        commands
            .try_send(Command::Step(Event::Create, reply))
            .map_err(|_| EngineError::ShuttingDown)?;
        outcome.await.map_err(|_| EngineError::ShuttingDown)?
    }

    /// Gives a sandbox an owner task.
    fn adopt_entry(&self, row: SandboxRow, state: State) -> mpsc::Sender<Command> {
        let (commands, inbox) = mpsc::channel(WAITING);
        let (published, row_seen) = watch::channel(Arc::new(row.clone()));
        let (guest_published, guest) = watch::channel(None);
        let id = row.id.clone();
        let owner = Owner {
            shared: self.shared.clone(),
            id: id.clone(),
            row,
            state,
            guest: None,
            ca_pem: None,
            cause: None,
            is_adopting: false,
            wake: None,
            ended: None,
            published,
            guest_published,
            commands: inbox,
            backlog: VecDeque::new(),
        };
        let entry = Entry {
            commands: commands.clone(),
            row: row_seen,
            guest,
            usage: usage::Usage::new(),
        };
        self.shared.add(id, entry);
        let kill = self.shared.kill.clone();
        let owned = self.shared.tasks.track_future(async move {
            tokio::select! {
                biased;
                () = kill.cancelled() => {}
                () = owner.run() => {}
            }
        });
        handler_base::tasks::spawn_named("sandbox owner", owned);
        commands
    }

    async fn step(&self, id: &SandboxId, event: Event) -> Result<SandboxView, EngineError> {
        let entry = self.shared.entry(id)?;
        let result = ask(&entry.commands, |reply| Command::Step(event, reply)).await;
        // An owner that went between the look-up and the command went with its sandbox.
        match result {
            Err(EngineError::ShuttingDown) if !self.shared.stop.is_cancelled() => {
                Err(EngineError::NotFound(id.to_string()))
            }
            other => other,
        }
    }

    /// Starts a stopped sandbox. Starts at the same time are one.
    ///
    /// # Errors
    /// [`EngineError`]; it is then `failed` and keeps its home.
    pub async fn start_sandbox(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        self.step(id, Event::Start).await
    }

    /// Stops a sandbox: everything in it is killed, its home is kept.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn stop(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        self.step(id, Event::Stop).await
    }

    /// Stops and starts a sandbox.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn restart(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        self.step(id, Event::Restart).await
    }

    /// Removes a sandbox with everything of it. Done also when it does not exist.
    ///
    /// # Errors
    /// [`EngineError::Leftover`] when something could not be removed; it is tried again later.
    pub async fn delete(&self, id: &SandboxId) -> Result<(), EngineError> {
        match self.step(id, Event::Delete).await {
            Ok(_) | Err(EngineError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Changes what a sandbox may reach; live while it runs.
    ///
    /// # Errors
    /// [`EngineError::NetworkSwitch`] when it runs and `none` would be left or entered.
    pub async fn set_network(
        &self,
        id: &SandboxId,
        policy: NetworkPolicy,
    ) -> Result<SandboxView, EngineError> {
        let entry = self.shared.entry(id)?;
        ask(&entry.commands, |reply| Command::SetNetwork(policy, reply)).await
    }

    /// The drivers, for what they say of this host.
    #[must_use]
    pub fn drivers(&self) -> &[Arc<dyn crate::driver::Driver>] {
        &self.shared.config.drivers
    }

    /// All sandboxes, newest first.
    #[must_use]
    pub fn list(&self) -> Vec<SandboxView> {
        self.page(None, usize::MAX).0
    }

    /// A page, newest first: what follows the sandbox `after` (made at `after.0`, in milliseconds), and whether more follow.
    #[must_use]
    pub fn page(&self, after: Option<(i64, &SandboxId)>, limit: usize) -> (Vec<SandboxView>, bool) {
        let mut rows = self.shared.rows();
        if let Some((created_ms, id)) = after {
            rows.retain(|row| (row.created_ms, &row.id) < (created_ms, id));
        }
        rows.sort_unstable_by(|a, b| (b.created_ms, &b.id).cmp(&(a.created_ms, &a.id)));
        let more = rows.len() > limit;
        let views = rows.iter().take(limit).map(|row| row.view()).collect();
        (views, more)
    }

    /// One sandbox.
    ///
    /// # Errors
    /// [`EngineError::NotFound`].
    pub fn get(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        Ok(self.shared.entry(id)?.row.borrow().view())
    }

    /// What was asked for when a sandbox was made, with later changes.
    ///
    /// # Errors
    /// [`EngineError::NotFound`].
    pub fn spec(&self, id: &SandboxId) -> Result<SandboxSpec, EngineError> {
        Ok(self.shared.entry(id)?.row.borrow().spec.clone())
    }

    /// Finds a sandbox by its id, its name or an unambiguous beginning of its id.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], [`EngineError::Ambiguous`].
    pub fn find(&self, text: &str) -> Result<SandboxView, EngineError> {
        let rows = self.shared.rows();
        let exact = rows
            .iter()
            .find(|row| row.id.as_str() == text)
            .or_else(|| rows.iter().find(|row| row.name() == text));
        if let Some(row) = exact {
            return Ok(row.view());
        }
        let mut fitting = rows
            .iter()
            .filter(|row| !text.is_empty() && row.id.as_str().starts_with(text));
        let shown: String = text.chars().take(80).collect();
        match (fitting.next(), fitting.count()) {
            (None, _) => Err(EngineError::NotFound(shown)),
            (Some(row), 0) => Ok(row.view()),
            (Some(_), more) => Err(EngineError::Ambiguous {
                text: shown,
                count: more + 1,
            }),
        }
    }

    /// The link to the guest of a running sandbox.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], [`EngineError::WrongState`].
    pub fn guest(&self, id: &SandboxId) -> Result<GuestHandle, EngineError> {
        let entry = self.shared.entry(id)?;
        let state = entry.row.borrow().state;
        let guest = entry.guest.borrow().clone();
        match guest {
            Some(guest) if state == SandboxState::Running => Ok(guest),
            _ => Err(EngineError::WrongState {
                sandbox: id.to_string(),
                state: owner::word(state).to_owned(),
                needed: "start it first".to_owned(),
            }),
        }
    }

    /// The sandbox is used now: its idle policy counts anew. Nothing happens when there is none.
    pub fn touch(&self, id: &SandboxId) {
        if let Ok(entry) = self.shared.entry(id) {
            entry.usage.touch();
        }
    }

    /// The sandbox is in use until the guard goes: an open terminal, connection or stream.
    ///
    /// # Errors
    /// [`EngineError::NotFound`].
    pub fn hold(&self, id: &SandboxId) -> Result<UseGuard, EngineError> {
        Ok(self.shared.entry(id)?.usage.hold())
    }

    /// The link to the guest of a sandbox that is to be used now: at once while it runs; one that its idle
    /// policy has put to rest is woken first, once for all who ask at the same time.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; [`EngineError::WrongState`] with what to do when it rests for another reason;
    /// what waking it failed of.
    pub async fn awake_guest(&self, id: &SandboxId) -> Result<GuestHandle, EngineError> {
        self.touch(id);
        self.guest(id)
    }

    /// Changes of all sandboxes from now on. Bounded: a slow subscriber misses some and is told so.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<SandboxChange> {
        self.shared.changes.subscribe()
    }

    /// Ends the engine after what is being done; running sandboxes go on and are adopted by the next engine.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Ends the engine at once, wherever it is, as if the daemon had been killed.
    #[cfg(any(test, feature = "test-support"))]
    pub async fn crash(&self) {
        self.shared.kill.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

/// Sends a command and waits for its outcome.
async fn ask(
    commands: &mpsc::Sender<Command>,
    command: impl FnOnce(oneshot::Sender<Result<SandboxView, EngineError>>) -> Command,
) -> Result<SandboxView, EngineError> {
    let (reply, outcome) = oneshot::channel();
    commands
        .send(command(reply))
        .await
        .map_err(|_| EngineError::ShuttingDown)?;
    outcome.await.map_err(|_| EngineError::ShuttingDown)?
}

/// `[a-z0-9][a-z0-9_.-]{0,62}`, and nothing that looks like an id.
fn check_name(name: &str) -> Result<(), EngineError> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let fits = name.len() <= 63
        && name.bytes().next().is_some_and(is_plain)
        && name
            .bytes()
            .all(|b| is_plain(b) || matches!(b, b'_' | b'.' | b'-'));
    let shown: String = name.chars().take(80).collect();
    if !fits {
        return Err(EngineError::Invalid(format!(
            "`{shown}` is not a name: up to 63 of a-z, 0-9, `_`, `.`, `-`, the first a letter or digit"
        )));
    }
    if name.parse::<SandboxId>().is_ok() {
        return Err(EngineError::Invalid(format!(
            "`{shown}` looks like an id; choose another name"
        )));
    }
    Ok(())
}
