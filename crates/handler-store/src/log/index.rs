//! The sparse index of a log: where some of its lines start.
//!
//! File form: 8 bytes magic, then entries of two little-endian `u64`: number and byte offset of a line.
//! An entry is made for the first line and then every [`EVERY_LINES`] lines or [`EVERY_BYTES`] bytes. The file is
//! written as well as can be: when that fails, appending goes on and the rest is written later or made
//! anew on the next open.

use super::blocks::{Blocks, HEAD, lines, seq_of};
use super::{LogEnd, LogError, io_error};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"HNDLIDX1";
const ENTRY: usize = 16;
/// Lines between two entries.
pub(super) const EVERY_LINES: u64 = 256;
/// Bytes between two entries.
pub(super) const EVERY_BYTES: u64 = 64 * 1024;
/// Largest index file read; one that is larger is made anew.
const MAX_FILE: u64 = 256 * 1024 * 1024;

/// Where a line starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) seq: u64,
    pub(super) offset: u64,
}

impl Entry {
    /// Whether a line starts there and has the number.
    pub(super) fn is_line_of(self, log: &File) -> bool {
        // One byte before tells whether a line ended there.
        let back = u64::from(self.offset > 0);
        let mut head = [0; HEAD];
        let Ok(read) = log.read_at(&mut head, self.offset - back) else {
            return false;
        };
        let line = match back {
            0 => Some(&head[..read]),
            _ => head[..read].strip_prefix(b"\n"),
        };
        line.and_then(seq_of) == Some(self.seq)
    }
}

/// The index in memory and how much of it is in its file.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: Vec<Entry>,
    file: Option<File>,
    written: usize,
}

impl Index {
    /// Loads the index of an opened log, or makes it by reading the log.
    pub(super) fn open(log: &File, log_path: &Path, end: LogEnd) -> Result<Self, LogError> {
        let path = index_path(log_path);
        let stored = load(&path).unwrap_or_default();
        let (entries, kept) = match extend(log, log_path, stored.clone(), end) {
            Ok(entries) => (entries, stored.len()),
            Err(_) if !stored.is_empty() => {
                tracing::warn!(log = %log_path.display(), "index made anew");
                (extend(log, log_path, Vec::new(), end)?, 0)
            }
            Err(error) => return Err(error),
        };
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .ok();
        let mut index = Self {
            entries,
            file,
            written: kept,
        };
        index.write();
        Ok(index)
    }

    /// Notes a line that was appended, when one is due.
    pub(super) fn note(&mut self, seq: u64, offset: u64) {
        push_due(&mut self.entries, Entry { seq, offset });
    }

    /// Writes what is not in the file yet; failures are tried again with the next entry.
    pub(super) fn write(&mut self) {
        let Some(file) = &self.file else { return };
        if self.written == self.entries.len() && self.written > 0 {
            return;
        }
        let mut bytes = Vec::with_capacity((self.entries.len() - self.written + 1) * ENTRY);
        for entry in &self.entries[self.written..] {
            bytes.extend_from_slice(&entry.seq.to_le_bytes());
            bytes.extend_from_slice(&entry.offset.to_le_bytes());
        }
        let at = (MAGIC.len() + self.written * ENTRY) as u64;
        let done = (|| -> io::Result<()> {
            if self.written == 0 {
                file.set_len(0)?;
                file.write_all_at(MAGIC, 0)?;
            }
            file.write_all_at(&bytes, at)?;
            file.set_len(at + bytes.len() as u64)
        })();
        if done.is_ok() {
            self.written = self.entries.len();
        }
    }

    /// The last known line at or before a number.
    pub(super) fn before(&self, seq: u64) -> Option<Entry> {
        let after = self.entries.partition_point(|entry| entry.seq <= seq);
        after.checked_sub(1).map(|at| self.entries[at])
    }
}

/// `<log>.idx`.
pub(super) fn index_path(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".idx");
    PathBuf::from(name)
}

fn push_due(entries: &mut Vec<Entry>, entry: Entry) {
    let due = entries.last().is_none_or(|last| {
        entry.seq - last.seq >= EVERY_LINES || entry.offset - last.offset >= EVERY_BYTES
    });
    if due {
        entries.push(entry);
    }
}

/// Reads an index file; none when it is not one, or its entries do not grow.
fn load(path: &Path) -> Option<Vec<Entry>> {
    if std::fs::metadata(path).ok()?.len() > MAX_FILE {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let body = bytes.strip_prefix(MAGIC)?;
    let number = |part: &[u8]| part.try_into().map(u64::from_le_bytes).ok();
    let entries = body
        .chunks_exact(ENTRY)
        .map(|chunk| {
            Some(Entry {
                seq: number(&chunk[..8])?,
                offset: number(&chunk[8..])?,
            })
        })
        .collect::<Option<Vec<Entry>>>()?;
    let grows = entries
        .windows(2)
        .all(|pair| pair[0].seq < pair[1].seq && pair[0].offset < pair[1].offset);
    (grows && entries.first().is_none_or(|first| first.offset == 0)).then_some(entries)
}

/// Checks known entries against the log and adds those up to its end.
fn extend(
    log: &File,
    path: &Path,
    mut entries: Vec<Entry>,
    end: LogEnd,
) -> Result<Vec<Entry>, LogError> {
    let damaged = |offset| LogError::Damaged {
        path: path.to_owned(),
        offset,
    };
    let middle = entries.len() / 2;
    for entry in [entries.first(), entries.get(middle), entries.last()]
        .into_iter()
        .flatten()
    {
        let is_inside = entry.offset < end.bytes && entry.seq <= end.seq;
        if !is_inside || !entry.is_line_of(log) {
            return Err(damaged(entry.offset));
        }
    }
    let start = entries.last().map_or(0, |last| last.offset);
    let mut last_seq = entries.last().map_or(0, |last| last.seq.saturating_sub(1));
    let mut blocks = Blocks::new(start, end.bytes);
    loop {
        let mut offset = blocks.pos();
        let block = blocks.next(log).map_err(|source| io_error(path, source))?;
        if block.is_empty() {
            break;
        }
        for line in lines(block) {
            let seq = seq_of(line)
                .filter(|seq| *seq > last_seq)
                .ok_or_else(|| damaged(offset))?;
            push_due(&mut entries, Entry { seq, offset });
            last_seq = seq;
            offset += line.len() as u64;
        }
    }
    if last_seq == end.seq {
        Ok(entries)
    } else {
        Err(damaged(end.bytes))
    }
}
