//! Forks: a project's repository as a whole copy with a branch of its own, and a sandbox that works on it.
//!
//! A fork is a clone and no work tree of the project: its sandbox never sees the project's `.git`, so an agent in
//! it can neither plant hooks there nor damage its objects. Work comes back by `merge`, and what was not taken
//! back stays in the project under a hidden reference when the fork goes (`keep`).

use super::keep;
use super::worker::{Worker, with_worker};
use super::{HIDDEN, check_name};
use crate::app::sandboxes;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::ProblemCode;
use handler_types::api::Page;
use handler_types::git::{CreateFork, ForkOf, ForkView};
use handler_types::sandbox::{CreateSandbox, SandboxView};
use std::path::{Path, PathBuf};

/// Makes a fork and its sandbox.
///
/// # Errors
/// A bad name, a folder that is no repository's root, a branch that exists, and what the engine refuses; nothing
/// is then left.
pub async fn create(app: &App, request: CreateFork) -> ApiResult<SandboxView> {
    check_name(&request.branch, "branch")?;
    let base = request.base.as_deref().unwrap_or("HEAD");
    check_name(base, "base")?;
    let (project, parent) = project_of(app, &request).await?;
    let mut spec = spec_of(app, request.spec.unwrap_or_default(), parent.as_ref())?;
    let copy = Copy::make(app, &project)?;
    let base = with_worker(
        app,
        &[(&project, false), (copy.base(), true)],
        async |worker| clone(worker, &project, &copy.path, &request.branch, base).await,
    )
    .await?;
    spec.scope = Some(copy.path.to_string_lossy().into_owned());
    let fork = ForkOf {
        folder: project.to_string_lossy().into_owned(),
        branch: request.branch,
        base,
        sandbox: parent.map(|view| view.id.to_string()),
    };
    let view = sandboxes::create_with(app, spec, Some(fork)).await?;
    copy.keep();
    Ok(view)
}

/// The folder to fork: the root of a repository in a work folder.
async fn project_of(app: &App, request: &CreateFork) -> ApiResult<(PathBuf, Option<SandboxView>)> {
    let refuse = |text: &str| ApiError::new(ProblemCode::Invalid, text);
    let (folder, parent) = match (&request.sandbox, &request.folder) {
        (Some(sandbox), None) => {
            let view = sandboxes::find(app, sandbox).await?;
            let scope = view
                .scope
                .clone()
                .ok_or_else(|| refuse("the sandbox has no project folder that could be forked"))?;
            // A fork of a fork is a fork of the fork's folder, which is no work folder.
            let folder = match view.fork {
                Some(_) => PathBuf::from(scope),
                None => sandboxes::work_folder(app, &scope)?.into(),
            };
            (folder, Some(view))
        }
        (None, Some(folder)) => (sandboxes::work_folder(app, folder)?.into(), None),
        _ => return Err(refuse("name a sandbox or a folder, not both")),
    };
    if !folder.join(".git").exists() {
        let text = format!("{} is not the root of a Git repository", folder.display());
        return Err(ApiError::new(ProblemCode::Conflict, text));
    }
    Ok((folder, parent))
}

fn spec_of(
    app: &App,
    mut spec: CreateSandbox,
    parent: Option<&SandboxView>,
) -> ApiResult<CreateSandbox> {
    if spec.scope.is_some() {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "scope: a fork's folder is made for it",
        ));
    }
    let Some(parent) = parent else {
        return Ok(spec);
    };
    if spec.backend.is_none() {
        spec.backend = Some(parent.backend.clone());
        if spec.image.is_none() {
            spec.image = parent.image.as_ref().map(|image| image.reference.clone());
            spec.confinement = spec.confinement.max(parent.confinement);
            spec.runtime = spec.runtime.or_else(|| parent.runtime.clone());
        }
    }
    if spec.network.is_none() {
        spec.network = Some(parent.network.clone());
    }
    if spec.resources == handler_types::sandbox::Resources::default() {
        spec.resources = parent.resources;
    }
    spec.project = spec.project.or_else(|| parent.project.clone());
    if spec.env.is_empty() {
        // Stand-ins of secrets are the parent's alone; plain variables are taken over.
        let parent = app
            .engine
            .spec(&parent.id)
            .map_err(sandboxes::engine_error)?;
        let is_stand_in = |name: &str| {
            parent
                .phantoms
                .iter()
                .any(|p| p.env.as_deref() == Some(name))
        };
        spec.env = parent.env.clone();
        spec.env.retain(|name, _| !is_stand_in(name));
    }
    Ok(spec)
}

/// A new folder `<forks>/<random>/<project name>` that goes again unless it is kept.
struct Copy {
    path: PathBuf,
    is_kept: bool,
}

impl Copy {
    fn make(app: &App, project: &Path) -> ApiResult<Self> {
        let name = project.file_name().unwrap_or_else(|| "project".as_ref());
        let base = app
            .settings
            .layout
            .forks_dir()
            .join(handler_base::random::hex(8));
        handler_base::fs::create_private_dir(&base).map_err(|e| {
            ApiError::new(
                ProblemCode::BackendFailed,
                format!("the fork's folder: {e}"),
            )
        })?;
        Ok(Self {
            path: base.join(name),
            is_kept: false,
        })
    }

    fn base(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = handler_engine::remove_folder(self.base())
        {
            tracing::warn!(%error, folder = %self.base().display(), "a fork's folder could not be removed; it goes when the daemon starts again");
        }
    }
}

/// Clones with objects of its own (no links: the fork's agent could write through them) and makes the branch.
async fn clone(
    worker: &Worker<'_>,
    project: &Path,
    copy: &Path,
    branch: &str,
    base: &str,
) -> ApiResult<String> {
    let taken = format!("refs/heads/{branch}");
    let exists = worker
        .try_git(project, &["show-ref", "--verify", "--quiet", &taken])
        .await?;
    if exists.exit.code == 0 {
        let text = format!("the project has a branch `{branch}` already");
        return Err(ApiError::new(ProblemCode::Conflict, text));
    }
    let commit = worker
        .git(
            project,
            &[
                "rev-parse",
                "--verify",
                "--end-of-options",
                &format!("{base}^{{commit}}"),
            ],
        )
        .await
        .map_err(|_| {
            let text = format!(
                "there is no commit `{base}` in the project (an empty repository cannot be forked)"
            );
            ApiError::new(ProblemCode::NotFound, text)
        })?;
    let (from, to) = (project.to_string_lossy(), copy.to_string_lossy());
    let parent = copy.parent().unwrap_or(copy);
    worker
        .git(
            parent,
            &[
                "clone",
                "--quiet",
                "--no-hardlinks",
                "--no-checkout",
                &from,
                &to,
            ],
        )
        .await?;
    worker
        .git(copy, &["checkout", "--quiet", "-b", branch, &commit])
        .await?;
    upstream(worker, project, copy).await?;
    Ok(commit)
}

/// The fork's `origin` is the project's own, if it has one: the project's folder is not to be seen there.
async fn upstream(worker: &Worker<'_>, project: &Path, copy: &Path) -> ApiResult<()> {
    let url = worker
        .try_git(project, &["config", "--get", "remote.origin.url"])
        .await?;
    let url = url.stdout.trim();
    if url.is_empty() {
        worker.git(copy, &["remote", "remove", "origin"]).await?;
    } else {
        worker
            .git(copy, &["remote", "set-url", "origin", url])
            .await?;
    }
    Ok(())
}

/// All forks with how they stand.
///
/// # Errors
/// What Git or the engine refuses.
pub async fn list(app: &App) -> ApiResult<Page<ForkView>> {
    let mut items = Vec::new();
    for view in app.engine.list() {
        if view.fork.is_some() {
            items.push(stand(app, &view).await?);
        }
    }
    Ok(Page {
        items,
        next_cursor: None,
    })
}

/// How one fork stands.
///
/// # Errors
/// 404 when the sandbox is no fork.
pub async fn get(app: &App, sandbox: &str) -> ApiResult<ForkView> {
    let view = sandboxes::find(app, sandbox).await?;
    stand(app, &view).await
}

async fn stand(app: &App, view: &SandboxView) -> ApiResult<ForkView> {
    let (fork, path) = fork_of(view)?;
    let project = PathBuf::from(&fork.folder);
    let counts = with_worker(app, &[(&project, false), (&path, true)], async |worker| {
        let objects = keep::borrow(worker, &project, &path).await?;
        let (ahead, behind) = counts(worker, &path, &objects).await?;
        let changes = worker
            .git(
                &path,
                &["status", "--porcelain=v1", "-z", "--untracked-files=all"],
            )
            .await?;
        let uncommitted = changes.split('\0').filter(|line| !line.is_empty()).count() as u64;
        Ok((ahead, behind, uncommitted))
    })
    .await?;
    let (ahead, behind, uncommitted) = counts;
    Ok(ForkView {
        sandbox: view.id.to_string(),
        name: view.name.clone(),
        path: path.to_string_lossy().into_owned(),
        fork,
        ahead,
        behind,
        uncommitted,
        merged: ahead == 0,
    })
}

async fn counts(worker: &Worker<'_>, path: &Path, head: &str) -> ApiResult<(u64, u64)> {
    let range = format!("{head}...HEAD");
    let counted = worker
        .git(path, &["rev-list", "--left-right", "--count", &range, "--"])
        .await?;
    let mut numbers = counted.split_whitespace().filter_map(|n| n.parse().ok());
    let behind = numbers.next().unwrap_or(0);
    Ok((numbers.next().unwrap_or(0), behind))
}

/// Where a sandbox was forked from, and its own folder.
pub(super) fn fork_of(view: &SandboxView) -> ApiResult<(ForkOf, PathBuf)> {
    match (&view.fork, &view.scope) {
        (Some(fork), Some(scope)) => Ok((fork.clone(), PathBuf::from(scope))),
        _ => Err(ApiError::new(
            ProblemCode::NotFound,
            format!("{} is no fork", view.name),
        )),
    }
}

/// The hidden reference for what a fork leaves behind.
pub(super) fn hidden(id: &str) -> String {
    format!("{HIDDEN}/{id}")
}
