//! Sessions of a tmux that runs inside a sandbox: listed, and attached to by a terminal of ours.

use crate::app::{exec, sandboxes};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_engine::guest::GuestHandle;
use handler_types::ProblemCode;
use handler_types::api::{ExecRequest, ExecResult};
use handler_types::terminal::{TmuxSession, TmuxSessions};

/// Exit code of a shell that does not find the program.
const NOT_FOUND: i32 = 127;
/// How long tmux may take, milliseconds.
const TIMEOUT_MS: u64 = 5_000;
/// Longest name of a session, characters.
const LONGEST: usize = 100;
/// What is asked of each session; the name comes last since it may hold anything.
const FORMAT: &str = "#{session_windows} #{session_attached} #{session_created} #{session_name}";

/// The tmux sessions of a sandbox. None when tmux is missing or does not run.
///
/// # Errors
/// An unknown sandbox, or one that does not run.
pub async fn sessions(app: &App, text: &str) -> ApiResult<TmuxSessions> {
    let guest = sandboxes::guest(app, text).await?;
    let listed = run(&guest, "exec tmux list-sessions -F \"$1\"", FORMAT).await?;
    Ok(TmuxSessions {
        installed: listed.exit.code != NOT_FOUND,
        sessions: listed.stdout.lines().filter_map(session).collect(),
    })
}

/// Refuses when the sandbox has no tmux.
///
/// # Errors
/// 409 with what to do.
pub(super) async fn require(guest: &GuestHandle) -> ApiResult<()> {
    let found = run(guest, "command -v tmux", "").await?;
    if found.exit.code == 0 {
        return Ok(());
    }
    Err(ApiError::new(
        ProblemCode::Conflict,
        "tmux is not installed in this sandbox; install it there, or open a plain terminal (it too outlives its \
         viewers)",
    ))
}

/// The program that attaches to a session, made when there is none.
///
/// # Errors
/// A name tmux does not take.
pub(super) fn attach(session: &str) -> ApiResult<Vec<String>> {
    let is_bad = |c: char| c.is_control() || matches!(c, ':' | '.' | '=' | '#');
    if session.is_empty()
        || session.starts_with('-')
        || session.chars().count() > LONGEST
        || session.chars().any(is_bad)
    {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            format!(
                "tmux: a session's name has 1 to {LONGEST} characters, none of them `:`, `.`, `=`, `#`"
            ),
        ));
    }
    let words = ["tmux", "new-session", "-A", "-s", session];
    Ok(words.map(str::to_owned).to_vec())
}

async fn run(guest: &GuestHandle, script: &str, argument: &str) -> ApiResult<ExecResult> {
    let words = ["/bin/sh", "-c", script, "sh", argument];
    let request = ExecRequest {
        argv: words.map(str::to_owned).to_vec(),
        timeout_ms: Some(TIMEOUT_MS),
        max_output: Some(256 * 1024),
        ..Default::default()
    };
    exec::buffered(guest, request).await
}

fn session(line: &str) -> Option<TmuxSession> {
    let mut words = line.splitn(4, ' ');
    Some(TmuxSession {
        windows: words.next()?.parse().ok()?,
        attached: words.next()?.parse().ok()?,
        created: words.next()?.parse().ok()?,
        name: words.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_names_checked() {
        let read = session("2 1 1700000000 my work").expect("a line");
        assert_eq!((read.name.as_str(), read.windows), ("my work", 2));
        assert!(session("no server running").is_none());
        assert!(attach("my work").is_ok());
        for bad in ["", "-x", "a:b", "a.b", "=a", "\u{1}"] {
            assert!(attach(bad).is_err(), "{bad:?}");
        }
    }
}
