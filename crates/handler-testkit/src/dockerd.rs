//! A Docker daemon of one's own, for tests and measurements.

use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it may take until it answers.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long it may take to end its containers and itself.
const GRACE: Duration = Duration::from_secs(20);

/// A Docker daemon with folders of its own and without rules: the machine's firewall is not touched. It ends with
/// this value.
#[derive(Debug)]
pub struct Dockerd {
    socket: PathBuf,
    child: Mutex<Child>,
}

impl Dockerd {
    /// Starts it below `home` and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, may not be started, or does not answer; then with its log.
    pub async fn start(home: &Path) -> anyhow::Result<Self> {
        let socket = home.join("docker.sock");
        let log = std::fs::File::create(home.join("dockerd.log"))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let child = Command::new("dockerd")
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .arg(format!("--host=unix://{}", socket.display()))
            .arg(format!("--data-root={}", home.join("data").display()))
            .arg(format!("--exec-root={}", home.join("exec").display()))
            .arg(format!("--pidfile={}", home.join("dockerd.pid").display()))
            .args(["--iptables=false", "--ip-masq=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start dockerd")?;
        let daemon = Self {
            socket,
            child: Mutex::new(child),
        };
        let end = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(&daemon.socket).is_err() {
            if Instant::now() >= end || !daemon.is_alive() {
                daemon.end();
                let log = std::fs::read_to_string(home.join("dockerd.log")).unwrap_or_default();
                bail!("dockerd does not answer:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(daemon)
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn is_alive(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(child.try_wait(), Ok(None))
    }

    /// Ends it with its containers.
    pub fn end(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let end = Instant::now() + GRACE;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        self.end();
    }
}
