//! Unpacking a tar archive beneath a folder. The archive is not trusted.
//!
//! Invariant: nothing outside the folder is touched. Names that are absolute or hold `..` end the unpacking;
//! every folder on the way to an entry is opened from the one above it without following a link; files are
//! placed as `place.rs` says. Links that lead out of the folder, device nodes and the like are not made and
//! told. Nothing is set-uid.

use crate::error::ArchiveError;
use crate::place::{self, Target};
use crate::stream::{Reader, Sink};
use crate::tar::{Head, kind};
use crate::tell;
use rustix::fs::{CWD, Mode, OFlags, fchmod, mkdirat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most refused entries told.
const MOST_TOLD: usize = 100;
/// Most folders whose bits keep even their owner out; others stay open to the owner.
const MOST_CLOSED: usize = 10_000;
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What an archive may hold at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub bytes: u64,
    /// Entries, folders and links included.
    pub entries: u64,
    /// Names of an entry's path.
    pub depth: u32,
}

/// What was unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Files, folders and links made or replaced.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries that were not made, with the reason; the first hundred.
    pub refused: Vec<String>,
    /// How many there are.
    pub refused_count: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Unpacking {
    reader: Reader,
    made: Made,
}

/// What is made of the entries.
#[derive(Debug)]
struct Made {
    root: OwnedFd,
    limits: Limits,
    target: Option<Target>,
    /// Folders that get their bits at the end, as they would keep us out.
    closed_folders: Vec<(Vec<Vec<u8>>, u32)>,
    done: Summary,
    entries: u64,
}

impl Unpacking {
    /// Opens a folder that is there; a link there is followed.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(at: &Path, limits: Limits) -> Result<Self, ArchiveError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, at, flags, Mode::empty())
            .map_err(|errno| ArchiveError::system(&tell(at.as_os_str().as_bytes()), errno))?;
        Ok(Self::within(root, limits))
    }

    /// Unpacks beneath an open folder.
    #[must_use]
    pub fn within(root: OwnedFd, limits: Limits) -> Self {
        Self {
            reader: Reader::default(),
            made: Made {
                root,
                limits,
                target: None,
                closed_folders: Vec::new(),
                done: Summary::default(),
                entries: 0,
            },
        }
    }

    /// Takes the next bytes of the archive.
    ///
    /// # Errors
    /// When it may not be unpacked, or the system says no; the message says how much was unpacked. Nothing may
    /// be added afterwards.
    pub fn add(&mut self, data: &[u8]) -> Result<(), ArchiveError> {
        let added = self.reader.add(data, &mut self.made);
        added.map_err(|error| self.made.explain(error))
    }

    /// Entries made and bytes written so far.
    #[must_use]
    pub fn so_far(&self) -> (u64, u64) {
        (self.made.done.files, self.made.done.bytes)
    }

    /// The archive ended.
    ///
    /// # Errors
    /// When it is not whole; the message says how much was unpacked.
    pub fn finish(mut self) -> Result<Summary, ArchiveError> {
        let whole = self.reader.finish();
        whole.map_err(|error| self.made.explain(error))?;
        let closed = std::mem::take(&mut self.made.closed_folders);
        for (parts, mode) in closed.into_iter().rev() {
            if let Ok(folder) = self.made.reach(&parts, false) {
                let _ = fchmod(&folder, Mode::from_raw_mode(mode));
            }
        }
        Ok(self.made.done)
    }
}

impl Sink for Made {
    fn entry(&mut self, head: &Head) -> Result<(), ArchiveError> {
        self.entries += 1;
        let limits = self.limits;
        if self.entries > limits.entries {
            return Err(ArchiveError::limit(format!(
                "more than {} entries",
                limits.entries
            )));
        }
        let told = tell(&head.name);
        let parts = parts(&head.name)
            .map_err(|why| ArchiveError::invalid(format!("entry `{told}` {why}")))?;
        if parts.len() > limits.depth as usize {
            let message = format!("entry `{told}` is below more than {} folders", limits.depth);
            return Err(ArchiveError::limit(message));
        }
        let is_file = matches!(head.kind, kind::FILE | kind::CONTIGUOUS);
        if is_file && head.size > limits.bytes.saturating_sub(self.done.bytes) {
            let message = format!("entry `{told}`: more than {} bytes", limits.bytes);
            return Err(ArchiveError::limit(message));
        }
        let Some((name, above)) = parts.split_last() else {
            if is_file {
                return Err(ArchiveError::invalid(format!("entry `{told}` has no name")));
            }
            // The folder itself.
            return Ok(());
        };
        let made = match head.kind {
            kind::FILE | kind::CONTIGUOUS => self.begin_file(head, name, above),
            kind::FOLDER => self.make_folder(&parts, head.mode),
            kind::LINK => self.make_link(head, name, above),
            kind::HARD_LINK => self.make_hard_link(head, name, above),
            _ => Ok(Some("is neither a file, a folder nor a link")),
        };
        match made.map_err(|errno| ArchiveError::system(&told, errno))? {
            Some(why) => self.refuse(format!("`{told}` {why}")),
            None if is_file => {}
            None => self.done.files += 1,
        }
        Ok(())
    }

    fn content(&mut self, data: &[u8]) -> Result<(), ArchiveError> {
        if let Some(target) = &mut self.target {
            let written = target.write(data);
            written.map_err(|errno| ArchiveError::system(&tell(target.name()), errno))?;
            self.done.bytes += data.len() as u64;
        }
        Ok(())
    }

    fn end_of_content(&mut self) -> Result<(), ArchiveError> {
        if let Some(mut target) = self.target.take() {
            let placed = target.place();
            placed.map_err(|errno| ArchiveError::system(&tell(target.name()), errno))?;
            self.done.files += 1;
        }
        Ok(())
    }
}

/// Why an entry was not made; none: it was.
type Refusal = Option<&'static str>;

impl Made {
    fn explain(&self, error: ArchiveError) -> ArchiveError {
        let Summary { files, bytes, .. } = self.done;
        let message = format!(
            "{} ({files} entries with {bytes} bytes were unpacked and stay)",
            error.message
        );
        ArchiveError { message, ..error }
    }

    fn refuse(&mut self, what: String) {
        self.done.refused_count += 1;
        if self.done.refused.len() < MOST_TOLD {
            self.done.refused.push(what);
        }
    }

    /// Opens the folder of these names, made where it is missing.
    fn reach(&self, parts: &[Vec<u8>], makes: bool) -> rustix::io::Result<OwnedFd> {
        let mut at = openat(&self.root, c".", FOLDER, Mode::empty())?;
        for part in parts {
            let name = OsStr::from_bytes(part);
            at = match openat(&at, name, FOLDER, Mode::empty()) {
                Err(Errno::NOENT) if makes => {
                    match mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    openat(&at, name, FOLDER, Mode::empty())?
                }
                opened => opened?,
            };
        }
        Ok(at)
    }

    fn make_folder(&mut self, parts: &[Vec<u8>], mode: u32) -> rustix::io::Result<Refusal> {
        let folder = self.reach(parts, true)?;
        let mode = mode & 0o777;
        if mode & 0o700 == 0o700 || self.closed_folders.len() >= MOST_CLOSED {
            fchmod(&folder, Mode::from_raw_mode(mode | 0o700))?;
        } else {
            self.closed_folders.push((parts.to_vec(), mode));
        }
        Ok(None)
    }

    fn begin_file(
        &mut self,
        head: &Head,
        name: &[u8],
        above: &[Vec<u8>],
    ) -> rustix::io::Result<Refusal> {
        let folder = self.reach(above, true)?;
        self.target = Some(Target::begin(
            folder,
            name,
            head.mode & 0o777,
            head.modified,
        )?);
        Ok(None)
    }

    /// Makes a link as it is said; one that leads out of the folder is not made.
    fn make_link(
        &self,
        head: &Head,
        name: &[u8],
        above: &[Vec<u8>],
    ) -> rustix::io::Result<Refusal> {
        if !stays_inside(above.len(), &head.target) {
            return Ok(Some("is a link that leads out of the folder"));
        }
        let folder = self.reach(above, true)?;
        place::link(&folder, name, &head.target).map(|()| None)
    }

    /// Makes another name of a file that is beneath the folder, reached without a link.
    fn make_hard_link(
        &self,
        head: &Head,
        name: &[u8],
        above: &[Vec<u8>],
    ) -> rustix::io::Result<Refusal> {
        const OUTSIDE: Refusal = Some("is a hard link to something outside or not there");
        let Ok(target) = parts(&head.target) else {
            return Ok(OUTSIDE);
        };
        let Some((target_name, target_above)) = target.split_last() else {
            return Ok(OUTSIDE);
        };
        let Ok(from) = self.reach(target_above, false) else {
            return Ok(OUTSIDE);
        };
        let folder = self.reach(above, true)?;
        let is_made = place::hard_link(&from, target_name, &folder, name)?;
        Ok(if is_made { None } else { OUTSIDE })
    }
}

/// The names of a path in an archive; none for the folder itself.
fn parts(name: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    if name.first() == Some(&b'/') {
        return Err("has an absolute name");
    }
    if name.contains(&0) {
        return Err("has a NUL byte in its name");
    }
    let mut parts = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err("leads out of the folder (`..`)"),
            part => parts.push(part.to_vec()),
        }
    }
    Ok(parts)
}

/// Whether a link's target, read from a folder `depth` below the root, stays beneath the root.
fn stays_inside(depth: usize, target: &[u8]) -> bool {
    if target.is_empty() || target[0] == b'/' || target.contains(&0) {
        return false;
    }
    let mut depth = depth;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return false,
            },
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_are_told_from_those_that_do_not() {
        assert_eq!(
            parts(b"./a//b/").expect("fine"),
            [b"a".to_vec(), b"b".to_vec()]
        );
        assert!(parts(b"./").expect("the folder").is_empty());
        for bad in [&b"/a"[..], b"../a", b"a/../b", b"a/..", b"a\0b"] {
            assert!(parts(bad).is_err(), "{bad:?}");
        }
        assert!(stays_inside(1, b"../a"));
        assert!(stays_inside(0, b"a/../b"));
        for bad in [&b"../a"[..], b"/etc", b"a/../../b", b""] {
            assert!(!stays_inside(0, bad), "{bad:?}");
        }
    }
}
