//! Setting permission bits, of one path or of all a folder holds.
//!
//! Invariant: below the named path no link is followed, and each folder is reached from the one above it by
//! descriptor, so a tree that changes meanwhile leads nowhere else. What is in a folder is changed before the
//! folder itself, which may take away the right to enter it.

use super::{mode_of, path};
use crate::conn::Conn;
use crate::fail;
use crate::failure::from_errno;
use handler_types::guest::{GuestError, GuestErrorCode};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, chmod, fchmod, fstat, openat};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Deepest tree.
const MOST_DEPTH: usize = 512;
/// Entries between turns of others.
const STEP: usize = 128;

/// Changes one path; a link is followed.
pub(crate) fn one(text: &str, bits: u32) -> Result<(), GuestError> {
    let full = path::decode_absolute(text)?;
    let mode = mode_of(bits)?;
    chmod(OsStr::from_bytes(&full), mode).map_err(|errno| from_errno(text, errno))
}

struct Level {
    folder: OwnedFd,
    names: Vec<CString>,
}

/// A change of a whole tree.
pub(crate) struct Change {
    text: String,
    mode: Mode,
    top: OwnedFd,
}

impl Change {
    /// Opens the path.
    pub(crate) fn open(text: &str, bits: u32) -> Result<Self, GuestError> {
        let full = path::decode_absolute(text)?;
        let mode = mode_of(bits)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let top = openat(CWD, OsStr::from_bytes(&full), flags, Mode::empty())
            .map_err(|errno| from_errno(text, errno))?;
        Ok(Self {
            text: text.to_owned(),
            mode,
            top,
        })
    }

    /// Changes everything; stops at the first error, or when the connection is gone.
    pub(crate) async fn run(self, conn: &Conn) -> Result<(), GuestError> {
        let failed = |errno| from_errno(&self.text, errno);
        if !is_folder(&self.top).map_err(failed)? {
            return set(&self.top, self.mode).map_err(failed);
        }
        let mut levels = vec![enter(&self.top, self.mode).map_err(failed)?];
        let mut steps = 0_usize;
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.pop() else {
                let level = levels.pop();
                let folder = level.as_ref().map(|level| &level.folder);
                folder
                    .map_or(Ok(()), |folder| fchmod(folder, self.mode))
                    .map_err(failed)?;
                continue;
            };
            if let Some(below) = change(level, &name, self.mode).map_err(failed)? {
                if levels.len() >= MOST_DEPTH {
                    let message = format!("{}: deeper than {MOST_DEPTH} folders", self.text);
                    return Err(fail(GuestErrorCode::Limit, message));
                }
                levels.push(below);
            }
            steps += 1;
            if steps.is_multiple_of(STEP) {
                tokio::task::yield_now().await;
                if conn.is_closed() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Changes one entry; gives a folder to go into instead.
fn change(level: &Level, name: &CString, mode: Mode) -> rustix::io::Result<Option<Level>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = match openat(&level.folder, name.as_c_str(), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        entry => entry?,
    };
    match FileType::from_raw_mode(fstat(&entry)?.st_mode) {
        FileType::Symlink => Ok(None),
        FileType::Directory => enter(&entry, mode).map(Some),
        _ => set(&entry, mode).map(|()| None),
    }
}

fn is_folder(entry: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(entry)?.st_mode) == FileType::Directory)
}

/// Changes what an `O_PATH` descriptor is; never a link.
fn set(entry: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    chmod(format!("/proc/self/fd/{}", entry.as_raw_fd()), mode)
}

/// Opens a folder for reading. One that may not be read is given its new bits first.
fn enter(entry: &OwnedFd, mode: Mode) -> rustix::io::Result<Level> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match openat(entry, c".", flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            set(entry, mode)?;
            openat(entry, c".", flags, Mode::empty())?
        }
        folder => folder?,
    };
    let mut names = Vec::new();
    for found in Dir::read_from(&folder)? {
        let found = found?;
        let name = found.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(Level { folder, names })
}
