//! What is counted for Prometheus while the daemon runs. No series names a sandbox: their number stays small.

use handler_types::egress::EgressDecision;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Borders of the histogram of creates, seconds.
const CREATE_SECONDS: [f64; 11] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// How a create ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Ending {
    #[expect(non_camel_case_types, reason = "it is the label's text")]
    ok,
    #[expect(non_camel_case_types, reason = "it is the label's text")]
    error,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: Ending,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    decision: &'static str,
}

/// The counters.
#[derive(Debug)]
pub struct Counters {
    creates: Family<Result, Counter>,
    create_seconds: Histogram,
    commands: Counter,
    terminals: Counter,
    egress: Family<Decision, Counter>,
    events: Counter,
}

impl Default for Counters {
    fn default() -> Self {
        let counters = Self {
            creates: Family::default(),
            create_seconds: Histogram::new(CREATE_SECONDS),
            commands: Counter::default(),
            terminals: Counter::default(),
            egress: Family::default(),
            events: Counter::default(),
        };
        // A series that is there from the start shows its first step.
        for result in [Ending::ok, Ending::error] {
            drop(counters.creates.get_or_create(&Result { result }));
        }
        counters
    }
}

impl Counters {
    /// A sandbox was made and runs, or was not.
    pub fn created(&self, ok: bool, took: Duration) {
        let result = if ok { Ending::ok } else { Ending::error };
        self.creates.get_or_create(&Result { result }).inc();
        if ok {
            self.create_seconds.observe(took.as_secs_f64());
        }
    }

    /// A command or, on a terminal, a program was started.
    pub fn started(&self, on_terminal: bool) {
        if on_terminal {
            self.terminals.inc();
        } else {
            self.commands.inc();
        }
    }

    /// The filter decided.
    pub fn decided(&self, decision: EgressDecision) {
        if decision == EgressDecision::Ended {
            return;
        }
        let decision = decision.as_str();
        self.egress.get_or_create(&Decision { decision }).inc();
    }

    /// An activity changed.
    pub fn activity_changed(&self) {
        self.events.inc();
    }

    /// Puts them into what is scraped.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "creates",
            "Sandboxes made, by how it ended",
            self.creates.clone(),
        );
        registry.register(
            "create_seconds",
            "Time from the request to a running sandbox",
            self.create_seconds.clone(),
        );
        registry.register("commands", "Commands started", self.commands.clone());
        registry.register("terminals", "Terminals opened", self.terminals.clone());
        registry.register(
            "egress_decisions",
            "Decisions of the egress filter",
            self.egress.clone(),
        );
        registry.register(
            "activity_changes",
            "Changes of what terminals and sessions do",
            self.events.clone(),
        );
    }
}
