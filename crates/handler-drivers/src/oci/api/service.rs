//! Podman's API service as a child of ours: a private socket, settings of our own added to the user's.

use super::config_file;
use crate::oci::error::OciError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::Instant;

/// How long it may take until it answers; the first start of a rootless user makes its storage.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// It ends by itself when nobody used it for so many seconds: what a killed daemon left goes away.
const ORPHAN_SECONDS: u32 = 900;
/// What to do without Podman.
const INSTALL: &str = "install Podman (package `podman`; rootless use also needs `uidmap` and lines for the user in \
    /etc/subuid and /etc/subgid), or name the socket of a running service in HANDLER_PODMAN_SOCKET";

/// A running service.
#[derive(Debug)]
pub(super) struct Service {
    child: Child,
}

/// Where it listens; a service for each runtime.
pub(super) fn socket_in(folder: &Path, runtime: Option<&str>) -> PathBuf {
    match runtime {
        None => folder.join("podman.sock"),
        Some(runtime) => folder.join(format!("{runtime}.sock")),
    }
}

impl Service {
    /// Starts it and waits until it answers.
    pub(super) async fn start(
        folder: &Path,
        runtime: Option<&str>,
        log: &Path,
    ) -> Result<Self, OciError> {
        let broken = |what: &str, error: &dyn std::fmt::Display| {
            OciError::Missing(format!(
                "podman's service cannot be started: {what}: {error}"
            ))
        };
        handler_base::fs::create_private_dir(folder)
            .map_err(|error| broken("its folder", &error))?;
        let socket = socket_in(folder, runtime);
        // What lies there is the socket of an earlier daemon's service, which ends by itself.
        std::fs::remove_file(&socket).ok();
        let settings = config_file::write(folder)
            .await
            .map_err(|error| broken("its settings", &error))?;
        let output = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(log)
            .map_err(|error| broken("its log", &error))?;
        let errors = output
            .try_clone()
            .map_err(|error| broken("its log", &error))?;
        let mut command = handler_base::proc::command("podman");
        if let Some(runtime) = runtime {
            command.args(["--runtime", runtime]);
        }
        command
            .args(["system", "service", "-t", &ORPHAN_SECONDS.to_string()])
            .arg(format!("unix://{}", socket.display()))
            .env_remove("CONTAINER_HOST")
            .env_remove("CONTAINER_CONNECTION")
            .stdout(output)
            .stderr(errors);
        if let Some((name, path)) = settings {
            command.env(name, path);
        }
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                OciError::Missing(format!("Podman was not found: {INSTALL}"))
            }
            _ => broken("the program", &error),
        })?;
        let mut service = Self { child };
        service.answers(&socket, log).await?;
        Ok(service)
    }

    async fn answers(&mut self, socket: &Path, log: &Path) -> Result<(), OciError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(2);
        while UnixStream::connect(socket).await.is_err() {
            let why = if !self.is_alive() {
                "it ended"
            } else if Instant::now() > deadline {
                "it does not answer"
            } else {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
                continue;
            };
            return Err(OciError::Missing(format!(
                "podman's service cannot be used ({why}; its log is {}): try `podman info` as the daemon's user",
                log.display()
            )));
        }
        Ok(())
    }

    /// Whether it still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, and ends it when it does not.
    pub(super) async fn stop(mut self) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // Only what is still our child has this number.
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(GRACE, self.child.wait())
            .await
            .is_err()
        {
            let _ = self.child.kill().await;
        }
    }
}
