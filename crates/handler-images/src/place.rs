//! Making things beneath one folder by descriptor, as the root of an image would see them.
//!
//! Parents are looked up with the folder as root: a link in the way is followed as it would be inside, and
//! leads at most to the folder itself. Last names are never followed.

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// How parents are looked up.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// How deep a folder that is replaced may be.
const DEEPEST: usize = 512;

/// Why something was not made.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// What is there already forbids it.
    Blocked(&'static str),
    /// The file system takes no `user.` attributes.
    Attributes,
    /// The system's word.
    System(Errno),
}

impl From<Errno> for PlaceError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOTDIR => Self::Blocked("lies below something that is no folder"),
            errno => Self::System(errno),
        }
    }
}

type Made<T = ()> = Result<T, PlaceError>;

/// The folder things are made in.
#[derive(Debug)]
pub(crate) struct Place {
    root: OwnedFd,
    /// The last parent, opened; archives list the entries of a folder together.
    last: Option<(PathBuf, OwnedFd)>,
}

impl Place {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root, last: None }
    }

    pub(crate) fn set_root_mode(&self, mode: u32) -> Made {
        let root = rustix::fs::openat(
            &self.root,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(rustix::fs::fchmod(root, Mode::from_raw_mode(mode))?)
    }

    /// Bytes that an ordinary user may still write.
    pub(crate) fn free_bytes(&self) -> Result<u64, Errno> {
        let stat = rustix::fs::fstatvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Makes a folder; one that is there only gets the mode.
    pub(crate) fn folder(&mut self, parent: &[OsString], name: &OsStr, mode: u32) -> Made {
        let mode = Mode::from_raw_mode(mode);
        let at = self.parent(parent)?;
        let before = kind_of(at, name)?;
        match before {
            Some(FileType::Directory) => {}
            Some(_) => {
                rustix::fs::unlinkat(at, name, AtFlags::empty())?;
                rustix::fs::mkdirat(at, name, Mode::RWXU)?;
            }
            None => rustix::fs::mkdirat(at, name, Mode::RWXU)?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(at, name, flags, Mode::empty())?;
        rustix::fs::fchmod(&folder, mode)?;
        if before.is_some_and(|kind| kind != FileType::Directory) {
            self.forget(parent, name);
        }
        // Deleted and made anew in the same layer: nothing of the old one shows.
        if before == Some(FileType::CharacterDevice) {
            set_opaque(folder.as_fd())?;
        }
        Ok(())
    }

    /// Makes an empty file in place of whatever was there.
    pub(crate) fn file(&mut self, parent: &[OsString], name: &OsStr) -> Made<OwnedFd> {
        let at = self.clear(parent, name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            at,
            name,
            flags,
            Mode::RUSR | Mode::WUSR,
        )?)
    }

    /// Gives a written file its mode and time.
    pub(crate) fn finish(file: impl AsFd, mode: u32, mtime: i64) -> Made {
        let file = file.as_fd();
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
        let time = Timespec {
            tv_sec: mtime,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        // A time that the file system cannot keep is no reason to fail.
        let _ = rustix::fs::futimens(file, &times);
        Ok(())
    }

    pub(crate) fn link(&mut self, parent: &[OsString], name: &OsStr, target: &[u8]) -> Made {
        if target.is_empty() || target.contains(&0) {
            return Err(PlaceError::Blocked("is a link to nothing"));
        }
        let at = self.clear(parent, name)?;
        Ok(rustix::fs::symlinkat(OsStr::from_bytes(target), at, name)?)
    }

    pub(crate) fn hard_link(
        &mut self,
        from: (&[OsString], &OsStr),
        parent: &[OsString],
        name: &OsStr,
    ) -> Made {
        let source =
            rustix::fs::openat2(&self.root, joined(from.0), FOLDER, Mode::empty(), INSIDE)?;
        match kind_of(source.as_fd(), from.1)?.ok_or(Errno::NOENT)? {
            FileType::RegularFile | FileType::Symlink => {}
            _ => {
                return Err(PlaceError::Blocked(
                    "is a hard link to something that is no file",
                ));
            }
        }
        let at = self.parent(parent)?;
        if same(source.as_fd(), from.1, at, name)? {
            return Ok(());
        }
        let at = self.clear(parent, name)?;
        // Without following: a link is linked itself.
        Ok(rustix::fs::linkat(
            &source,
            from.1,
            at,
            name,
            AtFlags::empty(),
        )?)
    }

    /// "What lies below this layer at this name is deleted."
    pub(crate) fn whiteout(&mut self, parent: &[OsString], name: &OsStr) -> Made {
        let at = self.parent(parent)?;
        // A layer that deletes and makes the same name anew lists both, in any order.
        match kind_of(at, name)? {
            None => {}
            Some(FileType::Directory) => {
                let mut whole = parent.to_vec();
                whole.push(name.to_owned());
                return self.make_opaque(&whole);
            }
            Some(_) => return Ok(()),
        }
        Ok(rustix::fs::mknodat(
            at,
            name,
            FileType::CharacterDevice,
            Mode::empty(),
            0,
        )?)
    }

    /// "Of what lies below this layer, nothing shows in this folder."
    pub(crate) fn make_opaque(&mut self, folder: &[OsString]) -> Made {
        self.parent(folder)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat2(&self.root, joined(folder), flags, Mode::empty(), INSIDE)?;
        set_opaque(folder.as_fd())
    }

    /// The opened parent, made where it is missing.
    fn parent(&mut self, parts: &[OsString]) -> Made<BorrowedFd<'_>> {
        let path = joined(parts);
        let is_last = self.last.as_ref().is_some_and(|(last, _)| *last == path);
        if !is_last {
            let opened = match rustix::fs::openat2(&self.root, &path, FOLDER, Mode::empty(), INSIDE)
            {
                Err(Errno::NOENT) => self.make_parents(parts)?,
                opened => opened?,
            };
            self.last = Some((path, opened));
        }
        match &self.last {
            Some((_, folder)) => Ok(folder.as_fd()),
            None => Ok(self.root.as_fd()),
        }
    }

    fn make_parents(&self, parts: &[OsString]) -> Made<OwnedFd> {
        let mut path = PathBuf::from(".");
        let mut at = rustix::fs::openat2(&self.root, ".", FOLDER, Mode::empty(), INSIDE)?;
        for part in parts {
            path.push(part);
            let next = rustix::fs::openat2(&self.root, &path, FOLDER, Mode::empty(), INSIDE);
            at = match next {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                        Err(Errno::EXIST) => {
                            return Err(PlaceError::Blocked(
                                "lies below a link that leads nowhere",
                            ));
                        }
                        made => made?,
                    }
                    rustix::fs::openat2(&self.root, &path, FOLDER, Mode::empty(), INSIDE)?
                }
                next => next?,
            };
        }
        Ok(at)
    }

    /// Removes what is at this place and answers its parent.
    fn clear(&mut self, parent: &[OsString], name: &OsStr) -> Made<BorrowedFd<'_>> {
        let at = self.parent(parent)?;
        match kind_of(at, name)? {
            None => {}
            Some(FileType::Directory) => {
                remove_below(at, name, 0)?;
                self.forget(parent, name);
            }
            Some(_) => {
                rustix::fs::unlinkat(at, name, AtFlags::empty())?;
                self.forget(parent, name);
            }
        }
        self.parent(parent)
    }

    /// A parent that was opened through what is gone must be looked up anew.
    fn forget(&mut self, parent: &[OsString], name: &OsStr) {
        let gone = joined(parent).join(name);
        let through = |(last, _): &(PathBuf, OwnedFd)| last.starts_with(&gone);
        if self.last.as_ref().is_some_and(through) {
            self.last = None;
        }
    }
}

fn set_opaque(folder: BorrowedFd<'_>) -> Made {
    match rustix::fs::fsetxattr(folder, "user.overlay.opaque", b"y", XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP | Errno::PERM) => Err(PlaceError::Attributes),
        done => Ok(done?),
    }
}

fn joined(parts: &[OsString]) -> PathBuf {
    let mut path = PathBuf::from(".");
    path.extend(parts.iter().map(Path::new));
    path
}

/// What is there, links not followed.
pub(crate) fn kind_of(at: BorrowedFd<'_>, name: &OsStr) -> Result<Option<FileType>, Errno> {
    match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn same(one: BorrowedFd<'_>, a: &OsStr, other: BorrowedFd<'_>, b: &OsStr) -> Result<bool, Errno> {
    let one = rustix::fs::statat(one, a, AtFlags::SYMLINK_NOFOLLOW)?;
    match rustix::fs::statat(other, b, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(other) => Ok(one.st_dev == other.st_dev && one.st_ino == other.st_ino),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a folder this archive has made before.
fn remove_below(at: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Result<(), Errno> {
    if depth > DEEPEST {
        return Err(Errno::NAMETOOLONG);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(at, name, flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = Vec::new();
    let mut listing = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push(OsStr::from_bytes(name).to_owned());
        }
    }
    for entry in entries {
        match rustix::fs::unlinkat(&folder, &entry, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::ISDIR | Errno::PERM) => remove_below(folder.as_fd(), &entry, depth + 1)?,
            Err(error) => return Err(error),
        }
    }
    rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR)
}
