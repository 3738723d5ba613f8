//! Engines to test with: each private to the test where that is possible, and gone afterwards.

use handler_drivers::oci::images::OciImages;
use handler_drivers::oci::{Flavour, OciApi, OciSource};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// An engine and a folder to work in.
pub(crate) struct Engine {
    pub(crate) api: OciApi,
    pub(crate) images: OciImages,
    pub(crate) flavour: Flavour,
    pub(crate) folder: TempDir,
    daemon: Option<Child>,
}

fn skip(name: &str, why: &str) {
    eprintln!("SKIP {name}: {why}");
}

impl Engine {
    /// The user's Podman through a service of our own.
    pub(crate) async fn podman(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let source = OciSource::Service {
            folder: folder.path().join("service"),
            log: folder.path().join("service.log"),
        };
        Self::reach(test, Flavour::Podman, source, folder, None).await
    }

    /// A Docker daemon with a store of its own.
    pub(crate) async fn docker(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip(test, "a private Docker daemon needs root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let log = std::fs::File::create(at("dockerd.log")).expect("a log");
        let daemon = Command::new("dockerd")
            .arg("--host")
            .arg(format!("unix://{}", at("docker.sock").display()))
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .args(["--bridge=none", "--iptables=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn();
        let daemon = match daemon {
            Ok(daemon) => daemon,
            Err(error) => {
                skip(test, &format!("dockerd cannot be run: {error}"));
                return None;
            }
        };
        let source = OciSource::Socket(at("docker.sock"));
        Self::reach(test, Flavour::Docker, source, folder, Some(daemon)).await
    }

    async fn reach(
        test: &str,
        flavour: Flavour,
        source: OciSource,
        folder: TempDir,
        daemon: Option<Child>,
    ) -> Option<Self> {
        let api = OciApi::new(flavour, source);
        let engine = Self {
            images: OciImages::new(api.clone()),
            api,
            flavour,
            folder,
            daemon,
        };
        let mut why = String::new();
        let tries = if engine.daemon.is_some() { 300 } else { 1 };
        for _ in 0..tries {
            match engine.api.connect().await {
                Ok(_) => return Some(engine),
                Err(error) => why = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        skip(test, &why);
        None
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let pid = rustix::process::Pid::from_child(daemon);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        daemon.wait().ok();
        unmount_below(self.folder.path());
    }
}

/// Mounts that a daemon left would keep the folder from being removed.
fn unmount_below(folder: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = |line: &str| line.split(' ').nth(1).map(str::to_owned);
    for target in mounts
        .lines()
        .filter_map(below)
        .filter(|t| Path::new(t).starts_with(folder))
    {
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH).ok();
    }
}
