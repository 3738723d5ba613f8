//! The engine: the one door to sandboxes. Each has an [`owner`] task; this is the registry in front of them.

mod admission;
mod agenda;
mod command;
mod config;
mod effects;
mod gate;
mod idle;
mod network;
mod observe;
mod owner;
mod reconcile;
mod shared;
mod timers;
mod update;
mod usage;

pub use admission::LimitsSource;
pub use command::SandboxUpdate;
pub use config::{EffectProbe, EngineConfig, EngineTiming};
pub use shared::SandboxChange;
pub use usage::UseGuard;

use crate::driver::DriverError;
use crate::error::EngineError;
use crate::guest::GuestHandle;
use crate::lifecycle::{Event, State};
use crate::rows::SandboxRow;
use command::{Command, Reply};
use gate::Pass;
use handler_types::SandboxId;
use handler_types::lifetime::IdleAction;
use handler_types::limits::HostView;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{SandboxSpec, SandboxState, SandboxView};
use shared::Shared;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, oneshot, watch};

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
        let clock = timers::run(engine.shared.clone());
        engine.shared.tasks.spawn(clock);
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
                for row in shared.rows() {
                    let has_link =
                        matches!(row.state, SandboxState::Running | SandboxState::Paused)
                            && row.spec.network.needs_egress();
                    // One that has too much to do gets them from its next start.
                    if has_link {
                        shared.deliver(&row.id, Command::RefreshFilter).ok();
                    }
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
        }
        let driver = self.shared.config.driver(&spec.backend)?;
        driver.accept(&spec)?;
        let pauses = spec
            .idle
            .is_some_and(|idle| idle.action == IdleAction::Pause);
        if pauses && !driver.capabilities().await.pause {
            return Err(cannot_pause(&spec.backend));
        }
        let pass = self.turn(&spec).await?;
        let now = handler_base::clock::now_ms();
        let state = State::absent(spec.network.needs_egress());
        let row = SandboxRow {
            id: SandboxId::from_random(handler_base::random::bytes()),
            expires_ms: spec.ttl_seconds.map(expiry),
            label,
            state: SandboxState::Creating,
            created_ms: now,
            updated_ms: now,
            ..SandboxRow::of(spec)
        };
        let (id, expires) = (row.id.clone(), row.expires_ms);
        let is_making = SandboxChange::Changed(Box::new(row.view()));
        self.shared.admit_new(row, state)?;
        // Nobody may be listening.
        self.shared.changes.send(is_making).ok();
        // Ordered at once, so that giving up here cannot leave it unmade.
        let outcome = self.order(&id, Event::Create, Some(pass));
        if outcome.is_err() {
            self.shared.gone(&id);
        }
        self.shared.timers.expire(&id, expires);
        outcome?.await.map_err(|_| EngineError::ShuttingDown)?
    }

    /// Waits for this start's turn.
    async fn turn(&self, spec: &SandboxSpec) -> Result<Pass, EngineError> {
        if self.shared.stop.is_cancelled() {
            return Err(EngineError::ShuttingDown);
        }
        let pass = tokio::select! {
            pass = self.shared.books.gate.enter(spec.project.as_deref()) => pass,
            () = self.shared.stop.cancelled() => return Err(EngineError::ShuttingDown),
        };
        pass.ok_or_else(|| EngineError::TooMany {
            message: "as many starts wait for their turn as may; try again".to_owned(),
            retry_after: Duration::from_secs(5),
        })
    }

    fn order(
        &self,
        id: &SandboxId,
        event: Event,
        pass: Option<Pass>,
    ) -> Result<oneshot::Receiver<Result<SandboxView, EngineError>>, EngineError> {
        let (reply, outcome) = oneshot::channel();
        let reply = Some(reply);
        let command = Command::Step { event, reply, pass };
        self.shared.deliver(id, command)?;
        Ok(outcome)
    }

    async fn step(
        &self,
        id: &SandboxId,
        event: Event,
        pass: Option<Pass>,
    ) -> Result<SandboxView, EngineError> {
        let outcome = self.order(id, event, pass)?;
        outcome.await.map_err(|_| EngineError::ShuttingDown)?
    }

    async fn ask(
        &self,
        id: &SandboxId,
        command: impl FnOnce(Reply) -> Command,
    ) -> Result<SandboxView, EngineError> {
        let (reply, outcome) = oneshot::channel();
        self.shared.deliver(id, command(reply))?;
        outcome.await.map_err(|_| EngineError::ShuttingDown)?
    }

    /// The turn of a start, unless it only thaws.
    async fn turn_of(&self, id: &SandboxId) -> Result<Option<Pass>, EngineError> {
        let row = self.shared.with(id, |entry| entry.row.clone())?;
        let needs_none = matches!(
            row.state,
            SandboxState::Running
                | SandboxState::Pausing
                | SandboxState::Paused
                | SandboxState::Resuming
        );
        if needs_none {
            return Ok(None);
        }
        Ok(Some(self.turn(&row.spec).await?))
    }

    /// Starts a stopped sandbox. Starts at the same time are one.
    ///
    /// # Errors
    /// [`EngineError`]; it is then `failed` and keeps its home.
    pub async fn start_sandbox(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        let pass = self.turn_of(id).await?;
        self.step(id, Event::Start, pass).await
    }

    /// Freezes all processes of a running sandbox: no CPU time, memory kept.
    ///
    /// # Errors
    /// [`EngineError::WrongState`]; [`EngineError::Driver`] when the backend cannot, it then runs on.
    pub async fn pause(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        let backend = self
            .shared
            .with(id, |entry| entry.row.spec.backend.clone())?;
        let driver = self.shared.config.driver(&backend)?;
        if !driver.capabilities().await.pause {
            return Err(cannot_pause(&backend));
        }
        self.step(id, Event::Pause, None).await
    }

    /// Thaws a paused sandbox.
    ///
    /// # Errors
    /// [`EngineError::WrongState`]; [`EngineError::Driver`], it then stays paused.
    pub async fn resume(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        self.step(id, Event::Resume, None).await
    }

    /// Changes a sandbox's settings, all that were given or none.
    ///
    /// # Errors
    /// [`EngineError`]: a wrong or taken name, limits that the host or the backend does not give, a policy that the
    /// backend cannot follow.
    pub async fn update(
        &self,
        id: &SandboxId,
        update: SandboxUpdate,
    ) -> Result<SandboxView, EngineError> {
        self.ask(id, |reply| Command::Update(Box::new(update), reply))
            .await
    }

    /// What this host hands out, and what of it is taken.
    #[must_use]
    pub fn host(&self) -> HostView {
        self.shared.books.view(&self.shared.registry())
    }

    /// Stops a sandbox: everything in it is killed, its home is kept.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn stop(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        self.step(id, Event::Stop, None).await
    }

    /// Stops and starts a sandbox.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn restart(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        let pass = self.turn_of(id).await?;
        self.step(id, Event::Restart, pass).await
    }

    /// Removes a sandbox with everything of it. Done also when it does not exist.
    ///
    /// # Errors
    /// [`EngineError::Leftover`] when something could not be removed; it is tried again later.
    pub async fn delete(&self, id: &SandboxId) -> Result<(), EngineError> {
        match self.step(id, Event::Delete, None).await {
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
        self.ask(id, |reply| Command::SetNetwork(policy, reply))
            .await
    }

    /// Gives the filter a sandbox's settings again, because what its logins stand for has changed. Nothing happens
    /// to one that does not run.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; when the filter cannot be reached, it is then tried again later.
    pub async fn renew_filter(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.ask(id, Command::RenewFilter).await.map(drop)
    }

    /// Sandboxes that have a login, with their names.
    #[must_use]
    pub fn with_login(&self, login: &str) -> Vec<(SandboxId, String)> {
        let rows = self.shared.rows().into_iter();
        let has = |row: &Arc<SandboxRow>| row.spec.logins.iter().any(|one| one.login == login);
        rows.filter(has)
            .map(|row| (row.id.clone(), row.name().to_owned()))
            .collect()
    }

    /// The names of all stand-ins of logins in sandboxes.
    #[must_use]
    pub fn login_grants(&self) -> std::collections::BTreeSet<String> {
        let rows = self.shared.rows().into_iter();
        rows.flat_map(|row| row.spec.logins.clone())
            .map(|one| one.grant)
            .collect()
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
        rows.truncate(limit);
        let views = rows.iter().filter_map(|row| self.get(&row.id).ok());
        (views.collect(), more)
    }

    /// One sandbox.
    ///
    /// # Errors
    /// [`EngineError::NotFound`].
    pub fn get(&self, id: &SandboxId) -> Result<SandboxView, EngineError> {
        self.shared.with(id, |entry| entry.view())
    }

    /// What was asked for when a sandbox was made, with later changes.
    ///
    /// # Errors
    /// [`EngineError::NotFound`].
    pub fn spec(&self, id: &SandboxId) -> Result<SandboxSpec, EngineError> {
        self.shared.with(id, |entry| entry.row.spec.clone())
    }

    /// Finds a sandbox by its id, its name or an unambiguous beginning of its id.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], [`EngineError::Ambiguous`].
    pub fn find(&self, text: &str) -> Result<SandboxView, EngineError> {
        if let Ok(view) = text
            .parse()
            .map_err(|_| ())
            .and_then(|id| self.get(&id).map_err(|_| ()))
        {
            return Ok(view);
        }
        let registry = self.shared.registry();
        if let Some(entry) = registry.values().find(|entry| entry.row.name() == text) {
            return Ok(entry.view());
        }
        let mut fitting = registry
            .values()
            .filter(|entry| !text.is_empty() && entry.row.id.as_str().starts_with(text));
        let shown: String = text.chars().take(80).collect();
        match (fitting.next(), fitting.count()) {
            (None, _) => Err(EngineError::NotFound(shown)),
            (Some(entry), 0) => Ok(entry.view()),
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
        self.shared.with(id, |entry| match &entry.guest {
            Some(guest) if entry.row.state == SandboxState::Running => Ok(guest.clone()),
            _ => Err(not_running(id, entry.row.state)),
        })?
    }

    /// The sandbox is used now: its idle policy counts anew. Nothing happens when there is none.
    pub fn touch(&self, id: &SandboxId) {
        // Nobody is there to be used.
        self.shared.with(id, |entry| entry.usage.touch()).ok();
    }

    /// The sandbox is in use until the guard goes: an open terminal, connection or stream.
    ///
    /// # Errors
    /// [`EngineError::NotFound`].
    pub fn hold(&self, id: &SandboxId) -> Result<UseGuard, EngineError> {
        self.shared.with(id, |entry| entry.usage.hold())
    }

    /// The link to the guest of a sandbox that is to be used now: at once while it runs; one that its idle
    /// policy has put to rest is woken first, once for all who ask at the same time.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; [`EngineError::WrongState`] with what to do when it rests for another reason;
    /// what waking it failed of.
    pub async fn awake_guest(&self, id: &SandboxId) -> Result<GuestHandle, EngineError> {
        let ready = self.shared.with(id, |entry| {
            entry.usage.touch();
            let policy = entry.row.spec.idle.filter(|policy| policy.wake);
            match (entry.row.state, &entry.guest) {
                (SandboxState::Running, Some(guest)) if !entry.is_leaving => {
                    Ok(Some(guest.clone()))
                }
                (SandboxState::Stopped | SandboxState::Paused, _)
                    if !entry.row.idled || policy.is_none() =>
                {
                    Err(not_running(id, entry.row.state))
                }
                (SandboxState::Failed | SandboxState::Deleting, _) => {
                    Err(not_running(id, entry.row.state))
                }
                // It is at work, or has to be woken: its owner knows.
                _ => Ok(None),
            }
        })??;
        if let Some(guest) = ready {
            return Ok(guest);
        }
        let pass = self.turn_of(id).await?;
        self.ask(id, |reply| Command::Wake { reply, pass }).await?;
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

/// When a life of so many seconds from now ends, in milliseconds since the epoch.
fn expiry(seconds: u64) -> i64 {
    let ms = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    handler_base::clock::now_ms().saturating_add(ms)
}

fn cannot_pause(backend: &str) -> EngineError {
    let message = format!(
        "{backend} cannot pause sandboxes on this host; `handler doctor --verbose` says what it can"
    );
    DriverError::Unenforceable(message).into()
}

fn not_running(id: &SandboxId, state: SandboxState) -> EngineError {
    let needed = match state {
        SandboxState::Paused | SandboxState::Pausing => "resume it first",
        SandboxState::Deleting => "it can only be removed",
        _ => "start it first",
    };
    EngineError::WrongState {
        sandbox: id.to_string(),
        state: owner::word(state).to_owned(),
        needed: needed.to_owned(),
    }
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
