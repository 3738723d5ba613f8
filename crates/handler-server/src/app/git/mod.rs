//! Git of sandboxes: what is shown of a repository, and forks of a project.
//!
//! Invariant: Git never runs on the host. A repository is data that an agent may have prepared (hooks, filters,
//! pagers, file system monitors), so Git runs in the sandbox it is about, or, for what touches a project and a
//! fork together, in a sandbox made for that one step (`worker`).

pub mod fork;
pub mod keep;
pub mod look;
pub mod merge;
mod parse;
mod worker;

use crate::http::problem::{ApiError, ApiResult};
use handler_types::ProblemCode;
use handler_types::api::{ExecRequest, ExecResult};
use std::collections::BTreeMap;

/// Longest one Git command may take, milliseconds.
const LIMIT_MS: u64 = 10 * 60 * 1000;

/// Where forks of projects lie in the project: nobody's branch, not pushed, not seen by `git branch`.
const HIDDEN: &str = "refs/handler/forks";

/// A Git command that runs nothing the repository brought along and asks nobody.
fn request(folder: &str, args: &[&str]) -> ExecRequest {
    let mut argv: Vec<String> = [
        "git",
        "--no-pager",
        "--literal-pathspecs",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.quotePath=false",
        "-c",
        "commit.gpgSign=false",
        "-c",
        "gc.auto=0",
        "-c",
        "protocol.ext.allow=never",
        "-c",
        "submodule.recurse=false",
        "-C",
        folder,
    ]
    .map(str::to_owned)
    .to_vec();
    argv.extend(args.iter().map(|&arg| arg.to_owned()));
    let env = [
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_EDITOR", "true"),
        ("LC_ALL", "C.UTF-8"),
        // The folder may belong to another user than the one Git runs as; both are the person's.
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "safe.directory"),
        ("GIT_CONFIG_VALUE_0", "*"),
    ];
    ExecRequest {
        argv,
        env: env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        timeout_ms: Some(LIMIT_MS),
        ..ExecRequest::default()
    }
}

/// What a failed command said, as a refusal.
fn failed(what: &str, done: &ExecResult) -> ApiError {
    let said = if done.stderr.trim().is_empty() {
        &done.stdout
    } else {
        &done.stderr
    };
    let said: String = said.trim().chars().take(600).collect();
    let is_no_repository = said.contains("not a git repository");
    let code = match (done.exit.code, is_no_repository) {
        _ if done.exit.timed_out => ProblemCode::Timeout,
        (_, true) => ProblemCode::Conflict,
        (127, _) => ProblemCode::NotConfigured,
        _ => ProblemCode::BackendFailed,
    };
    let text = match (done.exit.code, is_no_repository) {
        (_, true) => "there is no Git repository here".to_owned(),
        (127, _) => "there is no git in the sandbox: use an image that has it".to_owned(),
        _ => format!("{what}: {said}"),
    };
    ApiError::new(code, text)
}

/// A name of a branch, tag or commit that cannot be taken for an option or a path trick.
fn check_name(name: &str, what: &str) -> ApiResult<()> {
    let is_plain = !name.is_empty()
        && name.len() <= 200
        && !name.starts_with(['-', '/', '.'])
        && !name.ends_with(['/', '.'])
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains("//")
        && !name.ends_with(".lock")
        && name
            .chars()
            .all(|c| !c.is_control() && !c.is_whitespace() && !"~^:?*[\\".contains(c));
    if is_plain {
        return Ok(());
    }
    Err(ApiError::new(
        ProblemCode::Invalid,
        format!("{what}: `{name}` cannot be a Git name"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_would_take_for_something_else_are_refused() {
        for good in ["main", "feature/größe", "v1.2", "a-b_c", "0123abc"] {
            assert!(check_name(good, "branch").is_ok(), "{good}");
        }
        for bad in [
            "",
            "-x",
            "--exec=sh",
            "a..b",
            "a b",
            "a~1",
            "HEAD^",
            "x:y",
            "/a",
            "a/",
            "a//b",
            "a.lock",
            "@{-1}",
            "x@{1}",
            ".a",
            "a\nb",
            "*",
        ] {
            assert!(check_name(bad, "branch").is_err(), "{bad}");
        }
    }
}
