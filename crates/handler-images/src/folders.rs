//! Where the store keeps what, and how it is opened: staging emptied, one changer at a time.

use crate::digest::Digest;
use handler_base::fs::create_private_dir;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// How long a broken fetch can be gone on with.
const KEEP_PARTS: Duration = Duration::from_secs(3 * 24 * 3600);

/// The store's folders.
#[derive(Debug)]
pub(crate) struct Folders {
    root: PathBuf,
    /// Held while this process may change the store.
    lock: Mutex<Option<File>>,
}

impl Folders {
    /// Makes them. Sweeps what a crash left if nobody else uses the store.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        create_private_dir(root)?;
        for name in ["layers", "images", "blobs", "pins", "staging", "empty"] {
            create_private_dir(&root.join(name))?;
        }
        let folders = Self {
            root: root.canonicalize()?,
            lock: Mutex::new(None),
        };
        if folders.hold()? {
            folders.sweep_staging();
            folders.sweep_blobs();
        }
        Ok(folders)
    }

    /// Takes the lock if it is not taken yet; `false`: another process has it.
    pub(crate) fn hold(&self) -> io::Result<bool> {
        let mut lock = self
            .lock
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if lock.is_some() {
            return Ok(true);
        }
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.root.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                *lock = Some(file);
                Ok(true)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn sweep_staging(&self) {
        let entries = std::fs::read_dir(self.staging_root())
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            if let Err(error) = handler_engine::remove_folder(&entry.path()) {
                tracing::warn!(%error, "something half-made cannot be removed from the image store");
            }
        }
    }

    /// What was fetched in part and never asked for again.
    fn sweep_blobs(&self) {
        let entries = std::fs::read_dir(self.root.join("blobs"))
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let time = entry.metadata().and_then(|meta| meta.modified());
            let is_old = time.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > KEEP_PARTS));
            if is_old {
                std::fs::remove_file(entry.path()).ok();
            }
        }
    }

    fn staging_root(&self) -> PathBuf {
        self.root.join("staging")
    }

    /// A new folder for something that is being made; removed when dropped.
    pub(crate) fn staging(&self) -> io::Result<Staging> {
        let path = self.staging_root().join(handler_base::random::hex(12));
        create_private_dir(&path)?;
        Ok(Staging { path })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(crate) fn layer(&self, digest: &Digest) -> PathBuf {
        self.layers().join(digest.hex())
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(crate) fn image(&self, id: &Digest) -> PathBuf {
        self.images().join(format!("{}.json", id.hex()))
    }

    pub(crate) fn names(&self) -> PathBuf {
        self.root.join("names.json")
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.hex())
    }

    pub(crate) fn pins(&self) -> PathBuf {
        self.root.join("pins")
    }

    /// An empty folder, for overlays of a single layer.
    pub(crate) fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }
}

/// A folder of something being made.
#[derive(Debug)]
pub(crate) struct Staging {
    path: PathBuf,
}

impl Staging {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = handler_engine::remove_folder(&self.path) {
            tracing::warn!(%error, "something half-made stays in the image store until the next start");
        }
    }
}
