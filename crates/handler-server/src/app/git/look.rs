//! What is shown of the repository in a sandbox: Git runs in that sandbox.

use super::{check_name, failed, parse, request};
use crate::app::{exec, sandboxes};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::GuestHandle;
use handler_types::ProblemCode;
use handler_types::api::ExecResult;
use handler_types::git::{GitCommit, GitShow, GitStatus};

/// Most bytes of a patch.
const MOST_PATCH: u64 = 2 * 1024 * 1024;

/// A repository in a running sandbox.
struct Repository {
    guest: GuestHandle,
    folder: String,
}

impl Repository {
    async fn open(app: &App, sandbox: &str, path: Option<&str>) -> ApiResult<Self> {
        let (view, guest) = sandboxes::view_and_guest(app, sandbox).await?;
        let folder = match path {
            None | Some("") => view.workdir,
            Some(path) if path.starts_with('/') => path.to_owned(),
            Some(path) => format!("{}/{path}", view.workdir.trim_end_matches('/')),
        };
        Ok(Self { guest, folder })
    }

    async fn run(&self, args: &[&str], most: Option<u64>) -> ApiResult<ExecResult> {
        let mut request = request(&self.folder, args);
        request.max_output = most;
        let done = exec::buffered(&self.guest, request).await;
        done.map_err(|error| match error.0.code {
            // The guest says so when there is no such program.
            ProblemCode::NotFound => ApiError::new(
                ProblemCode::NotConfigured,
                format!(
                    "git cannot be run in the sandbox (is it in the image, and does {} exist?): {}",
                    self.folder, error.0.detail
                ),
            ),
            _ => error,
        })
    }
}

/// Branch and changes.
///
/// # Errors
/// No such sandbox, no Git in it, no repository there.
pub async fn status(app: &App, sandbox: &str, path: Option<&str>) -> ApiResult<GitStatus> {
    let repository = Repository::open(app, sandbox, path).await?;
    let args = [
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=all",
        "--ignore-submodules=dirty",
    ];
    let done = repository.run(&args, None).await?;
    if done.exit.code != 0 {
        return Err(failed("git status", &done));
    }
    Ok(parse::status(&done.stdout))
}

/// Commits, newest first.
///
/// # Errors
/// As [`status`]; 404 for a reference that is not there.
pub async fn log(
    app: &App,
    sandbox: &str,
    path: Option<&str>,
    from: Option<&str>,
    skip: u32,
    limit: u32,
) -> ApiResult<Vec<GitCommit>> {
    let from = from.filter(|name| !name.is_empty()).unwrap_or("HEAD");
    check_name(from, "ref")?;
    let repository = Repository::open(app, sandbox, path).await?;
    let (limit, skip) = (format!("-n{limit}"), format!("--skip={skip}"));
    let args = ["log", "-z", parse::LOG_FORMAT, &limit, &skip, from, "--"];
    let done = repository.run(&args, None).await?;
    match done.exit.code {
        0 => Ok(parse::commits(&done.stdout)),
        // A repository without a commit has an empty history.
        _ if from == "HEAD" && done.stderr.contains("does not have any commits") => Ok(Vec::new()),
        _ if done.stderr.contains("bad revision") || done.stderr.contains("unknown revision") => {
            Err(unknown(from))
        }
        _ => Err(failed("git log", &done)),
    }
}

/// A commit with its message and patch.
///
/// # Errors
/// As [`log`].
pub async fn show(
    app: &App,
    sandbox: &str,
    path: Option<&str>,
    commit: &str,
) -> ApiResult<GitShow> {
    check_name(commit, "commit")?;
    let repository = Repository::open(app, sandbox, path).await?;
    let revision = format!("{commit}^{{commit}}");
    let head = ["log", "-z", "-n1", parse::LOG_FORMAT, &revision, "--"];
    let done = repository.run(&head, None).await?;
    if done.exit.code != 0 {
        return Err(failed("git log", &done).or_unknown(&done, commit));
    }
    let Some(found) = parse::commits(&done.stdout).pop() else {
        return Err(unknown(commit));
    };
    let id = found.id.clone();
    let message = repository
        .run(&["log", "-n1", "--format=%B", &id, "--"], Some(256 * 1024))
        .await?;
    let args = [
        "show",
        "--format=",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--first-parent",
        &id,
        "--",
    ];
    let patch = repository.run(&args, Some(MOST_PATCH)).await?;
    if patch.exit.code != 0 {
        return Err(failed("git show", &patch));
    }
    Ok(GitShow {
        commit: found,
        message: message.stdout.trim_end().to_owned(),
        truncated: patch.truncated,
        patch: patch.stdout,
    })
}

/// Changes that are not committed, as a patch against the last commit.
///
/// # Errors
/// As [`status`].
pub async fn diff(app: &App, sandbox: &str, path: Option<&str>) -> ApiResult<String> {
    let repository = Repository::open(app, sandbox, path).await?;
    let args = [
        "diff",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "HEAD",
        "--",
    ];
    let done = repository.run(&args, Some(MOST_PATCH)).await?;
    if done.exit.code != 0 {
        return Err(failed("git diff", &done));
    }
    Ok(done.stdout)
}

fn unknown(name: &str) -> ApiError {
    ApiError::new(
        ProblemCode::NotFound,
        format!("there is no commit `{name}` in the repository"),
    )
}

trait OrUnknown {
    fn or_unknown(self, done: &ExecResult, name: &str) -> Self;
}

impl OrUnknown for ApiError {
    fn or_unknown(self, done: &ExecResult, name: &str) -> Self {
        let is_unknown = [
            "bad revision",
            "unknown revision",
            "Needed a single revision",
            "bad object",
        ]
        .iter()
        .any(|text| done.stderr.contains(text));
        if is_unknown { unknown(name) } else { self }
    }
}
