//! A layer's archive becomes a folder that overlayfs can use as a lower layer, by an ordinary user.
//!
//! | in the archive | in the folder |
//! |---|---|
//! | file, folder, link, hard link | the same, owned by the caller, without setuid and setgid |
//! | `.wh.NAME` | a character device 0/0 named NAME: "deleted below" |
//! | `.wh..wh..opq` | `user.overlay.opaque` on the folder: "nothing below shows" |
//! | device, pipe, socket, attributes | nothing |
//! | `..`, a hard link outside | refused |
//!
//! Invariant: nothing is made, read or changed outside the folder, whatever the archive says.

use crate::place::{Place, PlaceError};
use crate::tar::{Entry, Kind, Reader, TarError};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

/// What an archive may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Entries.
    pub(crate) entries: u64,
    /// Bytes of all files together.
    pub(crate) bytes: u64,
    /// Bytes that must stay free on the disk.
    pub(crate) keep_free: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 4_000_000,
            bytes: 128 << 30,
            keep_free: 64 << 20,
        }
    }
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// Bytes of all files.
    pub(crate) bytes: u64,
    /// Devices and pipes that were left out.
    pub(crate) left_out: u64,
}

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// It asks for something that is never done.
    #[error("`{path}` {why}")]
    Refused {
        /// The entry's name.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// It is too big.
    #[error("{0}")]
    TooBig(String),
    /// It cannot be read.
    #[error(transparent)]
    Archive(#[from] TarError),
    /// The folder cannot be written.
    #[error("{path}: {source}")]
    Write {
        /// The entry's name.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

/// Unpacks a plain tar stream into `root`, an empty folder. Reads it to its very end.
pub(crate) fn unpack(
    archive: impl Read,
    root: OwnedFd,
    limits: Limits,
) -> Result<Unpacked, UnpackError> {
    let mut reader = Reader::new(archive);
    let mut unpacker = Unpacker {
        place: Place::new(root),
        limits,
        done: Unpacked::default(),
        entries: 0,
        written_since_look: u64::MAX,
    };
    while let Some(entry) = reader.next()? {
        unpacker.count(&entry)?;
        unpacker.entry(&entry, &mut reader)?;
    }
    reader.drain().map_err(TarError::Io)?;
    Ok(unpacker.done)
}

struct Unpacker {
    place: Place,
    limits: Limits,
    done: Unpacked,
    entries: u64,
    written_since_look: u64,
}

/// How often the free space is looked at, in bytes written.
const LOOK_EVERY: u64 = 32 << 20;
const BUFFER: usize = 128 * 1024;

impl Unpacker {
    fn count(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            let text = format!("it has more than {} entries", self.limits.entries);
            return Err(UnpackError::TooBig(text));
        }
        let size = if entry.kind == Kind::File {
            entry.size
        } else {
            0
        };
        if self.done.bytes.saturating_add(size) > self.limits.bytes {
            let text = format!("it unpacks to more than {} MiB", self.limits.bytes >> 20);
            return Err(UnpackError::TooBig(text));
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, content: &mut impl Read) -> Result<(), UnpackError> {
        let Some((parent, name)) = split(&entry.path).map_err(|why| refused(entry, why))? else {
            // The folder itself: its mode counts, nothing else.
            return self
                .place
                .set_root_mode(folder_mode(entry))
                .map_err(|error| failed(entry, error));
        };
        if let Some(deleted) = name.as_bytes().strip_prefix(b".wh.") {
            let deleted = OsStr::from_bytes(deleted).to_owned();
            return self.whiteout(entry, &parent, &deleted);
        }
        let made = match entry.kind {
            Kind::Folder => self.place.folder(&parent, &name, folder_mode(entry)),
            Kind::File => return self.file(entry, &parent, &name, content),
            Kind::Link => self.place.link(&parent, &name, &entry.link),
            Kind::HardLink => return self.hard_link(entry, &parent, &name),
            Kind::Other => {
                self.done.left_out += 1;
                Ok(())
            }
        };
        made.map_err(|error| failed(entry, error))
    }

    fn whiteout(
        &mut self,
        entry: &Entry,
        parent: &[OsString],
        name: &OsStr,
    ) -> Result<(), UnpackError> {
        let done = match name.as_bytes() {
            b".wh..opq" => self.place.make_opaque(parent),
            // What another union file system keeps for itself.
            other if other.starts_with(b".wh.") => Ok(()),
            b"" | b"." | b".." => return Err(refused(entry, "deletes nothing that has a name")),
            _ => self.place.whiteout(parent, name),
        };
        done.map_err(|error| failed(entry, error))
    }

    fn file(
        &mut self,
        entry: &Entry,
        parent: &[OsString],
        name: &OsStr,
        content: &mut impl Read,
    ) -> Result<(), UnpackError> {
        let file = self
            .place
            .file(parent, name)
            .map_err(|error| failed(entry, error))?;
        let mut file = std::fs::File::from(file);
        let mut buffer = vec![0; BUFFER.min(usize::try_from(entry.size).unwrap_or(BUFFER))];
        let mut left = entry.size;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(BUFFER).min(buffer.len());
            let read = content.read(&mut buffer[..most]).map_err(|error| {
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    TarError::Damaged("it is cut short".to_owned())
                } else {
                    TarError::Io(error)
                }
            })?;
            self.look_at_space(entry, read as u64)?;
            file.write_all(&buffer[..read])
                .map_err(|source| write_error(entry, source))?;
            left -= read as u64;
        }
        self.done.bytes += entry.size;
        Place::finish(&file, file_mode(entry), entry.mtime).map_err(|error| failed(entry, error))
    }

    fn hard_link(
        &mut self,
        entry: &Entry,
        parent: &[OsString],
        name: &OsStr,
    ) -> Result<(), UnpackError> {
        let target = split(&entry.link).map_err(|why| refused(entry, why))?;
        let Some((from_parent, from)) = target else {
            return Err(refused(entry, "is a hard link to the root"));
        };
        match self.place.hard_link((&from_parent, &from), parent, name) {
            Err(PlaceError::System(Errno::NOENT)) => Err(refused(
                entry,
                "is a hard link to something that is not in this layer",
            )),
            done => done.map_err(|error| failed(entry, error)),
        }
    }

    /// Stops before the disk is full, so that the machine goes on.
    fn look_at_space(&mut self, entry: &Entry, more: u64) -> Result<(), UnpackError> {
        self.written_since_look = self.written_since_look.saturating_add(more);
        if self.written_since_look < LOOK_EVERY {
            return Ok(());
        }
        self.written_since_look = 0;
        let free = self
            .place
            .free_bytes()
            .map_err(|error| failed(entry, PlaceError::System(error)))?;
        if free < self.limits.keep_free.saturating_add(LOOK_EVERY) {
            return Err(write_error(entry, io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }
}

/// The owner may read every file: uid 0 inside has no rights beyond those of an owner.
fn file_mode(entry: &Entry) -> u32 {
    (entry.mode & 0o777) | 0o400
}

/// The owner may enter and change every folder, or it could not be removed; sticky folders stay so.
fn folder_mode(entry: &Entry) -> u32 {
    (entry.mode & 0o1777) | 0o700
}

/// Parent folders and last name; `None`: the root itself. A leading `/` and `.` mean nothing.
fn split(path: &[u8]) -> Result<Option<(Vec<OsString>, OsString)>, &'static str> {
    if path.len() > 4096 {
        return Err("has a name that is too long");
    }
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err("leads out of the image with `..`"),
            part if part.contains(&0) => return Err("has a zero byte in its name"),
            part if part.len() > 255 => return Err("has a name that is too long"),
            part => parts.push(OsStr::from_bytes(part).to_owned()),
        }
    }
    Ok(parts.pop().map(|name| (parts, name)))
}

fn shown(entry: &Entry) -> String {
    let text = String::from_utf8_lossy(&entry.path);
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn refused(entry: &Entry, why: &str) -> UnpackError {
    UnpackError::Refused {
        path: shown(entry),
        why: why.to_owned(),
    }
}

fn failed(entry: &Entry, error: PlaceError) -> UnpackError {
    match error {
        PlaceError::Blocked(why) => refused(entry, why),
        PlaceError::System(Errno::LOOP) => refused(entry, "lies below a link that leads nowhere"),
        PlaceError::System(errno) => write_error(entry, errno.into()),
        PlaceError::Attributes => UnpackError::Write {
            path: shown(entry),
            source: io::Error::other(
                "the file system of Handler's data folder takes no extended attributes (user.overlay.*), which image layers need",
            ),
        },
    }
}

fn write_error(entry: &Entry, source: io::Error) -> UnpackError {
    UnpackError::Write {
        path: shown(entry),
        source,
    }
}

#[cfg(test)]
mod tests;
