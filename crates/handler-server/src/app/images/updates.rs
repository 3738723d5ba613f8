//! Automatic updates of harness images (contract D.4): off, daily or weekly, and unless off once after Handler
//! was upgraded; each image that exists is rebuilt, one after the other, checked and switched as by hand. The
//! toolbox is the user's and is left alone.

use super::{backends, harness_images};
use crate::app::builds::{self, Work};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_base::clock::{now_ms, rfc3339};
use handler_base::tasks::spawn_named;
use handler_types::build::{BuildKind, BuildState, ImageUpdates, UpdateSchedule};
use handler_types::{BuildId, ProblemCode};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often it is looked whether a round is due.
const TICK: Duration = Duration::from_secs(3600);
const DAY_MS: i64 = 24 * 3600 * 1000;
/// The Handler that runs.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    #[serde(default)]
    schedule: UpdateSchedule,
    /// The period counts from here: the last round, else when the schedule was set.
    #[serde(default)]
    since_ms: i64,
    #[serde(default)]
    last_run_ms: Option<i64>,
    #[serde(default)]
    builds: Vec<BuildId>,
    /// The Handler that ran the last round, or set the schedule.
    #[serde(default)]
    version: Option<String>,
}

impl Kept {
    /// Whether a round is due: its time has come, or a newer Handler may launch agents in another way than
    /// the images were checked with.
    fn is_due(&self, now: i64) -> bool {
        let is_upgraded = self.version.as_deref() != Some(VERSION);
        self.next_ms().is_some_and(|due| is_upgraded || due <= now)
    }

    /// When the next round is due.
    fn next_ms(&self) -> Option<i64> {
        let period = match self.schedule {
            UpdateSchedule::Off => return None,
            UpdateSchedule::Daily => DAY_MS,
            UpdateSchedule::Weekly => 7 * DAY_MS,
        };
        Some(self.since_ms.saturating_add(period))
    }
}

/// The schedule and its rounds.
#[derive(Debug)]
pub struct Updates {
    path: PathBuf,
    kept: Mutex<Kept>,
    is_running: AtomicBool,
}

impl Updates {
    /// As kept below the state folder; a broken file means off.
    #[must_use]
    pub fn read(path: PathBuf) -> Self {
        let kept = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "not understood; automatic updates are off");
                Kept::default()
            }),
            Err(_) => Kept::default(),
        };
        Self {
            path,
            kept: Mutex::new(kept),
            is_running: AtomicBool::new(false),
        }
    }

    fn kept(&self) -> Kept {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn keep(&self, change: impl FnOnce(&mut Kept)) -> std::io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = kept.clone();
        change(&mut next);
        let text = serde_json::to_vec_pretty(&next).map_err(std::io::Error::other)?;
        handler_base::fs::write_atomic(&self.path, &text, 0o600)?;
        *kept = next;
        Ok(())
    }

    /// As shown.
    #[must_use]
    pub fn view(&self) -> ImageUpdates {
        let kept = self.kept();
        ImageUpdates {
            schedule: kept.schedule,
            running: self.is_running.load(Ordering::Acquire),
            last_run: kept.last_run_ms.map(rfc3339),
            next_run: kept.next_ms().map(rfc3339),
            builds: kept.builds,
        }
    }
}

/// Sets the schedule.
///
/// # Errors
/// A full disk.
pub fn set(app: &App, schedule: UpdateSchedule) -> ApiResult<ImageUpdates> {
    let kept = app.updates.keep(|kept| {
        if kept.schedule != schedule {
            kept.schedule = schedule;
            kept.since_ms = now_ms();
            kept.version = Some(VERSION.to_owned());
        }
    });
    kept.map_err(|e| builds::disk("the schedule", &e))?;
    Ok(app.updates.view())
}

/// Starts a round now.
///
/// # Errors
/// 409 while one is under way; a full disk.
pub fn run(app: &Arc<App>) -> ApiResult<ImageUpdates> {
    if app.updates.is_running.swap(true, Ordering::AcqRel) {
        return Err(ApiError::new(
            ProblemCode::Conflict,
            "image updates are already running; `handler build list` shows them",
        ));
    }
    let kept = app.updates.keep(|kept| {
        let now = now_ms();
        kept.since_ms = now;
        kept.last_run_ms = Some(now);
        kept.builds.clear();
        kept.version = Some(VERSION.to_owned());
    });
    if let Err(error) = kept {
        app.updates.is_running.store(false, Ordering::Release);
        return Err(builds::disk("the schedule", &error));
    }
    let view = app.updates.view();
    let app = app.clone();
    spawn_named("image updates", async move {
        round(&app).await;
        app.updates.is_running.store(false, Ordering::Release);
    });
    Ok(view)
}

async fn round(app: &Arc<App>) {
    for backend in backends(app) {
        for descriptor in handler_harness::descriptors() {
            match harness_images::current(app, backend, descriptor).await {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                // No such engine on this host, or one that is not running: nothing to update there.
                Err(error) => {
                    tracing::debug!(%error, backend, "no image updates");
                    break;
                }
            }
            let work = Work::Harness(descriptor);
            let build = builds::submit(app, BuildKind::Harness, backend, &descriptor.name, work);
            match build {
                Ok(build) => {
                    app.updates
                        .keep(|kept| kept.builds.push(build.id.clone()))
                        .ok();
                    let state = builds::wait(app, &build.id).await;
                    if state != Some(BuildState::Succeeded) {
                        tracing::warn!(build = %build.id, harness = descriptor.name, "an image update failed");
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %error.0.detail, "an image update was not begun");
                }
            }
            if app.shutdown.is_cancelled() {
                return;
            }
        }
    }
}

/// Looks every hour whether a round is due.
pub fn keep_time(app: &Arc<App>) {
    let app = app.clone();
    spawn_named("image update schedule", async move {
        loop {
            if app.updates.kept().is_due(now_ms())
                && let Err(error) = run(&app)
            {
                tracing::warn!(error = %error.0.detail, "image updates");
            }
            tokio::select! {
                () = app.shutdown.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_off_by_default_kept_and_counts_from_the_last_round() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("image-updates.json");
        let updates = Updates::read(path.clone());
        assert_eq!(updates.view(), ImageUpdates::default());
        updates
            .keep(|kept| {
                kept.schedule = UpdateSchedule::Weekly;
                kept.since_ms = 1000;
                kept.version = Some(VERSION.to_owned());
            })
            .expect("kept");
        let again = Updates::read(path.clone());
        assert_eq!(again.kept().next_ms(), Some(1000 + 7 * DAY_MS));
        again
            .keep(|kept| kept.schedule = UpdateSchedule::Daily)
            .expect("kept");
        assert_eq!(again.kept().next_ms(), Some(1000 + DAY_MS));
        assert!(!again.kept().is_due(2000), "the same Handler");
        again
            .keep(|kept| kept.version = Some("0.0.0".to_owned()))
            .expect("kept");
        assert!(again.kept().is_due(2000), "a newer one");
        again
            .keep(|kept| kept.schedule = UpdateSchedule::Off)
            .expect("kept");
        assert!(!again.kept().is_due(i64::MAX), "off is off");
        std::fs::write(&path, "{").expect("written");
        assert_eq!(Updates::read(path).view().schedule, UpdateSchedule::Off);
    }
}
