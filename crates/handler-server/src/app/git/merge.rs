//! Taking a fork's work back: merged into what the project has checked out, or put on top of it. With conflicts
//! nothing changes, neither there nor here.

use super::failed;
use super::fork::fork_of;
use super::keep;
use super::worker::{Worker, with_worker};
use crate::app::sandboxes;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::ProblemCode;
use handler_types::git::{MergeRequest, MergeResult, MergeStrategy};
use std::path::{Path, PathBuf};

/// Takes the work back.
///
/// # Errors
/// 404: no fork; 409: uncommitted changes on either side; what Git refuses.
pub async fn run(app: &App, sandbox: &str, request: MergeRequest) -> ApiResult<MergeResult> {
    let view = sandboxes::find(app, sandbox).await?;
    let (fork, path) = fork_of(&view)?;
    let project = PathBuf::from(&fork.folder);
    let message = request
        .message
        .unwrap_or_else(|| format!("Merge {} from a fork", fork.branch));
    with_worker(app, &[(&project, true), (&path, true)], async |worker| {
        clean(worker, &project, "the project").await?;
        clean(worker, &path, "the fork").await?;
        match request.strategy {
            MergeStrategy::Merge => merge(worker, &project, &path, &message).await,
            MergeStrategy::Rebase => rebase(worker, &project, &path).await,
        }
    })
    .await
}

async fn clean(worker: &Worker<'_>, folder: &Path, whose: &str) -> ApiResult<()> {
    let changes = worker
        .git(
            folder,
            &["status", "--porcelain=v1", "--untracked-files=no"],
        )
        .await?;
    if changes.is_empty() {
        return Ok(());
    }
    let count = changes.lines().count();
    Err(ApiError::new(
        ProblemCode::Conflict,
        format!("{whose} has {count} changes that are not committed: commit or undo them first"),
    ))
}

async fn head(worker: &Worker<'_>, folder: &Path) -> ApiResult<String> {
    worker.git(folder, &["rev-parse", "HEAD"]).await
}

/// Brings the fork's commits into the project's objects; answers the newest.
async fn fetch(worker: &Worker<'_>, project: &Path, path: &Path) -> ApiResult<String> {
    let from = path.to_string_lossy();
    worker
        .git(
            project,
            &[
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                &from,
                "HEAD",
            ],
        )
        .await?;
    head(worker, path).await
}

async fn merge(
    worker: &Worker<'_>,
    project: &Path,
    path: &Path,
    message: &str,
) -> ApiResult<MergeResult> {
    let theirs = fetch(worker, project, path).await?;
    let done = worker
        .try_git(
            project,
            &["merge", "--no-ff", "--quiet", "-m", message, &theirs],
        )
        .await?;
    if done.exit.code == 0 {
        return Ok(MergeResult {
            merged: true,
            head: head(worker, project).await?,
            conflicts: Vec::new(),
        });
    }
    let conflicts = conflicts(worker, project).await?;
    worker.try_git(project, &["merge", "--abort"]).await?;
    if conflicts.is_empty() {
        return Err(failed("git merge", &done));
    }
    Ok(MergeResult {
        merged: false,
        head: head(worker, project).await?,
        conflicts,
    })
}

async fn rebase(worker: &Worker<'_>, project: &Path, path: &Path) -> ApiResult<MergeResult> {
    let onto = keep::borrow(worker, project, path).await?;
    let done = worker.try_git(path, &["rebase", "--quiet", &onto]).await?;
    if done.exit.code != 0 {
        let conflicts = conflicts(worker, path).await?;
        worker.try_git(path, &["rebase", "--abort"]).await?;
        if conflicts.is_empty() {
            return Err(failed("git rebase", &done));
        }
        return Ok(MergeResult {
            merged: false,
            head: head(worker, project).await?,
            conflicts,
        });
    }
    let theirs = fetch(worker, project, path).await?;
    worker
        .git(project, &["merge", "--ff-only", "--quiet", &theirs])
        .await?;
    Ok(MergeResult {
        merged: true,
        head: head(worker, project).await?,
        conflicts: Vec::new(),
    })
}

async fn conflicts(worker: &Worker<'_>, folder: &Path) -> ApiResult<Vec<String>> {
    let listed = worker
        .git(folder, &["diff", "--name-only", "--diff-filter=U", "-z"])
        .await?;
    Ok(listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect())
}
