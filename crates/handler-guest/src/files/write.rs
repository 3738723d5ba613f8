//! Writing files for the host.
//!
//! Invariant: a file is written beside its place and renamed, so nobody sees half of it, and what was
//! written is removed again when anything fails or the connection is lost. The exception is a file that
//! cannot be replaced because it is itself a mount point: it is overwritten in place once all is here.
//!
//! A link is written through; a file that exists keeps its permission bits and, where allowed, owner.

use super::{folder, mode_of, path};
use crate::conn::{Conn, too_many_jobs};
use crate::fail;
use crate::failure::{from_archive, from_errno, from_io};
use handler_archive::{Limits, Unpacking};
use handler_types::guest::{GuestError, GuestErrorCode, Reply, UnpackLimits, Unpacked};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, lstat, openat, renameat,
    stat, unlinkat,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;

/// Most writes at once per connection.
const MOST_WRITES: usize = 64;
/// Permission bits of a new file.
const NEW_FILE: u32 = 0o644;

/// What the host asks of a file to be written.
#[derive(Debug)]
pub(crate) struct Wish {
    /// Permission bits of a new file.
    pub(crate) mode: Option<u32>,
    /// Make parent folders.
    pub(crate) parents: bool,
    /// Refuse when something is there.
    pub(crate) create_only: bool,
    /// SHA-256 the content must have.
    pub(crate) sha256: Option<String>,
}

/// Content that comes from the host.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A file.
    File(Box<Writing>),
    /// An archive.
    Archive(Box<Unpacking>),
}

impl Incoming {
    fn add(&mut self, data: &[u8]) -> Result<(), GuestError> {
        match self {
            Self::File(writing) => writing.add(data),
            Self::Archive(unpacking) => unpacking.add(data).map_err(from_archive),
        }
    }
}

/// A write under way; dropping it unfinished removes what was written.
#[derive(Debug)]
pub(crate) struct Writing {
    text: String,
    target: OsString,
    temporary: OsString,
    file: File,
    hash: Sha256,
    size: u64,
    mode: Mode,
    /// Owner to keep.
    owner: Option<(u32, u32)>,
    create_only: bool,
    expected: Option<String>,
    renamed: bool,
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = unlinkat(CWD, &self.temporary, AtFlags::empty());
        }
    }
}

/// Begins a write; the chunks follow.
pub(crate) fn begin(conn: &Conn, id: u32, text: &str, wish: Wish) -> Result<(), GuestError> {
    check_room(conn, id)?;
    let incoming = Incoming::File(Box::new(Writing::open(text, wish)?));
    conn.writes.borrow_mut().insert(id, incoming);
    Ok(())
}

/// Begins to unpack an archive; the chunks follow.
pub(crate) fn begin_unpack(
    conn: &Conn,
    id: u32,
    text: &str,
    limits: UnpackLimits,
) -> Result<(), GuestError> {
    check_room(conn, id)?;
    let full = path::decode_absolute(text)?;
    folder::make(text, true, None)?;
    let limits = Limits {
        bytes: limits.bytes,
        entries: limits.entries,
        depth: limits.depth,
    };
    let at = std::path::Path::new(OsStr::from_bytes(&full));
    let unpacking = Unpacking::open(at, limits).map_err(from_archive)?;
    let incoming = Incoming::Archive(Box::new(unpacking));
    conn.writes.borrow_mut().insert(id, incoming);
    Ok(())
}

fn unpacked(unpacking: Unpacking) -> Result<Reply, GuestError> {
    let done = unpacking.finish().map_err(from_archive)?;
    let unpacked = Unpacked {
        files: done.files,
        bytes: done.bytes,
        refused: done.refused,
        refused_count: done.refused_count,
    };
    Ok(Reply::Unpacked { unpacked })
}

fn check_room(conn: &Conn, id: u32) -> Result<(), GuestError> {
    conn.check_free(id)?;
    if conn.writes.borrow().len() >= MOST_WRITES {
        return Err(too_many_jobs());
    }
    Ok(())
}

/// Takes one chunk; an empty one ends the file. Chunks of a write that failed or was cancelled are
/// ignored: the host sent them before it knew.
pub(crate) async fn take_chunk(conn: &Rc<Conn>, id: u32, data: &[u8]) {
    if data.is_empty() {
        let incoming = conn.writes.borrow_mut().remove(&id);
        match incoming {
            Some(Incoming::File(writing)) => conn.answer(id, writing.finish().await),
            Some(Incoming::Archive(unpacking)) => conn.answer(id, unpacked(*unpacking)),
            None => {}
        }
        return;
    }
    let mut writes = conn.writes.borrow_mut();
    let Some(incoming) = writes.get_mut(&id) else {
        return;
    };
    if let Err(error) = incoming.add(data) {
        writes.remove(&id);
        drop(writes);
        conn.answer(id, Err(error));
    }
}

impl Writing {
    fn open(text: &str, wish: Wish) -> Result<Self, GuestError> {
        let full = path::decode_absolute(text)?;
        path::split(&full)?;
        if text.ends_with('/') {
            return Err(fail(
                GuestErrorCode::Invalid,
                format!("{text}: names a folder"),
            ));
        }
        let mode = mode_of(wish.mode.unwrap_or(NEW_FILE))?;
        if wish.parents {
            folder::make_parents(&full)?;
        }
        let failed = |errno| from_errno(text, errno);
        if wish.create_only && lstat(OsStr::from_bytes(&full)).is_ok() {
            return Err(failed(Errno::EXIST));
        }
        let existing = existing(&full).map_err(failed)?;
        if existing
            .as_ref()
            .is_some_and(|(stat, _)| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile)
        {
            return Err(fail(
                GuestErrorCode::Invalid,
                format!("{text}: not a regular file"),
            ));
        }
        let target = existing.as_ref().map_or_else(
            || OsString::from_vec(full.clone()),
            |(_, real)| real.clone(),
        );
        let (folder, _) = path::split(target.as_bytes())?;
        let random = crate::sys::random_hex::<8>().map_err(|error| from_io(text, &error))?;
        let name = format!(".handler-{random}.tmp");
        let temporary = OsString::from_vec(path::join(folder, name.as_bytes()));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(CWD, &temporary, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        Ok(Self {
            text: text.to_owned(),
            target,
            temporary,
            file: file.into(),
            hash: Sha256::new(),
            size: 0,
            mode: existing
                .as_ref()
                .map_or(mode, |(stat, _)| Mode::from_raw_mode(stat.st_mode & 0o7777)),
            owner: existing.map(|(stat, _)| (stat.st_uid, stat.st_gid)),
            create_only: wish.create_only,
            expected: wish.sha256,
            renamed: false,
        })
    }

    fn add(&mut self, data: &[u8]) -> Result<(), GuestError> {
        self.file
            .write_all(data)
            .map_err(|error| from_io(&self.text, &error))?;
        self.hash.update(data);
        self.size += data.len() as u64;
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<Reply, GuestError> {
        let sha256 = crate::sys::hex(&std::mem::take(&mut self.hash).finalize());
        if self
            .expected
            .as_ref()
            .is_some_and(|expected| *expected != sha256)
        {
            let message = format!(
                "{}: the content has SHA-256 {sha256}, not the one that was announced; nothing was changed",
                self.text
            );
            return Err(fail(GuestErrorCode::Invalid, message));
        }
        if let Some((uid, gid)) = self.owner {
            // Only root may give files away; otherwise it is the sandbox's own user already.
            let _ = fchown(
                &self.file,
                Some(Uid::from_raw(uid)),
                Some(Gid::from_raw(gid)),
            );
        }
        let failed = |errno| from_errno(&self.text, errno);
        fchmod(&self.file, self.mode).map_err(failed)?;
        let renamed = if self.create_only {
            folder::rename_if_free(&self.temporary, &self.target)
        } else {
            renameat(CWD, &self.temporary, CWD, &self.target)
        };
        match renamed {
            Ok(()) => self.renamed = true,
            Err(Errno::BUSY) => self.overwrite_in_place().await?,
            Err(errno) => return Err(failed(errno)),
        }
        Ok(Reply::Written {
            size: self.size,
            sha256,
        })
    }

    /// For a target that is a mount point.
    async fn overwrite_in_place(&mut self) -> Result<(), GuestError> {
        let failed = |error: std::io::Error| from_io(&self.text, &error);
        let mut source = &self.file;
        source.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut target = std::fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&self.target)
            .map_err(failed)?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = source.read(&mut buffer).map_err(failed)?;
            if count == 0 {
                return Ok(());
            }
            target.write_all(&buffer[..count]).map_err(failed)?;
            tokio::task::yield_now().await;
        }
    }
}

/// What is at a path, links followed, and where that really is. A link that leads nowhere counts as
/// nothing and is replaced.
fn existing(full: &[u8]) -> rustix::io::Result<Option<(Stat, OsString)>> {
    let name = OsStr::from_bytes(full);
    let stat = match stat(name) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let real = std::fs::canonicalize(name)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(Some((stat, real.into_os_string())))
}
