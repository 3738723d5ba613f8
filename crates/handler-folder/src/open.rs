//! Opening beneath a folder. The one place of this crate where a path becomes a descriptor.

use crate::error::FolderError;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat,
    statat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// Longest path, bytes.
const MAX_PATH: usize = 4000;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket, a device.
    Other,
}

/// How a file or link was when it was looked at. Two looks at an untouched file are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, i64, u64, i64, u32)", into = "(u64, i64, u64, i64, u32)")]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since the epoch; anybody can set it.
    pub modified: i64,
    /// Inode number.
    pub inode: u64,
    /// Nanoseconds since the epoch; the kernel alone sets it.
    pub changed: i64,
    /// Type and permission bits.
    pub mode: u32,
}

impl From<(u64, i64, u64, i64, u32)> for Stat {
    fn from((size, modified, inode, changed, mode): (u64, i64, u64, i64, u32)) -> Self {
        Self {
            size,
            modified,
            inode,
            changed,
            mode,
        }
    }
}

impl From<Stat> for (u64, i64, u64, i64, u32) {
    fn from(stat: Stat) -> Self {
        (
            stat.size,
            stat.modified,
            stat.inode,
            stat.changed,
            stat.mode,
        )
    }
}

impl Stat {
    pub(crate) fn new(raw: &rustix::fs::Stat) -> Self {
        let nanos = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000) + rest;
        // The types differ between machines.
        let part = |nanos: u64| i64::try_from(nanos).unwrap_or(0).clamp(0, 999_999_999);
        Self {
            size: u64::try_from(raw.st_size).unwrap_or(0),
            modified: nanos(raw.st_mtime, part(raw.st_mtime_nsec)),
            inode: raw.st_ino,
            changed: nanos(raw.st_ctime, part(raw.st_ctime_nsec)),
            mode: raw.st_mode,
        }
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match FileType::from_raw_mode(self.mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        }
    }
}

/// One thing in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name; bytes that are no text are shown as U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file.
    pub size: Option<u64>,
    /// Where a link leads, as it says.
    pub target: Option<String>,
}

/// Something found, held by descriptor; not opened for reading yet.
#[derive(Debug)]
pub struct Place {
    fd: OwnedFd,
    /// How it is.
    pub stat: Stat,
}

/// A folder; nothing outside it is reached.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// Whether a path is one that is shown: relative, plain names, no `.git`. Empty: the folder itself.
///
/// # Errors
/// [`FolderError::NotShown`].
pub fn check(path: &str) -> Result<(), FolderError> {
    let refuse = |why: &str| {
        let shown: String = path.chars().take(200).collect();
        Err(FolderError::NotShown(format!("`{shown}`: {why}")))
    };
    if path.is_empty() {
        return Ok(());
    }
    if path.len() > MAX_PATH || path.contains('\0') {
        return refuse("no path of a file");
    }
    if path.starts_with('/') {
        return refuse("write it relative to the folder");
    }
    for part in path.split('/') {
        match part {
            "" | "." | ".." => return refuse("write it without `.`, `..` and empty names"),
            ".git" => return refuse("what is in .git is not shown"),
            _ => {}
        }
    }
    Ok(())
}

impl Root {
    /// Opens a folder by its absolute path, which has no link on its way.
    ///
    /// # Errors
    /// It is not there, or a link is on the way.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(Self(openat2(CWD, path, flags, Mode::empty(), resolve)?))
    }

    /// Takes a folder that somebody else opened.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The descriptor, for a process that is to look into the folder.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> std::io::Result<OwnedFd> {
        self.0.try_clone()
    }

    pub(crate) fn at(&self, path: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() {
            OsStr::new(".")
        } else {
            path
        };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat2(&self.0, path, flags, Mode::empty(), BENEATH)
    }

    /// A folder in it, for what is done there by name.
    pub(crate) fn folder(&self, path: &OsStr) -> Result<OwnedFd, Errno> {
        self.at(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Finds what is at a path, without opening it: a link is found as one.
    ///
    /// # Errors
    /// [`FolderError`]; a link on the way is not followed but refused.
    pub fn find(&self, path: &str) -> Result<Place, FolderError> {
        check(path)?;
        self.find_raw(OsStr::new(path))
            .map_err(|error| match error {
                Errno::LOOP => {
                    FolderError::NotShown(format!("`{path}`: a link is on the way to it"))
                }
                Errno::NAMETOOLONG => FolderError::NotFound(path.to_owned()),
                other => FolderError::of(path, other),
            })
    }

    fn find_raw(&self, path: &OsStr) -> Result<Place, Errno> {
        let fd = self.at(path, OFlags::PATH)?;
        let stat = Stat::new(&fstat(&fd)?);
        Ok(Place { fd, stat })
    }

    /// How what is at a path is; none when nothing is there or a link is on the way.
    #[must_use]
    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.find(path).ok().map(|place| place.stat)
    }

    /// Finds a regular file.
    ///
    /// # Errors
    /// [`FolderError`] for anything else.
    pub fn find_file(&self, path: &str) -> Result<Place, FolderError> {
        let place = self.find(path)?;
        let what = match place.stat.kind() {
            Kind::File => return Ok(place),
            Kind::Folder => "a folder",
            Kind::Link => "a link, and links are not followed",
            Kind::Other => "no regular file",
        };
        Err(FolderError::NotShown(format!("`{path}`: it is {what}")))
    }

    /// Reads a regular file, at most `most` bytes of it; whether that was all.
    ///
    /// # Errors
    /// [`FolderError`]: it is not there, no regular file, or may not be read.
    pub fn read(&self, path: &str, most: usize) -> Result<(Vec<u8>, bool), FolderError> {
        self.find_file(path)?
            .read(most)
            .map_err(|source| FolderError::of(path, source))
    }

    /// As [`Root::read`], for names that are no text or not shown; none when it cannot be read.
    pub(crate) fn read_raw(&self, path: &OsStr, most: usize) -> Option<Vec<u8>> {
        let place = self.find_raw(path).ok()?;
        if place.stat.kind() != Kind::File {
            return None;
        }
        place.read(most).ok().map(|(bytes, _)| bytes)
    }

    /// Opens a regular file beneath for reading at offsets.
    pub(crate) fn open_raw(&self, path: &OsStr) -> std::io::Result<(File, u64)> {
        let place = self.find_raw(path)?;
        if place.stat.kind() != Kind::File {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        Ok((place.open()?, place.stat.size))
    }

    /// What is in a folder, sorted: folders first. At most `most` entries; whether that was all.
    ///
    /// # Errors
    /// [`FolderError`]: it is not there or no folder.
    pub fn list(&self, path: &str, most: usize) -> Result<(Vec<Entry>, bool), FolderError> {
        let place = self.find(path)?;
        match place.stat.kind() {
            Kind::Folder => {}
            Kind::Link => {
                let why = format!("`{path}`: it is a link, and links are not followed");
                return Err(FolderError::NotShown(why));
            }
            _ => return Err(FolderError::NotShown(format!("`{path}`: it is no folder"))),
        }
        let failed = |source: Errno| FolderError::of(path, source);
        let folder = self.folder(OsStr::new(path)).map_err(failed)?;
        let mut entries = Vec::new();
        let mut is_all = true;
        for name in names(folder.as_fd()).map_err(failed)? {
            if entries.len() == most {
                is_all = false;
                break;
            }
            if let Some(entry) = entry(folder.as_fd(), &name) {
                entries.push(entry);
            }
        }
        entries.sort_by(|a, b| {
            let key = |entry: &Entry| (entry.kind != Kind::Folder, entry.name.to_lowercase());
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        Ok((entries, is_all))
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Place {
    /// Opens the very file that was found. It is regular: opening it cannot block.
    pub(crate) fn open(&self) -> std::io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
    }

    pub(crate) fn read(&self, most: usize) -> std::io::Result<(Vec<u8>, bool)> {
        let mut bytes = Vec::new();
        self.open()?.take(most as u64 + 1).read_to_end(&mut bytes)?;
        let is_all = bytes.len() <= most;
        bytes.truncate(most);
        Ok((bytes, is_all))
    }
}

/// Names in a folder, without `.`, `..` and `.git`.
pub(crate) fn names(folder: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b".." | b".git") {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    Ok(names)
}

pub(crate) fn stat_in(folder: BorrowedFd<'_>, name: &OsStr) -> Option<Stat> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(Stat::new(&stat))
}

fn entry(folder: BorrowedFd<'_>, name: &OsStr) -> Option<Entry> {
    let stat = stat_in(folder, name)?;
    let kind = stat.kind();
    let target = (kind == Kind::Link)
        .then(|| readlinkat(folder, name, Vec::new()).ok())
        .flatten()
        .map(|target| String::from_utf8_lossy(target.as_bytes()).into_owned());
    (kind != Kind::Other).then(|| Entry {
        name: text(name),
        kind,
        size: (kind == Kind::File).then_some(stat.size),
        target,
    })
}

/// A name as text.
pub(crate) fn text(name: &OsStr) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

/// SHA-256 of some bytes, in hexadecimal.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex(&sha2::Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
