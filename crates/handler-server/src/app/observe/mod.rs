//! Observation: what happens in sandboxes and on this host, seen without using anything.
//!
//! Invariant: nothing here wakes a sandbox, counts as its use, or runs while no sandbox runs and nobody asks.

pub mod activity;
pub mod agents;
pub mod counters;
pub mod host;
pub mod log;
pub mod metrics;
pub mod prometheus;
pub mod terminals;
mod watch;

use super::observe::log::redact::Redaction;
use crate::state::App;
use activity::Activities;
use agents::AgentCache;
use counters::Counters;
use handler_engine::egress::EgressLink;
use handler_store::paths::Layout;
use log::SandboxLogs;
use metrics::Samples;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// What is kept of it.
pub struct Observe {
    /// Logs of sandboxes.
    pub logs: SandboxLogs,
    /// Figures of the last half hour.
    pub samples: Samples,
    /// What Prometheus counts.
    pub counters: Counters,
    /// What terminals and sessions do.
    pub activities: Activities,
    agents: AgentCache,
    egress: Arc<EgressLink>,
    began: Instant,
    began_ms: i64,
    scrape_token: String,
}

impl Observe {
    /// Nothing seen yet.
    #[must_use]
    pub(crate) fn new(
        layout: &Layout,
        redaction: Redaction,
        egress: Arc<EgressLink>,
        scrape_token: String,
    ) -> Self {
        Self {
            logs: SandboxLogs::new(layout.state.join("sandboxes"), redaction),
            samples: Samples::default(),
            counters: Counters::default(),
            activities: Activities::default(),
            agents: AgentCache::default(),
            egress,
            began: Instant::now(),
            began_ms: handler_base::clock::now_ms(),
            scrape_token,
        }
    }

    /// The token that opens `GET /metrics` and nothing else.
    pub(crate) fn scrape_token(&self) -> &str {
        &self.scrape_token
    }
}

impl fmt::Debug for Observe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observe").finish_non_exhaustive()
    }
}

/// Begins to look. Called once, when the engine has taken up what an earlier daemon left.
pub fn start(app: &Arc<App>) {
    app.observe.logs.start();
    watch::start(app);
    activity::follow_sessions(app);
    terminals::start(app);
    metrics::start(app);
}
