//! The folder of a session (contract F.8): followed while its agent works, read when it is stopped, changes taken back.
//!
//! Invariant: the folder is the agent's. It is opened by descriptor beneath itself (`handler-folder`), its repository
//! is read by a process of its own (`git`), and what it says is shown, never run.

mod git;
mod kept;
mod look;
mod mounts;
mod reveal;
mod revert;

pub use look::{changes, file, find, folder};
pub use mounts::mounts;
pub use reveal::reveal;
pub use revert::{diff, revert};

use super::find_row;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_folder::baseline::Baseline;
use handler_folder::{FolderError, Root};
use handler_store::rows::SessionRow;
use handler_types::ProblemCode;
use handler_types::sandbox::SandboxSpec;
use std::path::Path;
use std::sync::Arc;

/// Largest text or image that is shown, bytes.
const MAX_SHOWN: usize = 1024 * 1024;

/// Walks through folders that are made at the same time, by all sessions together.
static WALKS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);

/// Records, before a session's sandbox is made, how its folder is (the first time) and what its agent sees.
/// What cannot be recorded does not keep a session from starting.
pub(super) async fn record_start(app: &App, row: &SessionRow, spec: &SandboxSpec) {
    if let Err(error) = mounts::record(app, row, spec).await {
        tracing::warn!(session = %row.id, error = %error.0.detail, "what its agent sees could not be recorded");
    }
    if let Err(error) = kept::record(app, row).await {
        tracing::warn!(session = %row.id, error = %error.0.detail, "its folder could not be recorded");
    }
}

/// A session's folder, or what one of its mounts shows.
struct Opened {
    row: SessionRow,
    root: Arc<Root>,
    /// How the session's folder was; none for a mount, or when it was not recorded.
    baseline: Option<Arc<Baseline>>,
}

async fn open(app: &App, session: &str, mount: Option<&str>) -> ApiResult<Opened> {
    let row = find_row(app, session).await?;
    if let Some(target) = mount.filter(|target| !target.is_empty()) {
        let source = mounts::source(app, &row, target).await?;
        return Ok(Opened {
            root: root(source).await?,
            baseline: None,
            row,
        });
    }
    let root = root(row.scope.clone()).await?;
    let baseline = kept::load(app, &row.id).await?.map(Arc::new);
    Ok(Opened {
        row,
        root,
        baseline,
    })
}

async fn root(path: String) -> ApiResult<Arc<Root>> {
    let opened = blocking(move || {
        Root::open(Path::new(&path)).map_err(|error| {
            let detail = format!("the folder {path} cannot be opened: {error}");
            ApiError::new(ProblemCode::NotFound, detail)
        })
    });
    opened.await.map(Arc::new)
}

/// Runs what waits for disks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| ApiError::new(ProblemCode::Internal, "the look at the folder ended early"))?
}

/// As [`blocking`], for a walk through the whole folder: few at once.
async fn walking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let _turn = WALKS
        .acquire()
        .await
        .map_err(|_| ApiError::new(ProblemCode::Unavailable, "the daemon ends"))?;
    blocking(work).await
}

/// A refusal of the folder under the contract's titles.
fn refused(error: FolderError) -> ApiError {
    let text = error.to_string();
    match error {
        FolderError::NotShown(_) => ApiError::titled(ProblemCode::Invalid, "path not shown", text),
        FolderError::NotFound(_) => ApiError::titled(ProblemCode::NotFound, "not found", text),
        FolderError::Changed(_) => {
            ApiError::titled(ProblemCode::Conflict, "changed meanwhile", text)
        }
        FolderError::Refused(_) => {
            ApiError::titled(ProblemCode::Conflict, "cannot be reverted", text)
        }
        FolderError::Io { source, .. } => {
            let code = match source.kind() {
                std::io::ErrorKind::StorageFull => ProblemCode::NoSpace,
                std::io::ErrorKind::PermissionDenied => ProblemCode::PathNotAllowed,
                _ => ProblemCode::BackendFailed,
            };
            ApiError::new(code, text)
        }
    }
}

/// The text of a file, if it is one that is shown.
fn as_text(bytes: Vec<u8>) -> Option<String> {
    (bytes.len() <= MAX_SHOWN && !bytes.contains(&0))
        .then(|| String::from_utf8(bytes).ok())
        .flatten()
}
