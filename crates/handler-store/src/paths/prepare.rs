//! Makes the folders of a layout private before anything is written to them.
//!
//! Invariant: after [`Layout::prepare`] each folder exists, belongs to the caller and can be entered by
//! nobody else. A folder others could have written to is refused, not mended: what lies in it cannot
//! be trusted.

use super::Layout;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It belongs to another user.
    #[error(
        "folder {} belongs to user {owner}, not to user {user}: give it back with chown, or choose another folder",
        path.display()
    )]
    ForeignOwner {
        /// The folder.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
        /// User id of the caller.
        user: u32,
    },
    /// Others may write to it.
    #[error(
        "folder {} can be written by others (mode {mode:o}): look at what is in it, then run chmod 700 on it",
        path.display()
    )]
    WritableByOthers {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Something else has its name.
    #[error("{} is not a folder", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be made or looked at.
    #[error("folder {} cannot be prepared", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Layout {
    /// Makes the five folders and those this crate's paths need in them, each 0700.
    ///
    /// # Errors
    /// [`PrepareError`] names the folder and what to do.
    pub fn prepare(&self) -> Result<(), PrepareError> {
        for path in self.own_dirs() {
            private_dir(path)?;
        }
        let below = [
            self.state.join("sandboxes"),
            self.state.join("sessions"),
            self.runtime.join("sb"),
            self.runtime.join("eg"),
            self.providers_dir(),
            self.harnesses_dir(),
            self.forks_dir(),
            self.data.join("bin"),
        ];
        below.iter().try_for_each(|path| private_dir(path))
    }
}

fn private_dir(path: &Path) -> Result<(), PrepareError> {
    let failed = |source| PrepareError::Io {
        path: path.to_owned(),
        source,
    };
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    // In /tmp anybody may have put a link under our name; elsewhere a link is the owner's choice.
    let meta = if path.starts_with("/tmp") {
        std::fs::symlink_metadata(path)
    } else {
        std::fs::metadata(path)
    };
    let meta = match (meta, made) {
        (Ok(meta), _) => meta,
        (Err(_), Err(source)) | (Err(source), Ok(())) => return Err(failed(source)),
    };
    if !meta.is_dir() {
        return Err(PrepareError::NotADirectory {
            path: path.to_owned(),
        });
    }
    check_owner(path, &meta)?;
    if meta.permissions().mode() & 0o7777 != 0o700 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

fn check_owner(path: &Path, meta: &std::fs::Metadata) -> Result<(), PrepareError> {
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user {
        return Err(PrepareError::ForeignOwner {
            path: path.to_owned(),
            owner: meta.uid(),
            user,
        });
    }
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(PrepareError::WritableByOthers {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(base: &Path) -> Layout {
        Layout {
            config: base.join("config"),
            state: base.join("deep/state"),
            data: base.join("data"),
            cache: base.join("cache"),
            runtime: base.join("run"),
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    }

    #[test]
    fn folders_are_made_private_and_open_ones_are_closed() {
        let base = tempfile::tempdir().expect("temp folder");
        let layout = layout(base.path());
        std::fs::create_dir(&layout.config).expect("made by hand");
        set_mode(&layout.config, 0o755);
        layout.prepare().expect("prepared");
        layout.prepare().expect("prepared again");
        for path in layout.own_dirs() {
            let mode = std::fs::metadata(path).expect("exists").mode();
            assert_eq!(mode & 0o7777, 0o700, "{path:?}");
        }
    }

    #[test]
    fn a_folder_others_can_write_is_refused() {
        let base = tempfile::tempdir().expect("temp folder");
        let layout = layout(base.path());
        std::fs::create_dir(&layout.data).expect("made by hand");
        for mode in [0o770, 0o707, 0o1777] {
            set_mode(&layout.data, mode);
            let error = layout.prepare().expect_err("writable by others");
            assert!(
                matches!(&error, PrepareError::WritableByOthers { path, .. } if *path == layout.data),
                "{error}"
            );
            assert!(error.to_string().contains("chmod 700"), "{error}");
        }
    }

    #[test]
    fn a_file_and_a_planted_link_are_not_folders() {
        let base = tempfile::Builder::new()
            .tempdir_in("/tmp")
            .expect("temp folder");
        let layout = layout(base.path());
        std::fs::write(&layout.cache, "").expect("file");
        assert!(matches!(
            layout.prepare(),
            Err(PrepareError::NotADirectory { .. })
        ));
        std::fs::remove_file(&layout.cache).expect("remove");
        let target = base.path().join("elsewhere");
        std::fs::create_dir(&target).expect("target");
        std::os::unix::fs::symlink(&target, &layout.runtime).expect("link");
        assert!(matches!(
            layout.prepare(),
            Err(PrepareError::NotADirectory { .. })
        ));
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let base = tempfile::tempdir().expect("temp folder");
        let layout = layout(base.path());
        if !rustix::process::geteuid().is_root() {
            // Without root the one folder of another user that is always there is the system's.
            let error = private_dir(Path::new("/usr")).expect_err("owned by root");
            assert!(
                matches!(error, PrepareError::ForeignOwner { .. }),
                "{error}"
            );
            return;
        }
        std::fs::create_dir(layout.state.parent().expect("parent")).expect("parent");
        std::fs::create_dir(&layout.state).expect("state");
        std::os::unix::fs::chown(&layout.state, Some(12345), None).expect("chown");
        let error = layout.prepare().expect_err("foreign owner");
        assert!(error.to_string().contains("user 12345"), "{error}");
    }
}
