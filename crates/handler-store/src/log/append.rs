//! Appends lines: one write per call, undone when it fails half-way.

use super::{EventLog, LogEnd, LogError, MAX_LINE, Shared};
use serde_json::{Map, Value};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{MutexGuard, PoisonError};

/// Largest buffer kept between appends, bytes.
const KEPT_BUFFER: usize = 256 * 1024;

/// What only the appender needs.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// A failed append may have left bytes behind the end that could not be cut off yet.
    is_torn: bool,
    buffer: Vec<u8>,
}

impl EventLog {
    /// Appends one event and returns its number. `event` holds `kind` (text) and the event's own
    /// fields, never `seq` or `t`. When this returns, readers see the line, and it outlives this program.
    ///
    /// # Errors
    /// [`LogError`]; the log is then as it was and the number is not used up.
    pub fn append(&self, event: &Map<String, Value>) -> Result<u64, LogError> {
        self.append_batch(std::slice::from_ref(event))
    }

    /// Appends events with one write: all of them or none. Returns the number of the last one (of the last line
    /// of the log when `events` is empty).
    ///
    /// # Errors
    /// As [`EventLog::append`].
    pub fn append_batch(&self, events: &[Map<String, Value>]) -> Result<u64, LogError> {
        let shared = &*self.0;
        let mut writer = shared.writer();
        let before = *shared.end.borrow();
        let mut buffer = std::mem::take(&mut writer.buffer);
        buffer.clear();
        let result = encode(&mut buffer, events, before)
            .and_then(|starts| shared.write(&mut writer, &buffer, before, &starts));
        if buffer.capacity() <= KEPT_BUFFER {
            writer.buffer = buffer;
        }
        result
    }
}

impl Shared {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic while appending leaves nothing half-done that the next append would not undo.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(
        &self,
        writer: &mut Writer,
        lines: &[u8],
        before: LogEnd,
        starts: &[u64],
    ) -> Result<u64, LogError> {
        if lines.is_empty() {
            return Ok(before.seq);
        }
        if writer.is_torn {
            self.file
                .set_len(before.bytes)
                .map_err(|source| self.io(source))?;
            writer.is_torn = false;
        }
        if let Err(source) = self.file.write_all_at(lines, before.bytes) {
            writer.is_torn = self.file.set_len(before.bytes).is_err();
            return Err(self.io(source));
        }
        let end = LogEnd {
            seq: before.seq + starts.len() as u64,
            bytes: before.bytes + lines.len() as u64,
        };
        self.note(before.seq, starts);
        self.end.send_replace(end);
        Ok(end.seq)
    }

    fn note(&self, before: u64, starts: &[u64]) {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        for (seq, offset) in (before + 1..).zip(starts) {
            index.note(seq, *offset);
        }
        index.write();
    }
}

/// Writes the lines of events; returns the offset of each.
fn encode(
    buffer: &mut Vec<u8>,
    events: &[Map<String, Value>],
    before: LogEnd,
) -> Result<Vec<u64>, LogError> {
    let time = handler_base::clock::rfc3339(handler_base::clock::now_ms());
    let mut starts = Vec::with_capacity(events.len());
    for (seq, event) in (before.seq + 1..).zip(events) {
        let start = buffer.len();
        starts.push(before.bytes + start as u64);
        encode_one(buffer, seq, &time, event)?;
        let bytes = buffer.len() - start;
        if bytes > MAX_LINE {
            return Err(LogError::TooLong { bytes });
        }
    }
    Ok(starts)
}

fn encode_one(
    buffer: &mut Vec<u8>,
    seq: u64,
    time: &str,
    event: &Map<String, Value>,
) -> Result<(), LogError> {
    let kind = match event.get("kind") {
        Some(Value::String(kind)) => kind,
        _ => return Err(LogError::NotAnEvent { field: "kind" }),
    };
    for field in ["seq", "t"] {
        if event.contains_key(field) {
            return Err(LogError::NotAnEvent { field });
        }
    }
    let io = |error: io::Error| LogError::Encode(serde_json::Error::io(error));
    write!(buffer, "{{\"seq\":{seq},\"t\":\"{time}\",\"kind\":").map_err(io)?;
    serde_json::to_writer(&mut *buffer, kind)?;
    for (name, value) in event.iter().filter(|(name, _)| *name != "kind") {
        buffer.push(b',');
        serde_json::to_writer(&mut *buffer, name)?;
        buffer.push(b':');
        serde_json::to_writer(&mut *buffer, value)?;
    }
    buffer.extend_from_slice(b"}\n");
    Ok(())
}
