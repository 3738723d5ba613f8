//! Listing folders.
//!
//! The named folder may be reached over a link; links below it are described and not followed.
//! Invariant: at most [`MOST_ENTRIES`] entries and [`MOST_DEPTH`] open folders, and a page of
//! the answer is only made when the connection has room for it.

use super::{entry, path};
use crate::conn::Conn;
use crate::fail;
use crate::failure::from_errno;
use handler_types::guest::{FileEntry, FileKind, GuestError, GuestErrorCode, Reply};
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

/// Most entries of one list.
pub(crate) const MOST_ENTRIES: usize = 100_000;
/// Deepest list.
pub(crate) const MOST_DEPTH: u32 = 32;
/// Entries and bytes of text of one page, about.
const PAGE_ENTRIES: usize = 500;
const PAGE_BYTES: usize = 96 * 1024;

struct Level {
    folder: OwnedFd,
    full: Vec<u8>,
    /// Names to come, the next one last.
    names: Vec<Vec<u8>>,
}

/// A list under way.
pub(crate) struct Listing {
    levels: Vec<Level>,
    depth: usize,
    /// Names taken from folders so far.
    taken: usize,
    truncated: bool,
}

impl Listing {
    /// Opens the folder.
    pub(crate) fn open(text: &str, depth: u32) -> Result<Self, GuestError> {
        if !(1..=MOST_DEPTH).contains(&depth) {
            let message = format!("depth {depth} (1 to {MOST_DEPTH})");
            return Err(fail(GuestErrorCode::Invalid, message));
        }
        let full = path::decode_absolute(text)?;
        let mut listing = Self {
            levels: Vec::new(),
            depth: depth as usize,
            taken: 0,
            truncated: false,
        };
        let folder = openat(CWD, OsStr::from_bytes(&full), OPEN, Mode::empty());
        folder
            .and_then(|folder| listing.enter(folder, full))
            .map_err(|errno| match errno {
                rustix::io::Errno::NOTDIR => {
                    fail(GuestErrorCode::Invalid, format!("{text}: not a folder"))
                }
                errno => from_errno(text, errno),
            })?;
        Ok(listing)
    }

    fn enter(&mut self, folder: OwnedFd, full: Vec<u8>) -> rustix::io::Result<()> {
        let mut names = Vec::new();
        for found in Dir::read_from(&folder)? {
            let found = found?;
            let name = found.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if self.taken >= MOST_ENTRIES {
                self.truncated = true;
                break;
            }
            self.taken += 1;
            names.push(name.to_vec());
        }
        names.sort_unstable_by(|one, other| other.cmp(one));
        self.levels.push(Level {
            folder,
            full,
            names,
        });
        Ok(())
    }

    /// The next entry, folders before what is in them.
    fn next(&mut self) -> Option<FileEntry> {
        loop {
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            let full = path::join(&level.full, &name);
            // What vanished meanwhile or may not be looked at is left out.
            let Ok(entry) = entry::describe(&level.folder, &name, &full) else {
                continue;
            };
            if entry.kind == FileKind::Folder && self.levels.len() < self.depth {
                self.descend(&name, full);
            }
            return Some(entry);
        }
    }

    /// A folder that cannot be opened is listed as if it were empty.
    fn descend(&mut self, name: &[u8], full: Vec<u8>) {
        let Some(level) = self.levels.last() else {
            return;
        };
        let flags = OPEN | OFlags::NOFOLLOW;
        if let Ok(folder) = openat(&level.folder, OsStr::from_bytes(name), flags, Mode::empty()) {
            let _ = self.enter(folder, full);
        }
    }

    fn page(&mut self) -> (Vec<FileEntry>, bool) {
        let mut entries = Vec::new();
        let mut size = 0;
        while entries.len() < PAGE_ENTRIES && size < PAGE_BYTES {
            let Some(entry) = self.next() else {
                return (entries, true);
            };
            size += 150 + entry.path.len() + entry.target.as_ref().map_or(0, String::len);
            entries.push(entry);
        }
        (entries, false)
    }
}

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Answers a request with a list, page by page.
pub(crate) async fn send_pages(conn: &Rc<Conn>, id: u32, mut listing: Listing) {
    loop {
        conn.wait_room().await;
        if conn.is_closed() {
            return;
        }
        let (entries, last) = listing.page();
        let reply = Reply::Entries {
            entries,
            truncated: last && listing.truncated,
            more: !last,
        };
        conn.answer(id, Ok(reply));
        if last {
            return;
        }
        tokio::task::yield_now().await;
    }
}
