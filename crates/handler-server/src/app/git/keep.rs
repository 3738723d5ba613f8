//! A fork's end: what its project does not have yet is kept there under a hidden reference before the folder goes.

use super::fork::{fork_of, hidden};
use super::worker::{Worker, with_worker};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::ProblemCode;
use handler_types::git::ForkKept;
use handler_types::sandbox::SandboxView;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Keeps what would be lost.
///
/// # Errors
/// When it cannot be kept: nothing may then be removed (unless the person insists).
pub async fn save(app: &App, view: &SandboxView) -> ApiResult<ForkKept> {
    let (fork, path) = fork_of(view)?;
    let project = PathBuf::from(&fork.folder);
    if !project.join(".git").exists() {
        let text = format!(
            "the project {} is not there any more, so the fork's work cannot be kept in it; its folder is {}",
            project.display(),
            path.display()
        );
        return Err(ApiError::new(ProblemCode::Conflict, text));
    }
    let id = view.id.to_string();
    with_worker(app, &[(&project, true), (&path, true)], async |worker| {
        keep(worker, &project, &path, &hidden(&id)).await
    })
    .await
}

/// Removes a fork's folder.
pub fn remove_folder(app: &App, view: &SandboxView) {
    let Ok((_, path)) = fork_of(view) else {
        return;
    };
    let base = path.parent().unwrap_or(&path);
    // Only what was made for forks is ever removed.
    if base.parent() != Some(app.settings.layout.forks_dir().as_path()) {
        return;
    }
    if let Err(error) = handler_engine::remove_folder(base) {
        tracing::warn!(%error, folder = %base.display(), "a fork's folder could not be removed; it goes when the daemon starts again");
    }
}

/// Removes folders that belong to no sandbox: a daemon that died while making or removing a fork leaves them.
/// Their work was kept before their sandbox went, or never began.
pub fn sweep(app: &App) {
    let used: HashSet<PathBuf> = app
        .engine
        .list()
        .iter()
        .filter(|view| view.fork.is_some())
        .filter_map(|view| {
            Path::new(view.scope.as_deref()?)
                .parent()
                .map(Path::to_owned)
        })
        .collect();
    let folders = std::fs::read_dir(app.settings.layout.forks_dir());
    for entry in folders.into_iter().flatten().flatten() {
        if !used.contains(&entry.path())
            && let Err(error) = handler_engine::remove_folder(&entry.path())
        {
            tracing::warn!(%error, folder = %entry.path().display(), "a fork's folder could not be removed");
        }
    }
}

/// Makes the project's commits readable in the fork, and answers the one that is checked out there.
pub(super) async fn borrow(worker: &Worker<'_>, project: &Path, path: &Path) -> ApiResult<String> {
    let from = project.to_string_lossy();
    worker
        .git(
            path,
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
    worker.git(project, &["rev-parse", "HEAD"]).await
}

async fn keep(
    worker: &Worker<'_>,
    project: &Path,
    path: &Path,
    reference: &str,
) -> ApiResult<ForkKept> {
    let commit = snapshot(worker, path).await?;
    let from = path.to_string_lossy();
    // Named in the fork first: a plain commit id cannot be fetched from every Git.
    worker
        .git(path, &["update-ref", "refs/handler/keep", &commit])
        .await?;
    worker
        .git(
            project,
            &[
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                &from,
                "refs/handler/keep",
            ],
        )
        .await?;
    let holders = worker
        .git(
            project,
            &[
                "for-each-ref",
                "--count=1",
                "--contains",
                &commit,
                "--format=%(refname)",
            ],
        )
        .await?;
    if !holders.is_empty() {
        return Ok(ForkKept::default());
    }
    worker
        .git(project, &["update-ref", reference, &commit])
        .await?;
    Ok(ForkKept {
        reference: Some(reference.to_owned()),
        commit: Some(commit),
    })
}

/// The fork's last commit, or one more on top of it with everything that is not committed.
async fn snapshot(worker: &Worker<'_>, path: &Path) -> ApiResult<String> {
    let head = worker.git(path, &["rev-parse", "HEAD"]).await?;
    worker.git(path, &["add", "--all"]).await?;
    let tree = worker.git(path, &["write-tree"]).await?;
    let committed = worker.git(path, &["rev-parse", "HEAD^{tree}"]).await?;
    if tree == committed {
        return Ok(head);
    }
    worker
        .git(
            path,
            &[
                "commit-tree",
                &tree,
                "-p",
                &head,
                "-m",
                "Changes that were not committed when the fork was removed",
            ],
        )
        .await
}
