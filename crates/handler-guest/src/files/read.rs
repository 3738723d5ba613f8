//! Reading files for the host, chunk by chunk as the connection and the host's credit allow.

use super::{entry, path};
use crate::conn::{Conn, Source, too_many_jobs};
use crate::fail;
use crate::failure::{from_archive, from_errno};
use handler_archive::Packing;
use handler_types::frame::{encode_file, encode_json};
use handler_types::guest::{FILE_WINDOW, GuestError, GuestErrorCode, MAX_CHUNK, Message, Reply};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Most reads at once per connection.
const MOST_READS: usize = 64;

/// A read under way.
#[derive(Debug)]
pub(crate) struct Reading {
    content: Content,
    credit: u64,
    /// On the connection's list of sources.
    queued: bool,
}

/// Where the bytes come from.
#[derive(Debug)]
enum Content {
    File(OpenFile),
    Pack(Box<Packing>),
}

/// A part of a file.
#[derive(Debug)]
struct OpenFile {
    file: OwnedFd,
    text: String,
    at: u64,
    left: u64,
}

/// Opens a file and starts sending it. Only regular files: others have no end or never answer.
pub(crate) fn begin(
    conn: &Conn,
    id: u32,
    text: &str,
    offset: u64,
    length: Option<u64>,
) -> Result<Reply, GuestError> {
    let full = path::decode_absolute(text)?;
    check_room(conn, id)?;
    // Without NONBLOCK opening a named pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let failed = |errno| from_errno(text, errno);
    let file = open(OsStr::from_bytes(&full), flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(fail(
            GuestErrorCode::Invalid,
            format!("{text}: not a regular file"),
        ));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    // A file that grows while it is read ends where it ended at first; those of /proc say 0.
    let to_end = if size == 0 {
        u64::MAX
    } else {
        size.saturating_sub(offset)
    };
    let content = Content::File(OpenFile {
        file,
        text: text.to_owned(),
        at: offset,
        left: length.unwrap_or(u64::MAX).min(to_end),
    });
    insert(conn, id, content);
    Ok(Reply::Reading {
        size,
        mode: stat.st_mode & 0o7777,
        modified_ms: entry::modified_ms(&stat),
    })
}

/// Opens a folder or file and starts sending it as an archive.
pub(crate) fn begin_pack(
    conn: &Conn,
    id: u32,
    text: &str,
    hard_links: bool,
) -> Result<Reply, GuestError> {
    check_room(conn, id)?;
    let full = path::decode_absolute(text)?;
    let opened = Packing::open(std::path::Path::new(OsStr::from_bytes(&full)));
    let (mut packing, stat) = opened.map_err(from_archive)?;
    if !hard_links {
        packing = packing.without_hard_links();
    }
    insert(conn, id, Content::Pack(Box::new(packing)));
    Ok(Reply::Reading {
        size: 0,
        mode: stat.st_mode & 0o7777,
        modified_ms: entry::modified_ms(&stat),
    })
}

fn check_room(conn: &Conn, id: u32) -> Result<(), GuestError> {
    conn.check_free(id)?;
    if conn.reads.borrow().len() >= MOST_READS {
        return Err(too_many_jobs());
    }
    Ok(())
}

fn insert(conn: &Conn, id: u32, content: Content) {
    let reading = Reading {
        content,
        credit: FILE_WINDOW,
        queued: true,
    };
    conn.reads.borrow_mut().insert(id, reading);
    conn.ready(Source::Read(id));
}

/// Gives a read more room.
pub(crate) fn credit(conn: &Conn, request: u32, bytes: u64) -> Result<(), GuestError> {
    let mut reads = conn.reads.borrow_mut();
    let Some(reading) = reads.get_mut(&request) else {
        let message = format!("no read under way for request {request}");
        return Err(fail(GuestErrorCode::NotFound, message));
    };
    reading.credit = reading.credit.saturating_add(bytes);
    if !reading.queued {
        reading.queued = true;
        conn.ready(Source::Read(request));
    }
    Ok(())
}

/// Adds one frame of the file; whether there is more to send now.
pub(crate) fn send_chunk(conn: &Conn, request: u32, batch: &mut Vec<u8>) -> bool {
    let mut reads = conn.reads.borrow_mut();
    // Cancelled reads are not there any more.
    let Some(reading) = reads.get_mut(&request) else {
        return false;
    };
    match reading.step(request, batch) {
        Ok(Next::More) => return true,
        Ok(Next::NoCredit) => {
            reading.queued = false;
            return false;
        }
        Ok(Next::Ended) => {}
        Err(error) => {
            let failed = Message::Failed { id: request, error };
            let _ = encode_json(&failed, batch);
        }
    }
    reads.remove(&request);
    false
}

enum Next {
    More,
    NoCredit,
    Ended,
}

impl Reading {
    fn step(&mut self, request: u32, batch: &mut Vec<u8>) -> Result<Next, GuestError> {
        let is_all_sent = matches!(&self.content, Content::File(file) if file.left == 0);
        if self.credit == 0 && !is_all_sent {
            return Ok(Next::NoCredit);
        }
        let most = self.credit.min(MAX_CHUNK as u64);
        let mut buffer = vec![0; usize::try_from(most).unwrap_or(MAX_CHUNK)];
        let count = match &mut self.content {
            Content::File(file) => file.read(&mut buffer)?,
            Content::Pack(packing) => packing.read(&mut buffer),
        };
        if let (0, Content::Pack(packing)) = (count, &mut self.content) {
            let (skipped, skipped_count) = packing.skipped();
            let packed = Message::Packed {
                request,
                skipped,
                skipped_count,
            };
            let _ = encode_json(&packed, batch);
        }
        // `buffer` is never longer than a chunk may be.
        let _ = encode_file(request, &buffer[..count], batch);
        self.credit -= count as u64;
        Ok(if count == 0 { Next::Ended } else { Next::More })
    }
}

impl OpenFile {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, GuestError> {
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = loop {
            match rustix::io::pread(&self.file, &mut buffer[..most], self.at) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result.map_err(|errno| from_errno(&self.text, errno))?,
            }
        };
        self.at = self.at.saturating_add(count as u64);
        self.left -= count as u64;
        Ok(count)
    }
}
