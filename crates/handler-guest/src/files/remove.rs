//! Removing paths.
//!
//! Invariant: links are removed, never followed, even when someone swaps folders for links meanwhile;
//! a tree of any depth takes two open folders and no recursion.

use super::path;
use crate::conn::Conn;
use crate::fail;
use crate::failure::from_errno;
use handler_types::guest::{GuestError, GuestErrorCode};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Entries removed between turns of others.
const STEP: usize = 256;
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes a file, a link or an empty folder.
pub(crate) fn remove_one(text: &str) -> Result<(), GuestError> {
    let full = path::decode_absolute(text)?;
    path::split(&full)?;
    let name = OsStr::from_bytes(&full);
    let removed = match statat(CWD, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            unlinkat(CWD, name, AtFlags::REMOVEDIR)
        }
        Ok(_) => unlinkat(CWD, name, AtFlags::empty()),
        Err(errno) => Err(errno),
    };
    removed.map_err(|errno| match errno {
        Errno::NOTEMPTY => fail(
            GuestErrorCode::Invalid,
            format!("{text}: folder is not empty"),
        ),
        errno => from_errno(text, errno),
    })
}

/// A folder on the way down: its name in the folder above, and which folder that is.
struct Level {
    name: CString,
    above: (u64, u64),
}

/// The removal of a path with all it holds.
pub(crate) struct Removal {
    text: String,
    /// The folder the path is in.
    start: OwnedFd,
    name: CString,
}

/// What a step did.
enum Step {
    Emptied,
    /// There is more in this folder.
    More,
    /// A folder to empty first.
    Into(CString, OwnedFd),
}

impl Removal {
    /// Opens the folder the path is in.
    pub(crate) fn open(text: &str) -> Result<Self, GuestError> {
        let full = path::decode_absolute(text)?;
        let (folder, name) = path::split(&full)?;
        // The way to the path may go over links, as for every request; its last part does not.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let start = openat(CWD, OsStr::from_bytes(folder), flags, Mode::empty())
            .map_err(|errno| from_errno(text, errno))?;
        let name = CString::new(name)
            .map_err(|_| fail(GuestErrorCode::Invalid, "a NUL byte in the path"))?;
        Ok(Self {
            text: text.to_owned(),
            start,
            name,
        })
    }

    /// Removes everything; stops with the first error, or when the connection is gone.
    pub(crate) async fn run(self, conn: &Conn) -> Result<(), GuestError> {
        self.remove(conn)
            .await
            .map_err(|errno| from_errno(&self.text, errno))
    }

    async fn remove(&self, conn: &Conn) -> rustix::io::Result<()> {
        let Some(mut current) = unlink_or_open(self.start.as_fd(), &self.name)? else {
            return Ok(());
        };
        let mut levels = vec![Level {
            name: self.name.clone(),
            above: identity(&self.start)?,
        }];
        while !conn.is_closed() {
            match empty_some(&current)? {
                Step::More => {}
                Step::Into(name, folder) => {
                    levels.push(Level {
                        name,
                        above: identity(&current)?,
                    });
                    current = folder;
                }
                Step::Emptied => {
                    let Some(level) = levels.pop() else {
                        return Ok(());
                    };
                    let parent = if levels.is_empty() {
                        self.start.try_clone().map_err(|_| Errno::MFILE)?
                    } else {
                        openat(&current, c"..", OPEN, Mode::empty())?
                    };
                    if identity(&parent)? != level.above {
                        // Someone moved the tree away under our feet.
                        return Err(Errno::BUSY);
                    }
                    match unlinkat(&parent, &level.name, AtFlags::REMOVEDIR) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        // Someone put something in meanwhile: it is found again from above.
                        Err(Errno::NOTEMPTY) if !levels.is_empty() => {}
                        Err(errno) => return Err(errno),
                    }
                    if levels.is_empty() {
                        return Ok(());
                    }
                    current = parent;
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

fn identity(folder: impl AsFd) -> rustix::io::Result<(u64, u64)> {
    let stat = fstat(folder)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Removes entries until there are none, some were removed, or a folder is in the way.
fn empty_some(folder: &OwnedFd) -> rustix::io::Result<Step> {
    let mut removed = 0;
    for found in Dir::read_from(folder)? {
        let found = found?;
        let name = found.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlink_or_open(folder.as_fd(), name) {
            Ok(Some(below)) => return Ok(Step::Into(name.to_owned(), below)),
            Ok(None) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        removed += 1;
        if removed >= STEP {
            return Ok(Step::More);
        }
    }
    // Some systems skip entries when others vanish while reading: only an empty round is the end.
    Ok(if removed == 0 {
        Step::Emptied
    } else {
        Step::More
    })
}

/// Removes what is no folder; opens what is one, without following a link.
fn unlink_or_open(
    folder: std::os::fd::BorrowedFd<'_>,
    name: &std::ffi::CStr,
) -> rustix::io::Result<Option<OwnedFd>> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return openat(folder, name, OPEN, Mode::empty()).map(Some);
    }
    unlinkat(folder, name, AtFlags::empty()).map(|()| None)
}
