//! One file on its way to its place: written under a name of its own, then renamed.
//!
//! Invariant: what is not renamed is removed again; a link at the place is replaced and never written through.

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, ftruncate, futimens, linkat,
    openat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Zeros of this length and more become holes.
const HOLE: usize = 4096;
/// Names tried before giving up.
const TRIES: u32 = 100;

/// A file being written under a name of its own.
#[derive(Debug)]
pub(crate) struct Target {
    folder: OwnedFd,
    temporary: String,
    name: Vec<u8>,
    file: OwnedFd,
    at: u64,
    mode: u32,
    modified: i64,
    is_placed: bool,
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

impl Target {
    /// Begins a file.
    pub(crate) fn begin(
        folder: OwnedFd,
        name: &[u8],
        mode: u32,
        modified: i64,
    ) -> rustix::io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let (temporary, file) =
            fresh(|temporary| openat(&folder, temporary, flags, Mode::RUSR | Mode::WUSR))?;
        Ok(Self {
            folder,
            temporary,
            name: name.to_vec(),
            file,
            at: 0,
            mode,
            modified,
            is_placed: false,
        })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(crate) fn write(&mut self, mut data: &[u8]) -> rustix::io::Result<()> {
        if data.len() >= HOLE && data.iter().all(|byte| *byte == 0) {
            self.at += data.len() as u64;
            return Ok(());
        }
        while !data.is_empty() {
            match rustix::io::pwrite(&self.file, data, self.at) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(Errno::IO),
                Ok(count) => {
                    self.at += count as u64;
                    data = &data[count..];
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Gives it its bits, time and name.
    pub(crate) fn place(&mut self) -> rustix::io::Result<()> {
        ftruncate(&self.file, self.at)?;
        fchmod(&self.file, Mode::from_raw_mode(self.mode))?;
        let time = Timespec {
            tv_sec: self.modified,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        // A time that the file system cannot keep is no reason to fail.
        let _ = futimens(&self.file, &times);
        rename(&self.folder, &self.temporary, &self.name)?;
        self.is_placed = true;
        Ok(())
    }
}

/// Makes a link at a name.
pub(crate) fn link(folder: &OwnedFd, name: &[u8], target: &[u8]) -> rustix::io::Result<()> {
    let target = OsStr::from_bytes(target);
    let (temporary, ()) = fresh(|temporary| symlinkat(target, folder, temporary))?;
    rename(folder, &temporary, name)
}

/// Makes another name of a regular file; `false`: there is none. Never through a link, even when the name is
/// exchanged for one meanwhile.
pub(crate) fn hard_link(
    from: &OwnedFd,
    from_name: &[u8],
    folder: &OwnedFd,
    name: &[u8],
) -> rustix::io::Result<bool> {
    let from_name = OsStr::from_bytes(from_name);
    let is_file = statat(from, from_name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if !is_file {
        return Ok(false);
    }
    let none = AtFlags::empty();
    let (temporary, ()) = fresh(|temporary| linkat(from, from_name, folder, temporary, none))?;
    let placed = rename(folder, &temporary, name);
    // A rename onto another name of the same file does nothing.
    let _ = unlinkat(folder, &temporary, AtFlags::empty());
    placed.map(|()| true)
}

/// Renames to the wanted name; the temporary one is gone when that fails.
fn rename(folder: &OwnedFd, temporary: &str, name: &[u8]) -> rustix::io::Result<()> {
    renameat(folder, temporary, folder, OsStr::from_bytes(name)).inspect_err(|_| {
        let _ = unlinkat(folder, temporary, AtFlags::empty());
    })
}

/// Makes something under a name nobody uses. It need not be secret: what is there already is never opened.
fn fresh<T>(make: impl Fn(&str) -> rustix::io::Result<T>) -> rustix::io::Result<(String, T)> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let mut tries = 0;
    loop {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |passed| passed.subsec_nanos());
        let name = format!(".handler-{:x}-{number:x}-{nanos:x}.tmp", std::process::id());
        match make(&name) {
            Err(Errno::EXIST) if tries < TRIES => tries += 1,
            result => return result.map(|made| (name, made)),
        }
    }
}
