//! Removes a tree that an agent may have shaped: unreadable folders, links, endless depth.
//!
//! Works on descriptors: no link is ever followed, no mount is ever crossed (a project folder that is still
//! mounted below is refused, never emptied), and the number of open descriptors is bounded, whatever the
//! depth. It can be cut short at any point and run again.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, renameat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Folders below this depth are moved up to the root first.
const DEEPEST: usize = 40;

/// Removes `path` and all below it. Done also when it does not exist.
///
/// # Errors
/// The first error, with what it was about; the rest was removed as far as possible.
pub fn remove_tree(path: &Path) -> Result<(), std::io::Error> {
    let named = |errno: Errno| {
        let error = std::io::Error::from(errno);
        std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    match unlinkat(CWD, path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(named(errno)),
    }
    let root = match open_folder(CWD, path) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(named(errno)),
    };
    empty_root(root, path)?;
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(named(errno)),
    }
}

/// Removes everything below `path`, which stays. Done also when it does not exist.
///
/// # Errors
/// As [`remove_tree`].
pub(crate) fn empty_tree(path: &Path) -> Result<(), std::io::Error> {
    match open_folder(CWD, path) {
        Ok(root) => empty_root(root, path),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn empty_root(root: OwnedFd, path: &Path) -> Result<(), std::io::Error> {
    let mut removal = Removal {
        root,
        moved: 0,
        again: true,
        failed: None,
    };
    while std::mem::take(&mut removal.again) && removal.failed.is_none() {
        let root = removal.root.try_clone()?;
        removal.empty(root, 0);
    }
    if let Some((name, errno)) = removal.failed {
        let error = std::io::Error::from(errno);
        return Err(std::io::Error::new(
            error.kind(),
            format!("{}: {}: {error}", path.display(), name.to_string_lossy()),
        ));
    }
    Ok(())
}

struct Removal {
    root: OwnedFd,
    /// Numbers the folders moved up.
    moved: u64,
    /// The root got new entries: look again.
    again: bool,
    failed: Option<(CString, Errno)>,
}

impl Removal {
    fn fail(&mut self, name: &CStr, errno: Errno) {
        self.failed.get_or_insert_with(|| (name.to_owned(), errno));
    }

    /// Removes everything in `folder`.
    fn empty(&mut self, folder: OwnedFd, depth: usize) {
        let entries = match Dir::read_from(&folder) {
            Ok(entries) => entries,
            Err(errno) => return self.fail(c".", errno),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return self.fail(c".", errno),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let result = match entry.file_type() {
                FileType::Directory => self.folder(folder.as_fd(), name, depth),
                _ => match unlinkat(&folder, name, AtFlags::empty()) {
                    // A file system that does not tell types.
                    Err(Errno::ISDIR | Errno::PERM) => self.folder(folder.as_fd(), name, depth),
                    other => other,
                },
            };
            match result {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => self.fail(name, errno),
            }
        }
    }

    fn folder(&mut self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Errno> {
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
        let inner = open_folder(parent, name)?;
        if depth >= DEEPEST {
            return self.move_up(parent, name);
        }
        self.empty(inner, depth + 1);
        if self.failed.is_some() {
            return Ok(());
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            // Something in it was moved up into it: it is the root's own turn later.
            Err(Errno::NOTEMPTY) => {
                self.again = true;
                Ok(())
            }
            other => other,
        }
    }

    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        loop {
            let upper = format!(".moved-{}", self.moved);
            self.moved += 1;
            match renameat(parent, name, &self.root, &upper) {
                // Left by a removal that was cut short, and not empty.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Ok(()) => {
                    self.again = true;
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Opens a folder for reading its entries, making it accessible when its owner closed it. Links and mounts
/// are refused (the last component of `path` for the first call, everything after).
fn open_folder(parent: impl AsFd, path: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let handle = open_checked(parent.as_fd(), path, OFlags::PATH)?;
    let readable = Mode::from_raw_mode(0o700);
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    if !mode.contains(readable) {
        std::fs::set_permissions(&link, std::fs::Permissions::from_mode(0o700))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::ACCESS))?;
    }
    open_checked(parent.as_fd(), path, OFlags::RDONLY)
}

fn open_checked(
    parent: BorrowedFd<'_>,
    path: impl rustix::path::Arg + Copy,
    how: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = how | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if parent.as_raw_fd() == CWD.as_raw_fd() {
        // Our own path: its parents are ours, its last component must be a folder.
        return rustix::fs::openat(parent, path, flags, Mode::empty());
    }
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match openat2(parent, path, flags, Mode::empty(), resolve) {
        // A kernel (or a system call filter) without it: at least another file system is refused.
        Err(Errno::NOSYS | Errno::PERM) => {
            let inner = rustix::fs::openat(parent, path, flags, Mode::empty())?;
            let same = rustix::fs::fstat(&inner)?.st_dev == rustix::fs::fstat(parent)?.st_dev;
            if same { Ok(inner) } else { Err(Errno::XDEV) }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_removed_and_not_followed_and_closed_folders_are_opened() {
        let temp = tempfile::tempdir().expect("temp");
        let outside = temp.path().join("outside");
        std::fs::create_dir(&outside).expect("outside");
        std::fs::write(outside.join("kept"), "x").expect("file");
        let root = temp.path().join("root");
        std::fs::create_dir_all(root.join("a/b/c")).expect("folders");
        std::fs::write(root.join("a/b/c/file"), "x").expect("file");
        std::os::unix::fs::symlink(&outside, root.join("a/link")).expect("link");
        std::os::unix::fs::symlink("/nowhere", root.join("a/b/dangling")).expect("link");
        for closed in ["a/b/c", "a/b", "a"] {
            let none = std::fs::Permissions::from_mode(0o000);
            std::fs::set_permissions(root.join(closed), none).expect("closed");
        }
        remove_tree(&root).expect("removed");
        assert!(!root.exists());
        assert!(outside.join("kept").exists());
        remove_tree(&root).expect("again");
    }

    #[test]
    fn a_link_in_place_of_the_tree_goes_and_its_target_stays() {
        let temp = tempfile::tempdir().expect("temp");
        let target = temp.path().join("target");
        std::fs::create_dir(&target).expect("target");
        std::fs::write(target.join("kept"), "x").expect("file");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&target, &link).expect("link");
        remove_tree(&link).expect("removed");
        assert!(target.join("kept").exists());
        assert!(!link.exists());
    }

    #[test]
    fn any_depth_is_removed() {
        let temp = tempfile::tempdir().expect("temp");
        let root = temp.path().join("root");
        std::fs::create_dir(&root).expect("root");
        let mut here =
            rustix::fs::openat(CWD, &root, OFlags::DIRECTORY, Mode::empty()).expect("open");
        for depth in 0..3000 {
            rustix::fs::mkdirat(&here, "d", Mode::from_raw_mode(0o700)).expect("mkdir");
            if depth % 7 == 0 {
                rustix::fs::openat(&here, "f", OFlags::CREATE | OFlags::WRONLY, Mode::empty())
                    .expect("file");
            }
            here =
                rustix::fs::openat(&here, "d", OFlags::DIRECTORY, Mode::empty()).expect("deeper");
        }
        drop(here);
        remove_tree(&root).expect("removed");
        assert!(!root.exists());
    }
}
