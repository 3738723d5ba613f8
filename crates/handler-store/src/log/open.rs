//! Opens a log: locks it, cuts off a line that a crash left half written, finds the last number.

use super::append::Writer;
use super::blocks::{HEAD, seq_of};
use super::index::Index;
use super::locked::LockedFile;
use super::{EventLog, LogEnd, LogError, Shared, io_error};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Bytes read at once when looking backwards.
const STEP: u64 = 64 * 1024;

impl EventLog {
    /// Opens a log (0600, made when missing; its folder must exist). Only one may have it open: it is
    /// free again when the last clone and the last reader are dropped.
    ///
    /// # Errors
    /// [`LogError`]; a damaged log is left as it is.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let io = |source| io_error(path, source);
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        let file = LockedFile::new(file)
            .map_err(io)?
            .ok_or_else(|| LogError::AlreadyOpen {
                path: path.to_owned(),
            })?;
        let end = find_end(&file, path)?;
        let index = Index::open(&file, path, end)?;
        Ok(Self(Arc::new(Shared {
            path: path.to_owned(),
            file,
            writer: Mutex::new(Writer::default()),
            index: Mutex::new(index),
            end: watch::Sender::new(end),
        })))
    }
}

fn find_end(file: &File, path: &Path) -> Result<LogEnd, LogError> {
    let io = |source| io_error(path, source);
    let length = file.metadata().map_err(io)?.len();
    let bytes = line_start(file, length).map_err(io)?;
    if bytes < length {
        tracing::warn!(
            log = %path.display(),
            bytes = length - bytes,
            "a half-written last line was cut off"
        );
        file.set_len(bytes).map_err(io)?;
    }
    if bytes == 0 {
        return Ok(LogEnd::default());
    }
    let start = line_start(file, bytes - 1).map_err(io)?;
    let mut head = [0; HEAD];
    let read = file.read_at(&mut head, start).map_err(io)?;
    let seq = seq_of(&head[..read]).ok_or_else(|| LogError::Damaged {
        path: path.to_owned(),
        offset: start,
    })?;
    Ok(LogEnd { seq, bytes })
}

/// The offset after the last newline before `end`; 0 when there is none.
fn line_start(file: &File, end: u64) -> io::Result<u64> {
    let mut buffer = Vec::new();
    let mut end = end;
    while end > 0 {
        let from = end.saturating_sub(STEP);
        buffer.resize(usize::try_from(end - from).unwrap_or(0), 0);
        file.read_exact_at(&mut buffer, from)?;
        if let Some(at) = memchr::memrchr(b'\n', &buffer) {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}
