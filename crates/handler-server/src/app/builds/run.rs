//! One build's life: its turn, the work, its lines into the log, its end; and removing what an interrupted one
//! left.

use super::log::LogWriter;
use super::record::Record;
use super::work::Work;
use super::{change, publish};
use crate::app::images;
use crate::state::App;
use handler_base::clock::now_ms;
use handler_base::tasks::spawn_named;
use handler_engine::images::{ImageError, Lines};
use handler_types::BuildId;
use handler_types::build::BuildState;
use handler_types::event::ServerEvent;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How often the last line is told to those who only list builds.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// What a build's work is given.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) app: Arc<App>,
    pub(crate) id: BuildId,
    pub(crate) backend: String,
    /// Lines for the log.
    pub(crate) lines: Lines,
    /// Cancelled by a person, or because the daemon ends.
    pub(crate) cancel: CancellationToken,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Id of the image.
    pub(crate) image: Option<String>,
    /// What is in harness images.
    pub(crate) versions: Vec<String>,
}

impl Run {
    /// A line of the log.
    pub(crate) async fn say(&self, text: impl Into<String>) {
        self.lines.send(text.into()).await.ok();
    }

    /// The private folder of this build; gone when it is over.
    pub(crate) fn work(&self) -> PathBuf {
        self.app.builds.folder.work(&self.id)
    }

    /// What was uploaded.
    pub(crate) fn archive(&self) -> PathBuf {
        self.work().join("archive.tar")
    }

    /// Notes an image that goes again unless the build succeeds, also when the daemon dies.
    pub(crate) fn note_made(&self, image: &str) {
        change(&self.app, &self.id, |record| {
            record.made.push(image.to_owned());
        });
    }

    /// The images noted are wanted: they stay whatever comes.
    pub(crate) fn keep_made(&self) {
        change(&self.app, &self.id, |record| record.made.clear());
    }
}

pub(super) fn in_background(app: Arc<App>, id: BuildId, work: Work, writer: LogWriter) {
    spawn_named("build", async move {
        let Some((record, cancel)) = begin(&app, &id) else {
            return;
        };
        let lane = app.builds.lane(record.kind);
        let turn = tokio::select! {
            () = cancel.cancelled() => None,
            turn = lane.acquire_owned() => turn.ok(),
        };
        let outcome = match turn {
            None => Err(ImageError::Cancelled),
            Some(_turn) => {
                change(&app, &id, |record| {
                    record.state = BuildState::Running;
                    record.started_ms = Some(now_ms());
                });
                work_and_log(&app, &id, &record.backend, work, &cancel, writer).await
            }
        };
        end(&app, &id, outcome).await;
    });
}

fn begin(app: &App, id: &BuildId) -> Option<(Record, CancellationToken)> {
    let entries = app.builds.entries();
    let entry = entries.get(id)?;
    Some((entry.record.clone(), entry.cancel.clone()))
}

async fn work_and_log(
    app: &Arc<App>,
    id: &BuildId,
    backend: &str,
    work: Work,
    cancel: &CancellationToken,
    mut writer: LogWriter,
) -> Result<Made, ImageError> {
    let (lines, mut said) = mpsc::channel::<String>(256);
    let run = Run {
        app: app.clone(),
        id: id.clone(),
        backend: backend.to_owned(),
        lines,
        cancel: cancel.clone(),
    };
    let log = async {
        let mut told = Instant::now();
        while let Some(line) = said.recv().await {
            writer.line(&line);
            let step: String = line.trim().chars().take(200).collect();
            if let Some(entry) = app.builds.entries().get_mut(id) {
                entry.record.step = Some(step);
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                publish(app, id);
            }
        }
        writer
    };
    let work = async {
        let outcome = work.run(&run).await;
        if let Err(error) = &outcome {
            run.say(format!("error: {error}")).await;
        }
        // The last sender: the log ends with it.
        drop(run);
        outcome
    };
    let (outcome, writer) = tokio::join!(work, log);
    drop(writer);
    outcome
}

async fn end(app: &Arc<App>, id: &BuildId, outcome: Result<Made, ImageError>) {
    if outcome.is_err() {
        let made = app.builds.entries().get(id).map(|e| e.record.clone());
        if let Some(record) = made {
            remove_made(app, &record).await;
        }
    }
    app.builds.folder.remove_work(id);
    let is_ending = app.shutdown.is_cancelled();
    let backend = app
        .builds
        .entries()
        .get(id)
        .map(|e| e.record.backend.clone());
    change(app, id, |record| match outcome {
        Ok(made) => {
            record.image = made.image;
            record.versions = made.versions;
            record.made.clear();
            record.over(BuildState::Succeeded, None);
        }
        Err(ImageError::Cancelled) if is_ending => {
            record.over(BuildState::Failed, Some("daemon restarted".to_owned()));
        }
        Err(ImageError::Cancelled) => record.over(BuildState::Cancelled, None),
        Err(error) => record.over(BuildState::Failed, Some(error.to_string())),
    });
    if let Some(backend) = backend {
        app.events.publish(ServerEvent::Images { backend });
    }
}

async fn remove_made(app: &App, record: &Record) {
    let Ok(store) = images::store(app, &record.backend) else {
        return;
    };
    // Later ones are made from earlier ones.
    for image in record.made.iter().rev() {
        match store.remove(image).await {
            Ok(()) | Err(ImageError::NotFound(_)) => {}
            Err(error) => tracing::warn!(%error, image, "an image of a build that failed stays"),
        }
    }
}

/// Removes what builds of an earlier daemon left, in the background: engines may have to be started for it.
pub(super) fn clean_up(app: Arc<App>, interrupted: Vec<Record>) {
    spawn_named("build clean-up", async move {
        // Nothing is built meanwhile: what is swept is told by the folder of all builds.
        let _turn = app.builds.building.clone().acquire_owned().await;
        let mut backends: Vec<&str> = interrupted.iter().map(|r| r.backend.as_str()).collect();
        backends.sort_unstable();
        backends.dedup();
        for backend in backends {
            if let Ok(store) = images::store(&app, backend) {
                store.sweep(&app.builds.folder.0).await;
            }
        }
        for record in &interrupted {
            remove_made(&app, record).await;
            app.builds.folder.remove_work(&record.id);
        }
    });
}
