//! One sandbox as the filter knows it: its rules, its authority, its listener, its tasks.
//!
//! Invariant: everything that works for a sandbox runs in its task set and ends with it; when
//! [`Sandbox::close`] returns, no connection of it is left and its secrets are wiped.

use crate::authority::{Authority, AuthorityError};
use crate::chain::UpstreamProxy;
use crate::coding::Coding;
use crate::events::{Events, Happening};
use crate::keep::Keep;
use crate::limits::Limits;
use crate::listener::Listening;
use crate::login::Desk;
use crate::names::RefusedNames;
use crate::resolve::Resolver;
use crate::settings::Rules;
use crate::share::{Busy, Part, Shares};
use crate::traffic::Traffic;
use crate::trust::Trust;
use handler_types::egress::EgressDecision;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long closing waits for tasks that were told to end.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// What all sandboxes share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Where everything is reported.
    pub(crate) events: Events,
    /// Names → addresses.
    pub(crate) resolver: Resolver,
    /// The way out of this machine, if it is a proxy.
    pub(crate) proxy: Option<UpstreamProxy>,
    /// How long clients may take.
    pub(crate) limits: Limits,
    /// Whom to believe outside.
    pub(crate) trust: Trust,
    /// New tokens that wait for the daemon.
    pub(crate) logins: Desk,
    /// Where authorities outlive the filter.
    pub(crate) keep: Keep,
}

/// A sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// Its id.
    pub(crate) id: String,
    /// What it shares with the others.
    pub(crate) shared: Arc<Shared>,
    /// Its own certificate authority.
    pub(crate) authority: Authority,
    /// Names that were refused a short while ago.
    pub(crate) refused_names: RefusedNames,
    /// What it may take of the filter.
    pub(crate) shares: Shares,
    /// What went through.
    pub(crate) traffic: Arc<Traffic>,
    rules: watch::Sender<Arc<Rules>>,
    listening: Mutex<Option<Listening>>,
    end: CancellationToken,
    tasks: TaskTracker,
}

impl Sandbox {
    /// A sandbox without a listener yet.
    pub(crate) fn new(
        id: &str,
        shared: Arc<Shared>,
        rules: Rules,
    ) -> Result<Arc<Self>, AuthorityError> {
        let authority = Authority::of(id, &shared.keep)?;
        let shares = Shares::new(&shared.limits);
        Ok(Arc::new(Self {
            id: id.to_owned(),
            shared,
            authority,
            refused_names: RefusedNames::default(),
            shares,
            traffic: Arc::default(),
            rules: watch::Sender::new(Arc::new(rules)),
            listening: Mutex::default(),
            end: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Room to undo a coding, held while it lasts.
    pub(crate) fn room_for(&self, coding: Coding) -> Result<Part, Busy> {
        self.shares.coded.try_take(coding.weight())
    }

    /// The rules at this moment.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.borrow().clone()
    }

    /// Puts other rules in force, for the next request and for the tunnels that live.
    pub(crate) fn replace_rules(&self, rules: Rules) {
        self.rules.send_replace(Arc::new(rules));
    }

    /// Returns as soon as `permits` says no to the rules in force.
    pub(crate) async fn until_forbidden(&self, permits: impl Fn(&Rules) -> bool) {
        let mut changes = self.rules.subscribe();
        loop {
            let rules = changes.borrow_and_update().clone();
            if !permits(&rules) {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Starts a task that ends with the sandbox.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let end = self.end.clone();
        // Boxed: each layer around it would hold room for it twice, where it was and where it runs.
        let work = Box::pin(work);
        let work = async move {
            end.run_until_cancelled(work).await;
        };
        drop(handler_base::tasks::spawn_named(
            name,
            self.tasks.track_future(work),
        ));
    }

    /// Listens there from now on, if `next` is given; the listener before it is closed.
    pub(crate) fn set_listening(&self, next: Option<Listening>) {
        let mut listening = self
            .listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *listening = next;
    }

    /// Whether the listener is still the file at this path.
    pub(crate) fn listens_at(&self, path: &std::path::Path) -> bool {
        self.listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(|listening| listening.is_at(path))
    }

    /// Reports what was decided; the event's number.
    pub(crate) fn report(
        &self,
        rules: &Rules,
        decision: EgressDecision,
        host: String,
        secret: Option<String>,
        reason: Option<&str>,
    ) -> u64 {
        self.shared.events.report(Happening {
            secret,
            reason,
            ..Happening::new(&self.id, &rules.label, decision, host)
        })
    }

    /// Reports what was decided by an entry; the event's number.
    pub(crate) fn report_rule(
        &self,
        rules: &Rules,
        decision: EgressDecision,
        host: String,
        secret: Option<String>,
        rule: Option<String>,
    ) -> u64 {
        self.shared.events.report(Happening {
            secret,
            rule,
            ..Happening::new(&self.id, &rules.label, decision, host)
        })
    }

    /// Closes the listener and every connection, and forgets the secrets.
    pub(crate) async fn close(&self) {
        self.set_listening(None);
        self.end.cancel();
        self.tasks.close();
        if tokio::time::timeout(CLOSE_LIMIT, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(sandbox = %self.id, "some connections have not ended yet");
        }
        let generation = self.rules().generation + 1;
        self.replace_rules(Rules::nothing(generation));
    }
}
