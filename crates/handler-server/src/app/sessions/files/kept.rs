//! `baseline.json` in a session's own folder, which no agent sees: how the folder was when the session first started.

use super::{blocking, git, root, walking};
use crate::app::sessions::folder;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_folder::Limits;
use handler_folder::baseline::Baseline;
use handler_store::rows::SessionRow;
use handler_types::{ProblemCode, SessionId};
use std::path::{Path, PathBuf};

fn path(app: &App, id: &SessionId) -> PathBuf {
    folder(app, id).join("baseline.json")
}

/// Records the folder, unless that was done: changes are always since the session started first.
pub(super) async fn record(app: &App, row: &SessionRow) -> ApiResult<()> {
    let path = path(app, &row.id);
    if path.exists() {
        return Ok(());
    }
    let root = root(row.scope.clone()).await?;
    let (is_git, commit) = git::head(app, &root).await;
    let since_ms = handler_base::clock::now_ms();
    walking(move || {
        let mut baseline = Baseline::take(&root, since_ms, Limits::default());
        baseline.is_git = is_git;
        baseline.commit = commit;
        save(&path, &baseline)
    })
    .await
}

/// Writes it whole.
pub(super) async fn keep(app: &App, id: &SessionId, baseline: Baseline) -> ApiResult<()> {
    let path = path(app, id);
    blocking(move || save(&path, &baseline)).await
}

fn save(path: &Path, baseline: &Baseline) -> ApiResult<()> {
    let text = serde_json::to_vec(baseline).unwrap_or_default();
    handler_base::fs::write_atomic(path, &text, 0o600)
        .map_err(|error| ApiError::new(ProblemCode::NoSpace, error.to_string()))
}

/// What was recorded; none before the first start.
pub(super) async fn load(app: &App, id: &SessionId) -> ApiResult<Option<Baseline>> {
    let path = path(app, id);
    blocking(move || match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ApiError::internal("reading how the folder was", &error)),
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| ApiError::internal("reading how the folder was", &error)),
    })
    .await
}
