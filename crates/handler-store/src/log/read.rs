//! Reads lines while others append: what was there when the reader was made, whole lines only.

use super::blocks::{BLOCK, Blocks, lines, seq_of};
use super::{EventLog, LogError, Shared};
use std::sync::{Arc, PoisonError};

impl EventLog {
    /// Reads the lines after number `after_seq` that exist now, at most about `limit_bytes` of them (at
    /// least one line when there is one). Go on from the last line's number for more.
    #[must_use]
    pub fn read_from(&self, after_seq: u64, limit_bytes: u64) -> LogReader {
        let end = self.end();
        let from = if after_seq >= end.seq {
            end.bytes
        } else {
            self.0.start_of(after_seq + 1)
        };
        LogReader {
            shared: Arc::clone(&self.0),
            blocks: Blocks::new(from, end.bytes),
            skip_to: Some(after_seq),
            left: limit_bytes,
            given: false,
            pending: Vec::new(),
            at: 0,
        }
    }

    /// Reads the last `n` lines that exist now.
    #[must_use]
    pub fn tail(&self, n: u64) -> LogReader {
        self.read_from(self.last_seq().saturating_sub(n), u64::MAX)
    }
}

impl Shared {
    /// An offset at or before the line with a number, as near as the index knows.
    fn start_of(&self, seq: u64) -> u64 {
        let entry = {
            let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            index.before(seq)
        };
        // The index saves time and decides nothing: an entry that does not fit is not used.
        entry
            .filter(|entry| entry.is_line_of(&self.file))
            .map_or(0, |entry| entry.offset)
    }
}

/// Lines of a log, by blocks ([`LogReader::next_block`], fastest) or one by one (as an iterator, without
/// their newlines). Use one of the two. Blocks the thread while it reads from the file.
#[derive(Debug)]
pub struct LogReader {
    shared: Arc<Shared>,
    blocks: Blocks,
    skip_to: Option<u64>,
    left: u64,
    given: bool,
    pending: Vec<u8>,
    at: usize,
}

impl LogReader {
    /// Next whole lines, each with its newline: about 256 KiB, or one longer line; none at the end.
    ///
    /// # Errors
    /// [`LogError::Io`] and [`LogError::Damaged`].
    pub fn next_block(&mut self) -> Result<Option<&[u8]>, LogError> {
        if self.left == 0 && self.given {
            return Ok(None);
        }
        loop {
            let offset = self.blocks.pos();
            let block = self
                .blocks
                .next(&self.shared.file)
                .map_err(|source| self.shared.io(source))?;
            if block.is_empty() {
                return Ok(None);
            }
            let start = match self.skip_to {
                None => 0,
                Some(seq) => skip(block, seq).map_err(|at| LogError::Damaged {
                    path: self.shared.path.clone(),
                    offset: offset + at as u64,
                })?,
            };
            if start == block.len() {
                continue;
            }
            self.skip_to = None;
            let cut = cut(&block[start..], self.left, self.given);
            // What does not fit ends the reading: the caller goes on with a reader of its own.
            let ended = start + cut < block.len();
            self.left = if ended {
                0
            } else {
                self.left.saturating_sub(cut as u64)
            };
            self.given = true;
            if cut == 0 {
                return Ok(None);
            }
            // Borrowed again, since the borrow above cannot be returned out of the loop.
            return Ok(Some(&self.blocks.last()[start..start + cut]));
        }
    }
}

/// Bytes of the lines up to and including number `seq`; an error tells where a line is none.
fn skip(block: &[u8], seq: u64) -> Result<usize, usize> {
    let mut at = 0;
    for line in lines(block) {
        if seq_of(line).ok_or(at)? > seq {
            break;
        }
        at += line.len();
    }
    Ok(at)
}

/// Bytes of the whole lines that fit into `left`; one line always fits when none was given yet.
fn cut(block: &[u8], left: u64, given: bool) -> usize {
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    if block.len() <= left {
        return block.len();
    }
    match memchr::memrchr(b'\n', &block[..left]) {
        Some(last) => last + 1,
        None if given => 0,
        None => lines(block).next().map_or(0, <[u8]>::len),
    }
}

impl Iterator for LogReader {
    type Item = Result<Vec<u8>, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.pending.len() {
            let mut pending = std::mem::take(&mut self.pending);
            pending.clear();
            match self.next_block() {
                Ok(None) => return None,
                Ok(Some(block)) => pending.extend_from_slice(block),
                Err(error) => {
                    self.left = 0;
                    self.given = true;
                    return Some(Err(error));
                }
            }
            if pending.capacity() > 4 * BLOCK {
                pending.shrink_to_fit();
            }
            self.pending = pending;
            self.at = 0;
        }
        let rest = &self.pending[self.at..];
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].to_vec();
        self.at += (end + 1).min(rest.len());
        Some(Ok(line))
    }
}
