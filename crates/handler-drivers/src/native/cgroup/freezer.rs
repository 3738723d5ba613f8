//! Freezing all processes of a sandbox at once: `freezer.state` of version 1, `cgroup.freeze` of version 2.
//!
//! The folder is made and joined at the start, so that freezing is one write whatever runs inside; what is
//! born while it freezes is frozen too.

use super::folders::{CgroupFolders, make_all, may_write, named, write};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long it may take until all processes stand still (one in an uninterruptible wait can take long).
const PATIENCE: Duration = Duration::from_secs(10);

/// How one folder is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    V1,
    V2,
}

fn kind(folder: &Path) -> Option<Kind> {
    if folder.join("freezer.state").exists() {
        Some(Kind::V1)
    } else if folder.join("cgroup.freeze").exists() {
        Some(Kind::V2)
    } else {
        None
    }
}

/// The folder among these that freezes.
fn freezer(folders: &[PathBuf]) -> Option<(&Path, Kind)> {
    folders
        .iter()
        .find_map(|folder| Some((folder.as_path(), kind(folder)?)))
}

fn is_frozen(folder: &Path, kind: Kind) -> bool {
    let (file, wanted) = match kind {
        Kind::V1 => ("freezer.state", "FROZEN"),
        Kind::V2 => ("cgroup.events", "frozen 1"),
    };
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().any(|line| line.trim() == wanted)
}

impl CgroupFolders {
    /// Why sandboxes cannot be frozen here; `None`: they can.
    pub(in crate::native) fn freezer_obstacle(&self) -> Option<String> {
        let Some(base) = self.freezer_base() else {
            return Some("no cgroup hierarchy with a freezer is mounted".to_owned());
        };
        (!may_write(base)).then(|| format!("{} is not writable by this user", base.display()))
    }

    /// Makes the folder that freezes; where that cannot be, the sandbox is made without.
    pub(super) fn make_freezer(&self, owner: &str, id: &str) -> Option<PathBuf> {
        let folder = self.freezer_folder(owner, id)?;
        match make_all(&folder) {
            Ok(()) => Some(folder),
            Err(error) => {
                tracing::debug!(%error, "a sandbox is made that cannot be frozen");
                None
            }
        }
    }
}

/// Freezes or thaws, and returns when it is so.
pub(in crate::native) async fn freeze(folders: &[PathBuf], freezing: bool) -> io::Result<()> {
    let Some((folder, kind)) = freezer(folders) else {
        let text = "it was started without a freezer; restart it";
        return Err(io::Error::new(ErrorKind::Unsupported, text));
    };
    let (file, text) = match (kind, freezing) {
        (Kind::V1, true) => ("freezer.state", "FROZEN"),
        (Kind::V1, false) => ("freezer.state", "THAWED"),
        (Kind::V2, true) => ("cgroup.freeze", "1"),
        (Kind::V2, false) => ("cgroup.freeze", "0"),
    };
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        // Version 1 may stop half-way and has to be told again.
        write(&folder.join(file), text)?;
        if is_frozen(folder, kind) == freezing {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let message = format!(
                "not all processes stand still after {} s",
                PATIENCE.as_secs()
            );
            return Err(named(folder, &io::Error::other(message)));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Whether all its processes are frozen.
pub(in crate::native) fn is_paused(folders: &[PathBuf]) -> bool {
    freezer(folders).is_some_and(|(folder, kind)| is_frozen(folder, kind))
}

/// Kills what is frozen, so that nothing of it runs on when it is thawed, and thaws it: a frozen process
/// of version 1 dies only then.
pub(in crate::native) fn kill_frozen(folders: &[PathBuf]) {
    let Some((folder, kind)) = freezer(folders) else {
        return;
    };
    match kind {
        // Ends them frozen or not.
        Kind::V2 => {
            write(&folder.join("cgroup.kill"), "1").ok();
            write(&folder.join("cgroup.freeze"), "0").ok();
        }
        Kind::V1 if is_frozen(folder, kind) => {
            // Frozen processes neither end nor fork: the list holds until they are thawed.
            let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for pid in text.lines().filter_map(|line| line.parse().ok()) {
                if let Some(pid) = Pid::from_raw(pid) {
                    kill_process(pid, Signal::KILL).ok();
                }
            }
            write(&folder.join("freezer.state"), "THAWED").ok();
        }
        Kind::V1 => {
            // Half-way is no hindrance to being killed once it is thawed.
            write(&folder.join("freezer.state"), "THAWED").ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernels_words_are_written_and_read() {
        let temp = tempfile::tempdir().expect("temp");
        let (limits, v1, v2) = (
            temp.path().join("limits"),
            temp.path().join("v1"),
            temp.path().join("v2"),
        );
        for folder in [&limits, &v1, &v2] {
            std::fs::create_dir(folder).expect("folder");
        }
        std::fs::write(v1.join("freezer.state"), "THAWED\n").expect("state");
        std::fs::write(v2.join("cgroup.freeze"), "0\n").expect("freeze");
        std::fs::write(v2.join("cgroup.events"), "populated 1\nfrozen 1\n").expect("events");
        let error = freeze(std::slice::from_ref(&limits), true)
            .await
            .expect_err("none");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let folders = [limits.clone(), v1.clone()];
        assert!(!is_paused(&folders));
        freeze(&folders, true).await.expect("frozen");
        assert!(is_paused(&folders));
        freeze(&folders, false).await.expect("thawed");
        assert!(!is_paused(&folders));
        std::fs::write(v1.join("freezer.state"), "FREEZING\n").expect("state");
        assert!(!is_paused(&folders), "half frozen is not frozen");
        assert!(is_paused(std::slice::from_ref(&v2)));
        freeze(std::slice::from_ref(&v2), true)
            .await
            .expect("frozen");
        let text = std::fs::read_to_string(v2.join("cgroup.freeze")).expect("freeze");
        assert!(text.starts_with('1'), "{text}");
        kill_frozen(&[]);
    }
}
