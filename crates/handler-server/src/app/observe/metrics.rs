//! What sandboxes use: now, and as samples of the last half hour.
//!
//! One task for all: it samples every five seconds while a sandbox runs, and waits for a change otherwise.

use crate::app::observe::log;
use crate::http::problem::ApiResult;
use crate::state::App;
use futures::StreamExt as _;
use handler_types::SandboxId;
use handler_types::observe::{EgressTraffic, HostSide, MetricsHistory, SandboxMetrics};
use handler_types::sandbox::{SandboxState, SandboxView};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Between two samples.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Samples kept of each sandbox.
const KEPT: usize = 360;
/// How long a guest may think about its figures.
const PATIENCE: Duration = Duration::from_secs(2);
/// Sandboxes asked at a time.
const AT_ONCE: usize = 16;

/// A sample, and when it was taken (milliseconds since the epoch).
type Sample = (i64, SandboxMetrics);

/// The samples, in memory.
#[derive(Debug, Default)]
pub struct Samples {
    of: Mutex<HashMap<SandboxId, VecDeque<Sample>>>,
    runs: Notify,
}

impl Samples {
    fn of(&self) -> MutexGuard<'_, HashMap<SandboxId, VecDeque<Sample>>> {
        // Short sections without waiting; a panic elsewhere leaves whole samples.
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sandbox runs: sampling goes on.
    pub(super) fn wake(&self) {
        self.runs.notify_one();
    }

    /// Forgets a sandbox.
    pub(super) fn forget(&self, id: &SandboxId) {
        self.of().remove(id);
    }

    fn add(&self, id: &SandboxId, sample: Sample) {
        let mut all = self.of();
        let list = all.entry(id.clone()).or_default();
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(sample);
    }

    fn last(&self, id: &SandboxId) -> Option<Sample> {
        self.of().get(id)?.back().cloned()
    }

    /// Samples between two times (milliseconds since the epoch, both included), at most the last `limit`.
    #[must_use]
    pub fn between(&self, id: &SandboxId, from: i64, to: i64, limit: usize) -> MetricsHistory {
        let all = self.of();
        let within = |sample: &&Sample| (from..=to).contains(&sample.0);
        let found: Vec<&Sample> = all.get(id).into_iter().flatten().filter(within).collect();
        let from = found.len().saturating_sub(limit);
        MetricsHistory {
            interval_seconds: INTERVAL.as_secs(),
            samples: found[from..].iter().map(|(_, m)| m.clone()).collect(),
        }
    }
}

/// What a sandbox uses now. Asks its guest only while it runs.
///
/// # Errors
/// 404.
pub async fn now(app: &App, text: &str) -> ApiResult<SandboxMetrics> {
    let view = crate::app::sandboxes::find(app, text).await?;
    let traffic = app.observe.egress.traffic().await.unwrap_or_default();
    Ok(sample(app, &view, &traffic).await.1)
}

async fn sample(
    app: &App,
    view: &SandboxView,
    traffic: &BTreeMap<String, EgressTraffic>,
) -> Sample {
    let guest = async {
        let guest = app.engine.guest(&view.id).ok()?;
        tokio::time::timeout(PATIENCE, guest.stats())
            .await
            .ok()?
            .ok()
    };
    let (guest, host) = tokio::join!(guest, app.engine.stats(&view.id));
    let at = handler_base::clock::now_ms();
    let mut metrics = SandboxMetrics {
        at: handler_base::clock::rfc3339(at),
        state: view.state,
        guest,
        host: host.map(|host| HostSide {
            memory_bytes: host.memory_bytes,
            cpu_ms: host.cpu_ms,
            disk_bytes: host.disk_bytes,
            processes: host.processes,
        }),
        egress: traffic.get(view.id.as_str()).copied(),
        cpu_percent: None,
    };
    metrics.cpu_percent = app
        .observe
        .samples
        .last(&view.id)
        .and_then(|before| cpu_percent(&before, at, &metrics));
    (at, metrics)
}

/// CPU time so far, in milliseconds: as the host charges it, else as the guest counts it.
fn cpu_ms(metrics: &SandboxMetrics) -> Option<u64> {
    let host = metrics.host.and_then(|host| host.cpu_ms);
    host.or_else(|| metrics.guest.map(|guest| guest.cpu_ms))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a few seconds are small numbers"
)]
fn cpu_percent(before: &Sample, at: i64, now: &SandboxMetrics) -> Option<f64> {
    // A counter that went back belongs to another start.
    let spent = cpu_ms(now)?.checked_sub(cpu_ms(&before.1)?)?;
    let passed = at.checked_sub(before.0).filter(|passed| *passed > 0)?;
    Some((spent as f64 * 1000.0 / passed as f64).round() / 10.0)
}

/// Starts sampling.
pub(super) fn start(app: &Arc<App>) {
    let app = app.clone();
    handler_base::tasks::spawn_named("metrics", async move {
        loop {
            let running = running(&app);
            if running.is_empty() {
                tokio::select! {
                    () = app.shutdown.cancelled() => return,
                    () = app.observe.samples.runs.notified() => continue,
                }
            }
            round(&app, &running).await;
            tokio::select! {
                () = app.shutdown.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    });
}

fn running(app: &App) -> Vec<SandboxView> {
    let mut views = app.engine.list();
    views.retain(|view| view.state == SandboxState::Running);
    views
}

async fn round(app: &App, running: &[SandboxView]) {
    let traffic = app.observe.egress.traffic().await.unwrap_or_default();
    futures::stream::iter(running)
        .for_each_concurrent(AT_ONCE, |view| {
            let traffic = &traffic;
            async move {
                let sample = sample(app, view, traffic).await;
                // One that was removed meanwhile must not come back.
                if app.engine.get(&view.id).is_ok() {
                    app.observe.samples.add(&view.id, sample);
                    log::guest::take_in(app, &view.id).await;
                }
            }
        })
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(cpu_ms: u64) -> SandboxMetrics {
        SandboxMetrics {
            at: String::new(),
            state: SandboxState::Running,
            guest: None,
            host: Some(HostSide {
                cpu_ms: Some(cpu_ms),
                ..HostSide::default()
            }),
            egress: None,
            cpu_percent: None,
        }
    }

    #[test]
    fn processor_use_is_time_spent_over_time_passed() {
        let before = (1_000, metrics(500));
        assert_eq!(cpu_percent(&before, 6_000, &metrics(3_000)), Some(50.0));
        assert_eq!(cpu_percent(&before, 6_000, &metrics(100)), None);
        assert_eq!(cpu_percent(&before, 1_000, &metrics(600)), None);
    }

    #[test]
    fn only_the_last_half_hour_is_kept() {
        let samples = Samples::default();
        let id = SandboxId::from_random([1; 8]);
        for at in 0..400 {
            samples.add(&id, (at, metrics(0)));
        }
        assert_eq!(samples.between(&id, 0, i64::MAX, 1000).samples.len(), KEPT);
        assert_eq!(samples.between(&id, 390, 394, 1000).samples.len(), 5);
        assert_eq!(samples.between(&id, 0, i64::MAX, 3).samples.len(), 3);
        samples.forget(&id);
        assert!(samples.between(&id, 0, i64::MAX, 3).samples.is_empty());
    }
}
