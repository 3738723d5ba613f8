//! `GET /metrics`: the counters, and what is so at this moment, as OpenMetrics text.

use crate::app::observe::host;
use crate::state::App;
use handler_types::session::SessionState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// The text's media type.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateAndBackend {
    state: String,
    backend: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

/// The text. Reads what the daemon knows; asks no sandbox.
pub async fn text(app: &App) -> String {
    let mut registry = Registry::with_prefix("handler");
    let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The daemon's version", version);
    app.observe.counters.register(&mut registry);
    sandboxes(app, &mut registry);
    sessions(app, &mut registry).await;
    host_figures(app, &mut registry).await;
    let mut text = String::new();
    // Writing to a string cannot fail.
    encode(&mut text, &registry).ok();
    text
}

fn sandboxes(app: &App, registry: &mut Registry) {
    let mut counts: BTreeMap<(String, String), i64> = BTreeMap::new();
    for view in app.engine.list() {
        let state = host::word(view.state).to_owned();
        *counts.entry((state, view.backend)).or_default() += 1;
    }
    let family: Family<StateAndBackend, Gauge> = Family::default();
    for ((state, backend), count) in counts {
        let labels = StateAndBackend { state, backend };
        family.get_or_create(&labels).set(count);
    }
    registry.register("sandboxes", "Sandboxes by state and backend", family);
}

async fn sessions(app: &App, registry: &mut Registry) {
    let family: Family<OfState, Gauge> = Family::default();
    for state in ["starting", "running", "stopped", "failed"] {
        drop(family.get_or_create(&OfState { state }));
    }
    for row in app.store.sessions().all().await.unwrap_or_default() {
        let state = match row.state {
            SessionState::Starting => "starting",
            SessionState::Running => "running",
            SessionState::Stopped => "stopped",
            SessionState::Failed => "failed",
        };
        family.get_or_create(&OfState { state }).inc();
    }
    registry.register("sessions", "Sessions by state", family);
}

async fn host_figures(app: &App, registry: &mut Registry) {
    let Ok(stats) = host::stats(app).await else {
        return;
    };
    let mut gauge = |name: &str, help: &str, value: f64| {
        let gauge: Gauge<f64, AtomicU64> = Gauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "figures of a host fit into 53 bits"
    )]
    let float = |value: u64| value as f64;
    gauge(
        "uptime_seconds",
        "Since the daemon started",
        float(stats.daemon_uptime_seconds),
    );
    gauge(
        "daemon_memory_bytes",
        "Resident memory of the daemon",
        float(stats.daemon_memory_bytes),
    );
    if let Some(bytes) = stats.filter_memory_bytes {
        gauge(
            "filter_memory_bytes",
            "Resident memory of the egress filter",
            float(bytes),
        );
    }
    gauge("host_cpus", "Processors online", f64::from(stats.cpus));
    gauge(
        "host_cpu_ratio",
        "Use of all processors, 0 to 1",
        stats.cpu_percent / 100.0,
    );
    gauge("host_load1", "Load average of a minute", stats.load[0]);
    gauge(
        "host_memory_used_bytes",
        "Memory in use",
        float(stats.memory.used_bytes),
    );
    gauge(
        "host_memory_total_bytes",
        "Memory of the host",
        float(stats.memory.total_bytes),
    );
    gauge(
        "host_disk_used_bytes",
        "Used on the disk of the state folder",
        float(stats.disk.used_bytes),
    );
    gauge(
        "host_disk_total_bytes",
        "Size of the disk of the state folder",
        float(stats.disk.total_bytes),
    );
}
