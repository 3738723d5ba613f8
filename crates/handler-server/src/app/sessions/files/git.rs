//! Earlier versions, read by a process of its own that has limits: a malformed repository costs only that process.

use crate::state::App;
use handler_folder::{Root, git};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

/// Longest a reader is waited for.
const LIMIT: Duration = Duration::from_secs(10);

/// Readers at the same time.
static READERS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(4);

/// Whether the folder is a repository, and the commit its HEAD is at.
pub(super) async fn head(app: &App, root: &Root) -> (bool, Option<String>) {
    let answer = ask(app, root, &["head"], 100).await;
    let answer = answer.and_then(|bytes| String::from_utf8(bytes).ok());
    match answer.as_deref() {
        Some("unborn") => (true, None),
        Some(commit) if git::is_commit(commit) => (true, Some(commit.to_owned())),
        _ => (false, None),
    }
}

/// A file as it was in a commit; none when it was not there or cannot be read.
pub(super) async fn file(app: &App, root: &Root, commit: &str, path: &str) -> Option<Vec<u8>> {
    let answer = ask(app, root, &["file", commit, path], git::MAX_FILE + 8).await?;
    let end = answer.iter().take(8).position(|&byte| byte == b'\n')?;
    Some(answer[end + 1..].to_vec())
}

async fn ask(app: &App, root: &Root, args: &[&str], most: usize) -> Option<Vec<u8>> {
    let _turn = READERS.acquire().await.ok()?;
    let answer = tokio::time::timeout(LIMIT, run(app, root, args, most)).await;
    match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::warn!(%error, "a repository cannot be read");
            None
        }
        Err(_) => {
            tracing::warn!("reading a repository took too long");
            None
        }
    }
}

/// None for a status other than 0: it was not there, malformed, or beyond a limit.
async fn run(
    app: &App,
    root: &Root,
    args: &[&str],
    most: usize,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut child = handler_base::proc::command(&app.program)
        .arg0("handler")
        .arg("read-git")
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(root.share()?))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(most as u64 + 1)
            .read_to_end(&mut answer)
            .await?;
    }
    if answer.len() > most {
        child.kill().await?;
        return Ok(None);
    }
    let status = child.wait().await?;
    Ok(status.success().then_some(answer))
}
