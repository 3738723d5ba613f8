//! Folders and files made beneath a root that a sandbox may write to: opened part by part by descriptor, no link
//! is ever followed.

use super::identity::Identity;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, mkdirat, open, openat, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

const FOLDER: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::RDONLY);

/// A folder beneath which things are made, and whose they become.
#[derive(Debug)]
pub(super) struct Beneath {
    root: OwnedFd,
    owner: Option<Identity>,
}

impl Beneath {
    /// Opens the root. `owner`: whom everything made belongs to; none: us.
    pub(super) fn open(root: &Path, owner: Option<Identity>) -> io::Result<Self> {
        let root = open(root, FOLDER, Mode::empty())?;
        Ok(Self { root, owner })
    }

    /// Gives the root itself to the owner, with these permission bits.
    pub(super) fn own_root(&self, mode: u32) -> io::Result<()> {
        self.give(self.root.as_fd())?;
        Ok(fchmod(&self.root, Mode::from_raw_mode(mode))?)
    }

    /// Makes a folder with those above it; what exists stays as it is. A link on the way is an error.
    pub(super) fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut at = self.root.try_clone()?;
        for part in path.components() {
            let Component::Normal(name) = part else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let made = mkdirat(&at, name, Mode::from_raw_mode(0o755));
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let next = openat(&at, name, FOLDER, Mode::empty())?;
            if made.is_ok() {
                self.give(next.as_fd())?;
            }
            at = next;
        }
        Ok(at)
    }

    /// Makes an empty file for something to be mounted on, unless something is there.
    pub(super) fn file_place(&self, path: &Path) -> io::Result<()> {
        self.write(path, b"", 0o644).map(drop)
    }

    /// Writes a file, unless something is there; answers whether it was written.
    pub(super) fn write(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = self.folder(parent)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&folder, name, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => file,
            Err(Errno::EXIST) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let written = File::from(file.try_clone()?)
            .write_all(content)
            .and_then(|()| self.give(file.as_fd()))
            .and_then(|()| Ok(fchmod(&file, Mode::from_raw_mode(mode & 0o777))?));
        if written.is_err() {
            let _ = unlinkat(&folder, name, AtFlags::empty());
        }
        written.map(|()| true)
    }

    fn give(&self, to: impl AsFd) -> io::Result<()> {
        match self.owner {
            Some(owner) => Ok(fchown(
                to,
                Some(Uid::from_raw(owner.uid)),
                Some(Gid::from_raw(owner.gid)),
            )?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_on_the_way_is_refused_and_what_exists_is_left() {
        let temp = tempfile::tempdir().expect("temp");
        let root = temp.path().join("root");
        std::fs::create_dir(&root).expect("root");
        let outside = temp.path().join("outside");
        std::fs::create_dir(&outside).expect("outside");
        std::os::unix::fs::symlink(&outside, root.join("link")).expect("link");
        let beneath = Beneath::open(&root, None).expect("opens");
        assert!(beneath.write(Path::new("link/x"), b"1", 0o600).is_err());
        assert!(beneath.write(Path::new("../x"), b"1", 0o600).is_err());
        assert!(std::fs::read_dir(&outside).expect("reads").next().is_none());
        assert!(
            beneath
                .write(Path::new("a/b/c"), b"1", 0o640)
                .expect("writes")
        );
        assert!(
            !beneath
                .write(Path::new("a/b/c"), b"2", 0o640)
                .expect("left")
        );
        assert_eq!(std::fs::read(root.join("a/b/c")).expect("reads"), b"1");
        std::os::unix::fs::symlink(outside.join("y"), root.join("a/l")).expect("link");
        assert!(!beneath.write(Path::new("a/l"), b"2", 0o640).expect("left"));
        assert!(!outside.join("y").exists());
    }
}
