//! `handler daemon`.

use super::{Outcome, service};
use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the log read at once.
const MOST_AT_ONCE: u64 = 1 << 20;

/// What to do with the daemon.
#[derive(Debug, Subcommand)]
pub enum DaemonAction {
    /// Start it in the background and wait until it answers
    Start,
    /// Stop it; sandboxes and sessions go on and are found again at the next start
    Stop,
    /// Say whether it runs
    Status,
    /// Make it a service of your systemd: it starts when you log in, and again when it fails
    Install {
        /// Only print the unit
        #[arg(long)]
        dry_run: bool,
    },
    /// Take the service away again; the daemon stops, sandboxes and sessions go on
    Uninstall,
    /// Print its log
    Log {
        /// Go on with what comes, until Ctrl-C
        #[arg(long, short)]
        follow: bool,
    },
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
        DaemonAction::Install { dry_run } => install(dry_run, context).await,
        DaemonAction::Uninstall => uninstall(context).await,
        DaemonAction::Log { follow } => log(follow, context).await,
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
    if service::is_installed() {
        service::ask(&["start", service::UNIT])?;
        return answers(None, 0, context).await;
    }
    start_here(context).await
}

/// Starts it as a process of its own.
async fn start_here(context: &Context) -> Outcome {
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
    let child = std::process::Command::new(&context.program)
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(wrap)?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(wrap)?;
    answers(Some(child), length_before, context).await
}

/// Waits until the daemon answers; `from` is where the log was before.
async fn answers(mut child: Option<Child>, from: u64, context: &Context) -> Outcome {
    let wrap = |e| Failure::local("cannot start the daemon", e);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Ok(health) = context.client()?.health().await {
            context
                .out
                .note(format!("the daemon runs (process {})", health.pid));
            // It is ours until we end: when it ends before, it must not look as if it were still there.
            if let Some(mut child) = child {
                std::thread::spawn(move || child.wait());
            }
            return Ok(0);
        }
        let has_ended = match &mut child {
            Some(child) => child.try_wait().map_err(wrap)?.is_some(),
            None => false,
        };
        if has_ended || Instant::now() > deadline {
            let log = std::fs::read(&context.daemon_log).unwrap_or_default();
            let from = usize::try_from(from).unwrap_or(0).min(log.len());
            let said = String::from_utf8_lossy(&log[from..]).into_owned();
            return Err(Failure::Failed(format!(
                "the daemon did not start: {}",
                said.trim()
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Makes the daemon a service; one that runs already is replaced by it.
///
/// # Errors
/// Without a systemd of the person's, or when it refuses.
pub(super) async fn install(is_dry: bool, context: &Context) -> Outcome {
    let unit = service::unit(context, |name| std::env::var(name).ok())?;
    if is_dry {
        context.out.text(unit);
        return Ok(0);
    }
    if !service::has_manager() {
        return Err(Failure::Failed(
            "no systemd of yours answers here: start the daemon with `handler daemon start`".into(),
        ));
    }
    let file = service::file()?;
    let wrap = |e| Failure::local(format!("cannot write {}", file.display()), e);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(wrap)?;
    }
    if let Some(folder) = context.daemon_log.parent() {
        handler_base::fs::create_private_dir(folder).map_err(wrap)?;
    }
    handler_base::fs::write_atomic(&file, unit.as_bytes(), 0o644).map_err(wrap)?;
    service::ask(&["daemon-reload"])?;
    if context.client()?.health().await.is_ok() {
        stop(context).await?;
    }
    service::ask(&["enable", service::UNIT])?;
    service::ask(&["restart", service::UNIT])?;
    let code = answers(None, 0, context).await?;
    context.out.note(format!(
        "a service now: {}\nto have it without logging in: loginctl enable-linger",
        file.display()
    ));
    Ok(code)
}

/// Takes the service away.
///
/// # Errors
/// When it cannot be stopped or removed. That there is none is said.
pub(super) async fn uninstall(context: &Context) -> Outcome {
    let file = service::file()?;
    if !file.exists() {
        context.out.note("the daemon is no service here");
        return Ok(0);
    }
    if service::has_manager() {
        service::ask(&["disable", "--now", service::UNIT])?;
    }
    std::fs::remove_file(&file)
        .map_err(|e| Failure::local(format!("cannot remove {}", file.display()), e))?;
    if service::has_manager() {
        service::ask(&["daemon-reload"])?;
    }
    context
        .out
        .note("the service is gone; sandboxes and sessions go on");
    Ok(0)
}

/// Prints the log, and what comes.
async fn log(is_followed: bool, context: &Context) -> Outcome {
    let path = &context.daemon_log;
    let wrap = |e| Failure::local(format!("cannot read {}", path.display()), e);
    let mut at = 0;
    loop {
        let mut file = std::fs::File::open(path).map_err(wrap)?;
        let length = file.metadata().map_err(wrap)?.len();
        if length < at {
            // Another file, begun anew.
            at = 0;
        }
        file.seek(SeekFrom::Start(at)).map_err(wrap)?;
        let mut piece = Vec::new();
        file.take(MOST_AT_ONCE)
            .read_to_end(&mut piece)
            .map_err(wrap)?;
        context.out.bytes(&piece);
        at += piece.len() as u64;
        if piece.is_empty() {
            if !is_followed {
                return Ok(0);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Stops the daemon and waits until it is gone.
///
/// # Errors
/// When none answers, or it does not end within 20 s.
pub(super) async fn stop(context: &Context) -> Outcome {
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
