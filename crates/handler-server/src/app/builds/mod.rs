//! Rules of builds: queued, run one at a time, followed, cancelled, found again after a restart.
//!
//! What transfers images (pulls, imports) waits for transfers only, so that a long build keeps nobody
//! from an image. A build that fails or is cancelled leaves no image; one that the daemon's end interrupted is
//! failed by the next daemon, which removes what it left.

mod log;
mod record;
mod run;
mod work;

pub(crate) use run::{Made, Run};
pub use work::Work;

use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::build::{BuildKind, BuildState, BuildView};
use handler_types::event::ServerEvent;
use handler_types::{BuildId, ProblemCode};
use log::LogWriter;
use record::{Folder, KEPT, Record};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// Builds that may wait.
const MOST_WAITING: usize = 20;
/// Most of a log that is answered at once, bytes.
const LOG_PIECE: usize = 1024 * 1024;

/// All builds.
#[derive(Debug)]
pub struct Builds {
    folder: Folder,
    entries: Mutex<BTreeMap<BuildId, Entry>>,
    building: Arc<Semaphore>,
    moving: Arc<Semaphore>,
}

#[derive(Debug)]
struct Entry {
    record: Record,
    cancel: CancellationToken,
    log: watch::Receiver<u64>,
    /// Told of every change of the record.
    changed: watch::Sender<u64>,
}

impl Builds {
    /// Those below the daemon's state folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder: Folder(folder),
            entries: Mutex::new(BTreeMap::new()),
            building: Arc::new(Semaphore::new(1)),
            moving: Arc::new(Semaphore::new(1)),
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<BuildId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane(&self, kind: BuildKind) -> Arc<Semaphore> {
        match kind {
            BuildKind::Context | BuildKind::Toolbox | BuildKind::Harness => self.building.clone(),
            BuildKind::Pull | BuildKind::Import => self.moving.clone(),
        }
    }
}

/// A place for an upload that becomes a build; removed unless it does.
#[derive(Debug)]
pub struct Upload {
    record: Record,
    folder: Folder,
    is_taken: bool,
}

impl Upload {
    /// A folder only for it.
    ///
    /// # Errors
    /// A disk that does not take it.
    pub fn begin(app: &App, kind: BuildKind, backend: &str, target: &str) -> ApiResult<Self> {
        let upload = Self {
            record: Record::new(kind, backend, target),
            folder: app.builds.folder.clone(),
            is_taken: false,
        };
        handler_base::fs::create_private_dir(&upload.folder.work(&upload.record.id))
            .map_err(|e| disk("the upload", &e))?;
        Ok(upload)
    }

    /// Where its bytes go.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.work(&self.record.id).join("archive.tar")
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_taken {
            self.folder.remove(&self.record.id);
        }
    }
}

pub(crate) fn disk(what: &str, error: &std::io::Error) -> ApiError {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull => ProblemCode::NoSpace,
        _ => ProblemCode::BackendFailed,
    };
    ApiError::new(code, format!("{what} cannot be written: {error}"))
}

/// Queues a build without an upload.
///
/// # Errors
/// 429 when too many wait; a full disk.
pub fn submit(
    app: &Arc<App>,
    kind: BuildKind,
    backend: &str,
    target: &str,
    work: Work,
) -> ApiResult<BuildView> {
    let upload = Upload::begin(app, kind, backend, target)?;
    submit_upload(app, upload, work)
}

/// Queues a build of what was uploaded.
///
/// # Errors
/// As [`submit`].
pub fn submit_upload(app: &Arc<App>, mut upload: Upload, work: Work) -> ApiResult<BuildView> {
    let record = upload.record.clone();
    let builds = &app.builds;
    let writer = LogWriter::create(&builds.folder.log(&record.id));
    let writer = writer.map_err(|e| disk("the build's log", &e))?;
    let entry = Entry {
        record: record.clone(),
        cancel: app.shutdown.child_token(),
        log: writer.subscribe(),
        changed: watch::Sender::new(0),
    };
    {
        let mut entries = builds.entries();
        let waiting = |e: &&Entry| e.record.state == BuildState::Queued;
        if entries.values().filter(waiting).count() >= MOST_WAITING {
            return Err(ApiError::new(
                ProblemCode::TooMany,
                format!("{MOST_WAITING} builds wait already; try again when some are over"),
            ));
        }
        builds
            .folder
            .save(&record)
            .map_err(|e| disk("the build's record", &e))?;
        entries.insert(record.id.clone(), entry);
    }
    upload.is_taken = true;
    prune(app);
    let view = publish(app, &record.id);
    run::in_background(app.clone(), record.id, work, writer);
    view.ok_or_else(|| ApiError::new(ProblemCode::Internal, "the build is gone"))
}

/// Removes the oldest builds that are over, with their logs.
fn prune(app: &App) {
    let builds = &app.builds;
    let mut entries = builds.entries();
    let mut over: Vec<(i64, BuildId)> = entries
        .values()
        .filter(|e| e.record.state.is_over())
        .map(|e| (e.record.created_ms, e.record.id.clone()))
        .collect();
    over.sort();
    let spare = entries.len().saturating_sub(KEPT);
    for (_, id) in over.into_iter().take(spare) {
        entries.remove(&id);
        builds.folder.remove(&id);
    }
}

/// Changes a record, keeps it, tells everyone.
fn change(app: &App, id: &BuildId, change: impl FnOnce(&mut Record)) {
    {
        let mut entries = app.builds.entries();
        let Some(entry) = entries.get_mut(id) else {
            return;
        };
        change(&mut entry.record);
        if let Err(error) = app.builds.folder.save(&entry.record) {
            tracing::warn!(%error, build = %id, "a build's record is not kept");
        }
        entry.changed.send_modify(|n| *n += 1);
    }
    publish(app, id);
}

fn publish(app: &App, id: &BuildId) -> Option<BuildView> {
    let view = app.builds.entries().get(id).map(view_of)?;
    app.events.publish(ServerEvent::Build {
        build: view.clone(),
    });
    Some(view)
}

fn view_of(entry: &Entry) -> BuildView {
    entry.record.view(*entry.log.borrow())
}

/// All, newest first.
pub fn list(app: &App) -> Vec<BuildView> {
    let mut views: Vec<(i64, BuildView)> = app
        .builds
        .entries()
        .values()
        .map(|entry| (entry.record.created_ms, view_of(entry)))
        .collect();
    views.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| b.1.id.cmp(&a.1.id)));
    views.into_iter().map(|(_, view)| view).collect()
}

/// The id that a text means: whole, or a unique beginning.
///
/// # Errors
/// 404, 409 when several fit.
pub fn find(app: &App, text: &str) -> ApiResult<BuildId> {
    let entries = app.builds.entries();
    let fits: Vec<&BuildId> = entries
        .keys()
        .filter(|id| !text.is_empty() && id.as_str().starts_with(text))
        .collect();
    match fits.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let shown: String = text.chars().take(80).collect();
            Err(ApiError::new(
                ProblemCode::NotFound,
                format!("there is no build `{shown}`; the last {KEPT} are kept"),
            ))
        }
        _ => Err(ApiError::new(
            ProblemCode::Ambiguous,
            format!("{} builds begin like that; give more of the id", fits.len()),
        )),
    }
}

/// One.
///
/// # Errors
/// As [`find`].
pub fn get(app: &App, text: &str) -> ApiResult<BuildView> {
    let id = find(app, text)?;
    let entries = app.builds.entries();
    entries
        .get(&id)
        .map(view_of)
        .ok_or_else(|| ApiError::new(ProblemCode::NotFound, "the build is gone"))
}

/// Cancels one; one that is over stays as it is.
///
/// # Errors
/// As [`find`].
pub fn cancel(app: &App, text: &str) -> ApiResult<BuildView> {
    let id = find(app, text)?;
    if let Some(entry) = app.builds.entries().get(&id) {
        entry.cancel.cancel();
    }
    get(app, text)
}

/// A piece of a log: whole lines from an offset, and the offset behind them.
///
/// # Errors
/// As [`find`]; an unreadable log.
pub async fn log_piece(app: &App, id: &BuildId, offset: u64) -> ApiResult<(String, u64)> {
    let path = app.builds.folder.log(id);
    let read = tokio::task::spawn_blocking(move || log::read(&path, offset, LOG_PIECE)).await;
    read.map_err(|_| ApiError::new(ProblemCode::Internal, "reading the log ended early"))?
        .map_err(|e| {
            ApiError::new(
                ProblemCode::NotFound,
                format!("the log cannot be read: {e}"),
            )
        })
}

/// What a follower waits for: the log's length, and changes of the record.
pub fn watch_build(
    app: &App,
    id: &BuildId,
) -> Option<(watch::Receiver<u64>, watch::Receiver<u64>)> {
    let entries = app.builds.entries();
    let entry = entries.get(id)?;
    Some((entry.log.clone(), entry.changed.subscribe()))
}

/// Waits until one is over; none: it is gone.
pub async fn wait(app: &App, id: &BuildId) -> Option<BuildState> {
    let (_, mut changed) = watch_build(app, id)?;
    loop {
        let state = app.builds.entries().get(id)?.record.state;
        if state.is_over() {
            return Some(state);
        }
        changed.changed().await.ok()?;
    }
}

/// After a start: reads what there is, fails what was interrupted, removes what that left.
pub async fn take_up(app: &Arc<App>) {
    let folder = app.builds.folder.clone();
    if let Err(error) = handler_base::fs::create_private_dir(&folder.0) {
        tracing::error!(%error, "no folder for builds");
        return;
    }
    let mut interrupted = Vec::new();
    for mut record in folder.read_all() {
        if !record.state.is_over() {
            interrupted.push(record.clone());
            record.over(BuildState::Failed, Some("daemon restarted".to_owned()));
            record.made.clear();
            folder.save(&record).ok();
        }
        let length = std::fs::metadata(folder.log(&record.id)).map_or(0, |m| m.len());
        let entry = Entry {
            cancel: CancellationToken::new(),
            log: watch::channel(length).1,
            changed: watch::Sender::new(0),
            record,
        };
        app.builds.entries().insert(entry.record.id.clone(), entry);
    }
    prune(app);
    if !interrupted.is_empty() {
        run::clean_up(app.clone(), interrupted);
    }
}
