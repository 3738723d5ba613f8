//! The filter's life: one at a time on a control socket, ended by request, by signal, or by itself
//! when nobody has needed it for a while.

use crate::config::EgressConfig;
use crate::control::Control;
use crate::events::Events;
use crate::keep::Keep;
use crate::listener::listen;
use crate::login::Desk;
use crate::registry::Registry;
use crate::resolve::Resolver;
use crate::sandbox::Shared;
use crate::trust::Trust;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// How long a predecessor that is ending is waited for.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(20);

/// Why the filter cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// One runs already.
    #[error("an egress filter already answers at `{0}`; end it first or use another socket")]
    AlreadyRunning(PathBuf),
    /// The control socket cannot be made.
    #[error("the control socket cannot be made: {0}")]
    Listen(String),
    /// The lock beside the socket cannot be taken.
    #[error("the lock `{path}` cannot be taken: {source}")]
    Lock {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process cannot be made fit to hold secrets.
    #[error("the process cannot be protected: {0}")]
    Protect(io::Error),
}

/// Runs the filter until it is told to end, or has not been needed for [`EgressConfig::idle_exit`].
///
/// # Errors
/// See [`RunError`]; nothing is left behind then.
pub async fn run(config: EgressConfig) -> Result<(), RunError> {
    if config.own_process {
        crate::process::harden().map_err(RunError::Protect)?;
    }
    let _lock = take_lock(&config.control_socket).await?;
    let mut place =
        listen(&config.control_socket).map_err(|error| RunError::Listen(error.to_string()))?;
    let shared = Arc::new(Shared {
        events: Events::new(),
        resolver: Resolver {
            hosts: config.hosts,
        },
        proxy: config.upstream_proxy,
        limits: config.limits,
        trust: Trust::new(config.extra_roots_pem),
        logins: Desk::new(),
        keep: Keep::beside(&config.control_socket),
    });
    let registry = Arc::new(Registry::new(shared));
    let control = Arc::new(Control::new(registry.clone()));
    tracing::info!(socket = %config.control_socket.display(), "egress filter runs");
    loop {
        let (listener, listening, _) = place;
        tokio::select! {
            () = control.clone().serve(listener) => {}
            () = control.ended() => tracing::info!("told to end"),
            () = control.unused_for(config.idle_exit) => tracing::info!("not needed any more"),
            () = terminated(config.own_process) => tracing::info!("terminated"),
            () = listening.lost() => {
                tracing::warn!("the control socket was removed; it is made again");
                match listen(&config.control_socket) {
                    Ok(again) => {
                        place = again;
                        continue;
                    }
                    Err(error) => tracing::error!(%error, "the control socket is lost"),
                }
            }
        }
        // The socket goes first: from now on nobody takes us for a filter that works.
        drop(listening);
        break;
    }
    control.close().await;
    registry.close().await;
    Ok(())
}

/// Returns at `SIGTERM`, if this process is ours.
async fn terminated(own_process: bool) {
    if own_process && let Ok(mut term) = signal(SignalKind::terminate()) {
        term.recv().await;
        return;
    }
    std::future::pending::<()>().await;
}

/// Takes the lock beside the socket, held for life. The lock decides, not the socket's file, so two
/// that start at once cannot both run.
async fn take_lock(socket: &Path) -> Result<File, RunError> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let failed = |source| RunError::Lock {
        path: path.clone(),
        source,
    };
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let deadline = Instant::now() + PREDECESSOR_LIMIT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(failed(error.into())),
        }
        if UnixStream::connect(socket).await.is_ok() || Instant::now() >= deadline {
            return Err(RunError::AlreadyRunning(socket.to_owned()));
        }
        tokio::time::sleep(RETRY).await;
    }
}
