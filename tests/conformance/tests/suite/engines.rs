//! Container engines of this machine: whether they are here, and a Docker daemon of our own.

use crate::setup::Kind;
use anyhow::{Context as _, bail};
use handler_testkit::User;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Why a set-up cannot be here; `None`: it must work.
pub(crate) fn absent(kind: Kind) -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    let need = |program: &str| {
        (!on_path(program)).then(|| {
            format!("there is no {program} on this machine (scripts/test-engines installs it)")
        })
    };
    match kind {
        Kind::Native => None,
        Kind::NativeImage => need("busybox"),
        Kind::PodmanRootless if is_root && User::find("handler-test").is_none() => {
            Some("there is no user handler-test (scripts/test-engines makes it)".to_owned())
        }
        Kind::PodmanRootless => need("podman").or_else(|| need("busybox")),
        Kind::PodmanRootful | Kind::Docker if !is_root => Some("only root can run it".to_owned()),
        Kind::PodmanRootful => need("podman").or_else(|| need("busybox")),
        Kind::Docker => need("dockerd").or_else(|| need("busybox")),
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

/// A Docker daemon with folders of its own and without rules: the machine's firewall is not touched.
#[derive(Debug)]
pub(crate) struct Dockerd {
    pub(crate) socket: PathBuf,
    child: Mutex<Child>,
}

impl Dockerd {
    /// Starts it below `home` and waits until it answers.
    pub(crate) async fn start(home: &Path) -> anyhow::Result<Self> {
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
        let end = Instant::now() + Duration::from_secs(90);
        while std::os::unix::net::UnixStream::connect(&daemon.socket).is_err() {
            if Instant::now() >= end {
                daemon.end();
                let log = std::fs::read_to_string(home.join("dockerd.log")).unwrap_or_default();
                bail!("dockerd does not answer:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(daemon)
    }

    /// Ends it with its containers.
    pub(crate) fn end(&self) {
        let mut child = self.child.lock().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let end = Instant::now() + Duration::from_secs(20);
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}
