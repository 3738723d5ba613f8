//! Talking to the launcher: one JSON document each way, bounded in size and time.

use handler_types::launch::{LaunchAnswer, LaunchPlan};
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A launch takes milliseconds; a machine short of everything gets this long.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(20);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest answer, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LauncherError {
    /// The program could not be started.
    #[error("{program} could not be started: {source}")]
    Spawn {
        /// Its path.
        program: String,
        /// The cause.
        source: std::io::Error,
    },
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// What it said is no answer.
    #[error("it ended without a proper answer ({0}); see the log")]
    Answer(String),
}

/// Launches. When this fails, the launcher is dead; a PID 1 may be about to die.
pub(super) async fn launch(
    program: &Path,
    plan: &LaunchPlan,
    log: File,
) -> Result<LaunchAnswer, LauncherError> {
    let owner = format!("--owner={}", plan.owner);
    let text =
        serde_json::to_vec(plan).map_err(|error| LauncherError::Answer(error.to_string()))?;
    run(
        program,
        &["launch", &owner, &plan.id],
        &text,
        log.into(),
        LAUNCH_TIMEOUT,
    )
    .await
}

/// Rehearses on this host; the answer is like that of a launch.
pub(super) async fn probe(program: &Path) -> Result<LaunchAnswer, LauncherError> {
    run(program, &["probe"], b"", Stdio::null(), PROBE_TIMEOUT).await
}

/// The same with what image roots need besides.
pub(super) async fn probe_images(program: &Path) -> Result<LaunchAnswer, LauncherError> {
    let arguments = ["probe", "images"];
    run(program, &arguments, b"", Stdio::null(), PROBE_TIMEOUT).await
}

/// The same with the device of transparent mode besides.
pub(super) async fn probe_transparent(program: &Path) -> Result<LaunchAnswer, LauncherError> {
    let arguments = ["probe", "transparent"];
    run(program, &arguments, b"", Stdio::null(), PROBE_TIMEOUT).await
}

async fn run(
    program: &Path,
    arguments: &[&str],
    input: &[u8],
    errors: Stdio,
    timeout: Duration,
) -> Result<LaunchAnswer, LauncherError> {
    let mut command = handler_base::proc::command(program);
    command
        .arg0("handler-guest")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors);
    let spawned = command.spawn();
    // Ends the copy of the log's descriptor that the command holds.
    drop(command);
    let mut child = spawned.map_err(|source| LauncherError::Spawn {
        program: program.display().to_string(),
        source,
    })?;
    let exchange = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A launcher that ended already says why on its output.
            let _ = stdin.write_all(input).await;
        }
        let mut answer = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = stdout.take(MAX_ANSWER).read_to_end(&mut answer).await;
        }
        let _ = child.wait().await;
        answer
    };
    match tokio::time::timeout(timeout, exchange).await {
        Ok(answer) => parse(&answer),
        Err(_) => {
            let _ = child.kill().await;
            Err(LauncherError::Timeout(timeout))
        }
    }
}

fn parse(answer: &[u8]) -> Result<LaunchAnswer, LauncherError> {
    let line = answer
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    serde_json::from_slice(line).map_err(|error| LauncherError::Answer(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line_and_anything_else_an_error() {
        let ready = parse(b"{\"ready\":{\"pid\":7,\"start_ticks\":9}}\nmore").expect("ready");
        assert_eq!(
            ready,
            LaunchAnswer::Ready {
                pid: 7,
                start_ticks: 9,
                transparent: false,
                obstacle: None,
            }
        );
        assert!(parse(b"").is_err());
        assert!(parse(&[0xff; 100]).is_err());
    }

    #[tokio::test]
    async fn a_program_that_is_missing_or_silent_is_an_error() {
        let missing = probe(Path::new("/proc/nonexistent/guest")).await;
        assert!(matches!(missing, Err(LauncherError::Spawn { .. })));
        let silent = probe(Path::new("/bin/true")).await;
        assert!(matches!(silent, Err(LauncherError::Answer(_))));
    }
}
