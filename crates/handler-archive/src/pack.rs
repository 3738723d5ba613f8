//! A folder with all it holds as a tar archive, made piece by piece as it is read.
//!
//! Invariant: below the named path no link is followed and every folder is reached from the one above it by
//! descriptor. A file that shrinks while it is read is filled up with zeros, one that grows is cut, so that the
//! archive stays whole. Memory is that of the names of the folders on the way down.

use crate::error::ArchiveError;
use crate::tar::{BLOCK, Head, kind, padding, write_head};
use crate::tell;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat,
};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Deepest folder packed.
const MOST_DEPTH: usize = 1024;
/// Most names of files with several links remembered; later ones are packed as files of their own.
const MOST_LINKED: usize = 64 * 1024;
/// Most left-out paths told.
const MOST_TOLD: usize = 100;

#[derive(Debug)]
struct Level {
    folder: OwnedFd,
    /// Its name in the archive, with a slash behind it; empty for the top.
    prefix: Vec<u8>,
    /// Names to come, the next one last.
    names: Vec<OsString>,
}

/// The content of the entry under way.
#[derive(Debug)]
struct Body {
    file: OwnedFd,
    left: u64,
    fill: u64,
    /// It ended early or cannot be read: the rest is zeros.
    is_over: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Packing {
    levels: Vec<Level>,
    /// Bytes made and not given yet.
    ready: Vec<u8>,
    given: usize,
    body: Option<Body>,
    /// First names of files with several links.
    linked: HashMap<(u64, u64), Vec<u8>>,
    skipped: Vec<String>,
    skipped_count: u64,
    is_closed: bool,
    keeps_hard_links: bool,
}

impl Packing {
    /// Opens a folder or a regular file; a link there is followed. Gives what it is as well.
    ///
    /// # Errors
    /// When it cannot be opened, or is neither.
    pub fn open(at: &Path) -> Result<(Self, Stat), ArchiveError> {
        let told = tell(at.as_os_str().as_bytes());
        let failed = |errno| ArchiveError::system(&told, errno);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let top = openat(CWD, at, flags, Mode::empty()).map_err(failed)?;
        let stat = fstat(&top).map_err(failed)?;
        let mut packing = Self {
            levels: Vec::new(),
            ready: Vec::new(),
            given: 0,
            body: None,
            linked: HashMap::new(),
            skipped: Vec::new(),
            skipped_count: 0,
            is_closed: false,
            keeps_hard_links: true,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let level = read_folder(top, Vec::new()).map_err(failed)?;
                packing.levels.push(level);
            }
            FileType::RegularFile => {
                let name = at.file_name().unwrap_or(OsStr::new("file"));
                packing.begin_file(name.as_bytes().to_vec(), top, &stat);
            }
            _ => {
                let message = format!("{told}: neither a folder nor a regular file");
                return Err(ArchiveError::invalid(message));
            }
        }
        Ok((packing, stat))
    }

    /// Packs every name of a file with several as a file of its own.
    #[must_use]
    pub fn without_hard_links(mut self) -> Self {
        self.keeps_hard_links = false;
        self
    }

    /// Fills the buffer as far as it goes; 0 is the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            if self.given < self.ready.len() {
                let count = rest.len().min(self.ready.len() - self.given);
                rest[..count].copy_from_slice(&self.ready[self.given..self.given + count]);
                self.given += count;
                filled += count;
                continue;
            }
            self.ready.clear();
            self.given = 0;
            if let Some(body) = &mut self.body {
                match body.read(rest) {
                    0 => self.body = None,
                    count => filled += count,
                }
                continue;
            }
            if !self.next_entry() {
                break;
            }
        }
        filled
    }

    /// Paths left out, with the reason (the first hundred), and how many there are.
    pub fn skipped(&mut self) -> (Vec<String>, u64) {
        (std::mem::take(&mut self.skipped), self.skipped_count)
    }

    /// Begins the next entry; `false` when all is there.
    fn next_entry(&mut self) -> bool {
        loop {
            let Some(level) = self.levels.last_mut() else {
                if self.is_closed {
                    return false;
                }
                self.is_closed = true;
                self.ready.resize(2 * BLOCK, 0);
                return true;
            };
            let Some(name) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            let full = [&level.prefix, name.as_bytes()].concat();
            match self.entry(&name, full) {
                Ok(true) => return true,
                Ok(false) | Err(rustix::io::Errno::NOENT) => {}
                Err(errno) => {
                    let error = ArchiveError::system(&self.told_name(&name), errno);
                    self.skip(error.message);
                }
            }
        }
    }

    fn told_name(&self, name: &OsStr) -> String {
        let prefix = self.levels.last().map_or(&[][..], |level| &level.prefix);
        tell(&[prefix, name.as_bytes()].concat())
    }

    fn skip(&mut self, what: String) {
        self.skipped_count += 1;
        if self.skipped.len() < MOST_TOLD {
            self.skipped.push(what);
        }
    }

    /// Begins one entry of the last level; whether there is one.
    fn entry(&mut self, name: &OsStr, full: Vec<u8>) -> rustix::io::Result<bool> {
        let Some(level) = self.levels.last() else {
            return Ok(false);
        };
        let stat = statat(&level.folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = readlinkat(&level.folder, name, Vec::new())?.into_bytes();
                let head = Head {
                    kind: kind::LINK,
                    target,
                    ..head_of(full, &stat)
                };
                write_head(&head, &mut self.ready);
            }
            FileType::Directory if self.levels.len() >= MOST_DEPTH => {
                self.skip(format!("{}: too deep", tell(&full)));
                return Ok(false);
            }
            FileType::Directory => {
                let flags = flags | OFlags::DIRECTORY;
                let folder = openat(&level.folder, name, flags, Mode::empty())?;
                let prefix = [full.as_slice(), b"/"].concat();
                let head = Head {
                    kind: kind::FOLDER,
                    ..head_of(prefix.clone(), &stat)
                };
                let below = read_folder(folder, prefix)?;
                write_head(&head, &mut self.ready);
                self.levels.push(below);
            }
            FileType::RegularFile => {
                let file = openat(&level.folder, name, flags, Mode::empty())?;
                let stat = fstat(&file)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    self.skip(format!("{}: it changed", tell(&full)));
                    return Ok(false);
                }
                self.begin_file(full, file, &stat);
            }
            _ => {
                self.skip(format!("{}: neither a file, folder nor link", tell(&full)));
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin_file(&mut self, full: Vec<u8>, file: OwnedFd, stat: &Stat) {
        if stat.st_nlink > 1 && self.keeps_hard_links {
            let identity = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.linked.get(&identity) {
                let head = Head {
                    kind: kind::HARD_LINK,
                    target: first.clone(),
                    ..head_of(full, stat)
                };
                write_head(&head, &mut self.ready);
                return;
            }
            if self.linked.len() < MOST_LINKED {
                self.linked.insert(identity, full.clone());
            }
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let head = Head {
            kind: kind::FILE,
            size,
            ..head_of(full, stat)
        };
        write_head(&head, &mut self.ready);
        self.body = Some(Body {
            file,
            left: size,
            fill: padding(size),
            is_over: false,
        });
    }
}

impl Body {
    /// Reads some; 0 when content and filling were given.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let wanted =
            |left: u64| usize::try_from(left).map_or(buffer.len(), |l| l.min(buffer.len()));
        if self.left == 0 {
            let count = wanted(self.fill);
            buffer[..count].fill(0);
            self.fill -= count as u64;
            return count;
        }
        let most = wanted(self.left);
        let count = loop {
            if self.is_over {
                buffer[..most].fill(0);
                break most;
            }
            match rustix::io::read(&self.file, &mut buffer[..most]) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(count @ 1..) => break count,
                // Its head is sent already: it must have the length that was told.
                Ok(0) | Err(_) => self.is_over = true,
            }
        };
        self.left -= count as u64;
        count
    }
}

fn head_of(name: Vec<u8>, stat: &Stat) -> Head {
    Head {
        name,
        mode: stat.st_mode & 0o7777,
        uid: u64::from(stat.st_uid),
        gid: u64::from(stat.st_gid),
        modified: modified(stat),
        ..Head::default()
    }
}

/// Modification time in seconds since the epoch.
#[expect(
    clippy::useless_conversion,
    reason = "the field's type differs between architectures"
)]
fn modified(stat: &Stat) -> i64 {
    i64::from(stat.st_mtime)
}

fn read_folder(folder: OwnedFd, prefix: Vec<u8>) -> rustix::io::Result<Level> {
    let mut names = Vec::new();
    for found in Dir::read_from(&folder)? {
        let found = found?;
        let name = found.file_name();
        if name != c"." && name != c".." {
            names.push(OsString::from_vec(name.to_bytes().to_vec()));
        }
    }
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(Level {
        folder,
        prefix,
        names,
    })
}
