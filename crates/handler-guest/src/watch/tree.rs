//! One inotify and the folders it looks at.
//!
//! Owns which watch is which folder. Links below the top are not followed: folders are opened without and
//! watched by descriptor. A folder that appears is watched and what is in it already is told as created.

use crate::files::path;
use handler_types::guest::{WatchEvent, WatchKind};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Most folders of one watch.
pub(super) const MOST_FOLDERS: usize = 16 * 1024;
/// Deepest folder.
const MOST_DEPTH: usize = 256;
/// Most paths remembered as told; a few may then be told twice.
const MOST_TOLD: usize = 64 * 1024;
/// How long the second half of a rename is waited for.
const HALF: Duration = Duration::from_millis(5);
/// Bytes read at once.
const BUFFER: usize = 16 * 1024;

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVE_SELF);

/// An event as the kernel says it.
struct Raw {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Vec<u8>,
}

/// See the module.
pub(super) struct Tree {
    fd: AsyncFd<OwnedFd>,
    recursive: bool,
    top: i32,
    top_path: Vec<u8>,
    folders: HashMap<i32, Vec<u8>>,
    /// Told already when their folder was looked through: the kernel may tell them again.
    told: HashSet<Vec<u8>>,
    /// The first half of a rename.
    moved: Option<(u32, Vec<u8>, bool)>,
    is_over: bool,
    was_full: bool,
}

impl Tree {
    /// Watches a path from now on.
    pub(super) fn open(full: Vec<u8>, recursive: bool) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let fd = crate::sys::waitable(fd)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let top = openat(CWD, OsStr::from_bytes(&full), flags, Mode::empty())?;
        let is_folder = FileType::from_raw_mode(fstat(&top)?.st_mode) == FileType::Directory;
        let watch = inotify::add_watch(fd.get_ref(), by_descriptor(&top), EVENTS)?;
        let mut tree = Self {
            fd,
            recursive: recursive && is_folder,
            top: watch,
            top_path: full.clone(),
            folders: HashMap::from([(watch, full.clone())]),
            told: HashSet::new(),
            moved: None,
            is_over: false,
            was_full: false,
        };
        if tree.recursive {
            tree.look_through(top, &full, 0, &mut |_| {});
        }
        Ok(tree)
    }

    /// Tells events until the path is gone.
    pub(super) async fn run(&mut self, tell: impl Fn(WatchEvent)) {
        if self.was_full {
            tell(self.overflow());
        }
        while !self.is_over {
            let wait = async {
                match self.fd.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => std::future::pending().await,
                }
            };
            if self.moved.is_some() {
                let _ = tokio::time::timeout(HALF, wait).await;
            } else {
                wait.await;
            }
            let half = self.moved.is_some();
            let events = self.read();
            let was_quiet = events.is_empty();
            for event in events {
                self.take(event, &tell);
            }
            if half && was_quiet {
                self.moved_away(&tell);
            }
            if self.told.len() > MOST_TOLD {
                self.told.clear();
            }
            tokio::task::yield_now().await;
        }
    }

    /// What is there now; bounded by the kernel's queue.
    fn read(&self) -> Vec<Raw> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(self.fd.get_ref(), &mut buffer);
        let mut events = Vec::new();
        while let Ok(event) = reader.next() {
            events.push(Raw {
                watch: event.wd(),
                flags: event.events(),
                cookie: event.cookie(),
                name: event
                    .file_name()
                    .map_or_else(Vec::new, |name| name.to_bytes().to_vec()),
            });
        }
        events
    }

    fn take(&mut self, raw: Raw, tell: &impl Fn(WatchEvent)) {
        let Raw {
            watch,
            flags,
            cookie,
            name,
        } = raw;
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            tell(self.overflow());
            return;
        }
        let Some(folder) = self.folders.get(&watch) else {
            return;
        };
        let full = if name.is_empty() {
            folder.clone()
        } else {
            path::join(folder, &name)
        };
        let is_folder = flags.contains(ReadFlags::ISDIR);
        if flags.contains(ReadFlags::MOVED_TO)
            && let Some((_, from, _)) = self.moved.take_if(|(first, _, _)| *first == cookie)
        {
            self.renamed(&from, &full);
            tell(event(&from, WatchKind::Rename, Some(&full)));
            return;
        }
        self.moved_away(tell);
        if flags.intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE) {
            self.told.remove(&full);
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            self.moved = Some((cookie, full, is_folder));
        } else if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            if self.told.remove(&full) {
                return;
            }
            tell(event(&full, WatchKind::Create, None));
            if is_folder && self.recursive {
                self.appeared(&full, tell);
            }
        } else if flags.contains(ReadFlags::MODIFY) {
            tell(event(&full, WatchKind::Write, None));
        } else if flags.contains(ReadFlags::ATTRIB) && (!name.is_empty() || watch == self.top) {
            // A folder's own is told by the one above it as well.
            tell(event(&full, WatchKind::Chmod, None));
        } else if flags.contains(ReadFlags::DELETE) {
            tell(event(&full, WatchKind::Remove, None));
        } else if flags
            .intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT)
        {
            if watch == self.top {
                tell(event(&full, WatchKind::Remove, None));
                self.is_over = true;
            }
        } else if flags.contains(ReadFlags::IGNORED) {
            self.folders.remove(&watch);
        }
    }

    /// A rename without a second half: it left what is watched.
    fn moved_away(&mut self, tell: &impl Fn(WatchEvent)) {
        let Some((_, from, is_folder)) = self.moved.take() else {
            return;
        };
        tell(event(&from, WatchKind::Remove, None));
        if is_folder {
            let below = path::join(&from, b"");
            self.folders.retain(|watch, folder| {
                let is_gone = *folder == from || folder.starts_with(&below);
                if is_gone {
                    let _ = inotify::remove_watch(self.fd.get_ref(), *watch);
                }
                !is_gone
            });
        }
    }

    fn renamed(&mut self, from: &[u8], to: &[u8]) {
        for folder in self.folders.values_mut() {
            let rest = match folder.strip_prefix(from) {
                Some(rest) if rest.is_empty() || rest.first() == Some(&b'/') => rest,
                _ => continue,
            };
            *folder = [to, rest].concat();
        }
    }

    /// A folder is new here: watches it and tells what is in it.
    fn appeared(&mut self, full: &[u8], tell: &impl Fn(WatchEvent)) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = openat(CWD, OsStr::from_bytes(full), flags, Mode::empty()) else {
            return;
        };
        let was_full = self.was_full;
        if self.add(&folder, full) {
            let mut found = Vec::new();
            self.look_through(folder, full, 0, &mut |entry| found.push(entry));
            for entry in found {
                tell(event(&entry, WatchKind::Create, None));
                self.told.insert(entry);
            }
        }
        if self.was_full && !was_full {
            tell(self.overflow());
        }
    }

    fn add(&mut self, folder: &OwnedFd, full: &[u8]) -> bool {
        if self.folders.len() >= MOST_FOLDERS {
            self.was_full = true;
            return false;
        }
        match inotify::add_watch(self.fd.get_ref(), by_descriptor(folder), EVENTS) {
            Ok(watch) => {
                self.folders.insert(watch, full.to_vec());
                true
            }
            // The user's watches are used up.
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM) => {
                self.was_full = true;
                false
            }
            Err(_) => false,
        }
    }

    /// Watches all folders below one; names everything it meets.
    fn look_through(
        &mut self,
        folder: OwnedFd,
        full: &[u8],
        depth: usize,
        met: &mut dyn FnMut(Vec<u8>),
    ) {
        if depth >= MOST_DEPTH {
            self.was_full = true;
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(readable) = openat(&folder, c".", flags, Mode::empty()) else {
            return;
        };
        drop(folder);
        let Ok(names) = Dir::read_from(&readable) else {
            return;
        };
        for found in names.flatten() {
            let name = found.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let below = path::join(full, name);
            met(below.clone());
            if !matches!(found.file_type(), FileType::Directory | FileType::Unknown) {
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(child) = openat(&readable, found.file_name(), flags, Mode::empty())
                && self.add(&child, &below)
            {
                self.look_through(child, &below, depth + 1, met);
            }
        }
    }

    fn overflow(&self) -> WatchEvent {
        event(&self.top_path, WatchKind::Overflow, None)
    }
}

fn event(at: &[u8], kind: WatchKind, to: Option<&[u8]>) -> WatchEvent {
    WatchEvent {
        path: path::encode(at),
        kind,
        to: to.map(path::encode),
    }
}

/// What a descriptor is, as a path: leads there whatever its name is now.
fn by_descriptor(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
