//! Making folders, files and links under the new root without ever following a link.
//!
//! Invariant: no path given here can lead outside the new root, and a link that somebody left in a
//! writable place (the home of an earlier start, the project) makes the step fail instead of being
//! followed.

use super::step::{StepError, StepExt};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// How paths inside are looked up.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
/// Not `NOFOLLOW`: with `PATH` that would open a link itself instead of refusing it.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The file tree being built.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
}

impl Tree {
    /// `root`: the mounted new root.
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root }
    }

    /// The new root itself.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Whether this place lies on the new root's own file system (which becomes read-only), not on a mount.
    pub(super) fn is_own(&self, place: BorrowedFd<'_>) -> Result<bool, StepError> {
        let root = rustix::fs::fstat(&self.root).step(|| "stat the new root")?;
        let other = rustix::fs::fstat(place).step(|| "stat a place in the new root")?;
        Ok(root.st_dev == other.st_dev)
    }

    /// Opens a folder, making it and its parents (0755) where they are missing.
    pub(super) fn folder(&self, path: &str) -> Result<OwnedFd, StepError> {
        let relative = relative(path)?;
        let flags = PLACE | OFlags::DIRECTORY;
        match rustix::fs::openat2(&self.root, or_dot(relative), flags, Mode::empty(), INSIDE) {
            Ok(folder) => return Ok(folder),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error).step(|| format!("open folder {path}")),
        }
        let mut folder = self.root.try_clone().step(|| "open the new root")?;
        for part in relative.components() {
            match rustix::fs::mkdirat(&folder, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).step(|| format!("make folder {path}")),
            }
            folder = rustix::fs::openat2(&folder, part.as_os_str(), flags, Mode::empty(), INSIDE)
                .step(|| format!("open folder {path}"))?;
        }
        Ok(folder)
    }

    /// Opens a file as a place to mount on, making it empty where it is missing.
    pub(super) fn file_place(&self, path: &str) -> Result<OwnedFd, StepError> {
        let (parent, name) = self.parent(path)?;
        match rustix::fs::openat2(&parent, name, PLACE, Mode::empty(), INSIDE) {
            Ok(file) => return Ok(file),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error).step(|| format!("open file {path}")),
        }
        drop(create(parent.as_fd(), name, 0o644).step(|| format!("make file {path}"))?);
        rustix::fs::openat2(&parent, name, PLACE, Mode::empty(), INSIDE)
            .step(|| format!("open file {path}"))
    }

    /// Makes a link; what is there already stays.
    pub(super) fn link(&self, path: &str, target: &OsStr) -> Result<(), StepError> {
        let (parent, name) = self.parent(path)?;
        match rustix::fs::symlinkat(target, &parent, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error).step(|| format!("make link {path}")),
        }
    }

    /// Takes away a file or link (never a folder, never what is mounted on), so that another can be written.
    pub(super) fn clear(&self, path: &str) -> Result<(), StepError> {
        let (parent, name) = self.parent(path)?;
        match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::ISDIR | Errno::PERM | Errno::BUSY) => Ok(()),
            Err(error) => Err(error).step(|| format!("replace {path}")),
        }
    }

    /// Writes a new file. `false`: something is there already, and it was left alone.
    pub(super) fn write(&self, path: &str, content: &[u8], mode: u32) -> Result<bool, StepError> {
        let (parent, name) = self.parent(path)?;
        let file = match create(parent.as_fd(), name, mode) {
            Ok(file) => file,
            Err(Errno::EXIST) => return Ok(false),
            Err(error) => return Err(error).step(|| format!("make file {path}")),
        };
        let mut file = std::fs::File::from(file);
        let written = file
            .write_all(content)
            .step(|| format!("write file {path}"));
        if written.is_err() {
            // Half a file must not pass for a whole one at the next start.
            let _ = rustix::fs::unlinkat(&parent, name, AtFlags::empty());
        }
        written.map(|()| true)
    }

    /// The opened parent folder (made where missing) and the last name.
    pub(super) fn parent<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p OsStr), StepError> {
        let relative = relative(path)?;
        let name = relative
            .file_name()
            .ok_or_else(|| StepError::new(format!("path {path}"), "it names no file"))?;
        let parent = Path::new(path)
            .parent()
            .and_then(Path::to_str)
            .unwrap_or("/");
        Ok((self.folder(parent)?, name))
    }
}

fn create(parent: BorrowedFd<'_>, name: &OsStr, mode: u32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode & 0o777);
    let file = rustix::fs::openat(parent, name, flags, mode)?;
    rustix::fs::fchmod(&file, mode)?;
    Ok(file)
}

fn or_dot(relative: &Path) -> &Path {
    if relative.as_os_str().is_empty() {
        Path::new(".")
    } else {
        relative
    }
}

/// The path below `/`; refuses what is not absolute and plain.
fn relative(path: &str) -> Result<&Path, StepError> {
    let wrong = |why: &str| StepError::new(format!("path {path:?}"), why);
    let rest = Path::new(path)
        .strip_prefix("/")
        .map_err(|_| wrong("it is not absolute"))?;
    if path.contains('\0') {
        return Err(wrong("it contains a zero byte"));
    }
    if !rest
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        return Err(wrong("it contains `..`"));
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree_in(folder: &Path) -> Tree {
        Tree::new(OwnedFd::from(std::fs::File::open(folder).expect("opens")))
    }

    #[test]
    fn a_link_in_the_way_is_never_followed() {
        let outside = tempfile::tempdir().expect("temp");
        let inside = tempfile::tempdir().expect("temp");
        symlink(outside.path(), inside.path().join("home")).expect("link");
        symlink(outside.path().join("file"), inside.path().join("file")).expect("link");
        let tree = tree_in(inside.path());
        assert!(tree.folder("/home/agent").is_err());
        assert!(tree.write("/home/x", b"x", 0o644).is_err());
        assert!(tree.file_place("/file").is_err());
        assert_eq!(tree.write("/file", b"x", 0o644).ok(), Some(false));
        assert_eq!(std::fs::read_dir(outside.path()).expect("reads").count(), 0);
    }

    #[test]
    fn folders_files_and_links_are_made_with_their_modes() {
        use std::os::unix::fs::PermissionsExt;
        let inside = tempfile::tempdir().expect("temp");
        let tree = tree_in(inside.path());
        tree.folder("/a/b c/ü").expect("folder");
        assert!(inside.path().join("a/b c/ü").is_dir());
        assert!(tree.write("/a/secret", b"x", 0o600).expect("written"));
        let mode = inside
            .path()
            .join("a/secret")
            .metadata()
            .expect("meta")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        tree.link("/bin", OsStr::new("usr/bin")).expect("link");
        assert_eq!(
            inside.path().join("bin").read_link().expect("link"),
            Path::new("usr/bin")
        );
    }

    #[test]
    fn crooked_paths_are_refused() {
        for path in ["", "a", "/a/../b", "/\0", "/.."] {
            assert!(relative(path).is_err(), "{path:?}");
        }
        assert_eq!(relative("/a/b").expect("plain"), Path::new("a/b"));
    }
}
