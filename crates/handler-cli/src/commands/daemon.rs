//! `handler daemon`.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What to do with the daemon.
#[derive(Debug, Subcommand)]
pub enum DaemonAction {
    /// Start it in the background and wait until it answers
    Start,
    /// Stop it; sandboxes and sessions go on and are found again at the next start
    Stop,
    /// Say whether it runs
    Status,
    /// Print its log
    Log,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: DaemonAction, context: &Context) -> Outcome {
    match action {
        DaemonAction::Start => start(context).await,
        DaemonAction::Stop => stop(context).await,
        DaemonAction::Status => super::status::run(context).await,
        DaemonAction::Log => {
            let log = std::fs::read(&context.daemon_log).map_err(|e| {
                Failure::local(format!("cannot read {}", context.daemon_log.display()), e)
            })?;
            context.out.bytes(&log);
            Ok(0)
        }
    }
}

/// Starts the daemon unless it answers already.
///
/// # Errors
/// When it does not come up within a minute; the message has the end of its log.
pub async fn start(context: &Context) -> Outcome {
    if let Ok(health) = context.client()?.health().await {
        context
            .out
            .note(format!("the daemon runs already (process {})", health.pid));
        return Ok(0);
    }
    let wrap = |e| Failure::local("cannot start the daemon", e);
    if let Some(folder) = context.daemon_log.parent() {
        handler_base::fs::create_private_dir(folder).map_err(wrap)?;
    }
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&context.daemon_log)
        .map_err(wrap)?;
    let length_before = log.metadata().map(|m| m.len()).unwrap_or_default();
    let mut child = std::process::Command::new(&context.program)
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(wrap)?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(wrap)?;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Ok(health) = context.client()?.health().await {
            context
                .out
                .note(format!("the daemon runs (process {})", health.pid));
            return Ok(0);
        }
        let has_ended = child.try_wait().map_err(wrap)?.is_some();
        if has_ended || Instant::now() > deadline {
            let log = std::fs::read(&context.daemon_log).unwrap_or_default();
            let from = usize::try_from(length_before).unwrap_or(0).min(log.len());
            let said = String::from_utf8_lossy(&log[from..]).into_owned();
            return Err(Failure::Failed(format!(
                "the daemon did not start: {}",
                said.trim()
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn stop(context: &Context) -> Outcome {
    let client = context.client()?;
    let health = client.health().await?;
    let pid = i32::try_from(health.pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .ok_or_else(|| Failure::Failed("the daemon's process is unknown".into()))?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .map_err(|e| Failure::local("cannot stop the daemon", e.into()))?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while rustix::process::test_kill_process(pid).is_ok() {
        if Instant::now() > deadline {
            return Err(Failure::Failed(format!(
                "process {} does not end",
                health.pid
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    context
        .out
        .note("the daemon stopped; sandboxes and sessions go on");
    Ok(0)
}
