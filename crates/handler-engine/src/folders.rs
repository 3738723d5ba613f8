//! The folders of sandboxes on disk, and who may make and remove them: nobody else does.
//!
//! ```text
//! <state>/sandboxes/<id>/         kept until the sandbox is removed (home, logs)
//! <runtime>/sb/<id>/              sockets of a running sandbox; short path
//! <runtime>/eg/<id>/proxy.sock    where the egress filter listens for it
//! ```
//!
//! Invariant: an id's folder exists whole or not at all. Before its content goes it is renamed to a
//! tombstone (`.gone-…`), which a later sweep removes when this one is cut short.

use crate::remove_tree::remove_tree;
use handler_types::SandboxId;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What every tombstone's name starts with.
const TOMBSTONE: &str = ".gone-";

/// Why a folder could not be made or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub struct FolderError {
    what: String,
    #[source]
    source: std::io::Error,
}

impl FolderError {
    fn new(what: &str, path: &Path, source: std::io::Error) -> Self {
        Self {
            what: format!("{what} {}", path.display()),
            source,
        }
    }

    /// Whether the disk is full.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.source.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        )
    }
}

/// Paths of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPaths {
    /// Kept until the sandbox is removed.
    pub dir: PathBuf,
    /// For sockets.
    pub runtime_dir: PathBuf,
    /// For the egress filter's socket.
    pub egress_dir: PathBuf,
}

impl SandboxPaths {
    /// Where the egress filter listens.
    #[must_use]
    pub fn egress_socket(&self) -> PathBuf {
        self.egress_dir.join("proxy.sock")
    }
}

/// The folders that hold those of all sandboxes. Blocking: called on a blocking thread.
#[derive(Debug, Clone)]
pub struct SandboxFolders {
    kept: PathBuf,
    runtime: PathBuf,
    egress: PathBuf,
}

impl SandboxFolders {
    /// Below the daemon's state and runtime folders.
    #[must_use]
    pub fn new(state_dir: &Path, runtime_dir: &Path) -> Self {
        Self {
            kept: state_dir.join("sandboxes"),
            runtime: runtime_dir.join("sb"),
            egress: runtime_dir.join("eg"),
        }
    }

    /// Paths of a sandbox.
    #[must_use]
    pub fn of(&self, id: &SandboxId) -> SandboxPaths {
        SandboxPaths {
            dir: self.kept.join(id.as_str()),
            runtime_dir: self.runtime.join(id.as_str()),
            egress_dir: self.egress.join(id.as_str()),
        }
    }

    /// Makes a sandbox's folders. Runtime folders are made anew, so that no old socket is in the way.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn make(&self, id: &SandboxId) -> Result<SandboxPaths, FolderError> {
        let paths = self.of(id);
        self.remove_runtime(id)?;
        for path in [&paths.dir, &paths.runtime_dir, &paths.egress_dir] {
            handler_base::fs::create_private_dir(path)
                .map_err(|error| FolderError::new("make the folder", path, error))?;
        }
        Ok(paths)
    }

    /// Removes what a sandbox has only while it runs.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn remove_runtime(&self, id: &SandboxId) -> Result<(), FolderError> {
        let paths = self.of(id);
        for path in [&paths.runtime_dir, &paths.egress_dir] {
            remove_tree(path)
                .map_err(|error| FolderError::new("remove the folder", path, error))?;
        }
        Ok(())
    }

    /// Removes a sandbox's kept folder with all it holds.
    ///
    /// # Errors
    /// [`FolderError`]; what is left is a tombstone and goes with the next sweep.
    pub fn remove_kept(&self, id: &SandboxId) -> Result<(), FolderError> {
        let dir = self.of(id).dir;
        let tombstone = self
            .kept
            .join(format!("{TOMBSTONE}{id}-{}", handler_base::random::hex(4)));
        match std::fs::rename(&dir, &tombstone) {
            Ok(()) => remove_tree(&tombstone),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(|error| FolderError::new("remove the folder", &dir, error))
    }

    /// Ids that have a folder of any kind.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn ids(&self) -> Result<BTreeSet<SandboxId>, FolderError> {
        let mut ids = BTreeSet::new();
        for parent in [&self.kept, &self.runtime, &self.egress] {
            ids.extend(names(parent)?.iter().filter_map(|name| name.parse().ok()));
        }
        Ok(ids)
    }

    /// Removes tombstones; what cannot be removed stays for the next time, with a warning in the log.
    ///
    /// # Errors
    /// [`FolderError`] when they cannot be listed.
    pub fn sweep(&self) -> Result<(), FolderError> {
        for name in names(&self.kept)? {
            if !name.starts_with(TOMBSTONE) {
                continue;
            }
            if let Err(error) = remove_tree(&self.kept.join(&name)) {
                tracing::warn!(%error, "a removed sandbox's folder is still there");
            }
        }
        Ok(())
    }
}

/// Names in a folder that are text; none when it does not exist.
fn names(folder: &Path) -> Result<Vec<String>, FolderError> {
    let failed = |error| FolderError::new("list the folder", folder, error);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_cut_short_is_finished_by_the_sweep() {
        let temp = tempfile::tempdir().expect("temp");
        let folders = SandboxFolders::new(&temp.path().join("state"), &temp.path().join("run"));
        folders.sweep().expect("nothing yet");
        let id = SandboxId::from_random([1; 8]);
        let paths = folders.make(&id).expect("made");
        std::fs::create_dir_all(paths.dir.join("home/x")).expect("content");
        std::fs::write(paths.egress_socket(), "").expect("socket");
        assert_eq!(folders.ids().expect("ids"), BTreeSet::from([id.clone()]));

        let tombstone = paths.dir.with_file_name(format!("{TOMBSTONE}{id}-x"));
        std::fs::rename(&paths.dir, &tombstone).expect("a removal begins");
        folders.remove_runtime(&id).expect("runtime");
        assert_eq!(folders.ids().expect("ids"), BTreeSet::new());
        folders.sweep().expect("swept");
        assert!(!tombstone.exists());
        folders.remove_kept(&id).expect("again");
    }
}
