//! Reads a part of a log in blocks of whole lines, and the number at the start of a line.

use super::MAX_LINE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes read at once.
pub(super) const BLOCK: usize = 256 * 1024;
/// Bytes of a line that surely hold its number.
pub(super) const HEAD: usize = 32;

/// The number of a line; none when it is not a line of a log.
#[must_use]
pub fn seq_of(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let mut seq: u64 = 0;
    for (at, byte) in digits.iter().take(21).enumerate() {
        match byte {
            b'0'..=b'9' => {
                seq = seq.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
            }
            b',' if at > 0 => return Some(seq),
            _ => return None,
        }
    }
    None
}

/// A walk over whole lines between two offsets that are starts of lines.
#[derive(Debug)]
pub(super) struct Blocks {
    pos: u64,
    end: u64,
    buffer: Vec<u8>,
}

impl Blocks {
    pub(super) fn new(pos: u64, end: u64) -> Self {
        Self {
            pos,
            end,
            buffer: Vec::new(),
        }
    }

    /// Where the next block starts.
    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    /// The block [`Blocks::next`] gave last.
    pub(super) fn last(&self) -> &[u8] {
        &self.buffer
    }

    /// Next block of whole lines, about [`BLOCK`] bytes or one longer line; empty at the end.
    pub(super) fn next(&mut self, file: &File) -> io::Result<&[u8]> {
        let mut size = BLOCK;
        loop {
            let left = usize::try_from(self.end - self.pos).unwrap_or(usize::MAX);
            let wanted = size.min(left);
            self.buffer.resize(wanted, 0);
            file.read_exact_at(&mut self.buffer, self.pos)?;
            if wanted == 0 {
                return Ok(&[]);
            }
            if let Some(last) = memchr::memrchr(b'\n', &self.buffer) {
                self.buffer.truncate(last + 1);
                self.pos += self.buffer.len() as u64;
                return Ok(&self.buffer);
            }
            if wanted == left || size >= 2 * MAX_LINE {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line has no end",
                ));
            }
            size *= 2;
        }
    }
}

/// The lines of a block, each with its newline.
pub(super) fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', rest)? + 1;
        let (line, after) = rest.split_at(end);
        rest = after;
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_of_a_log_has_a_number() {
        assert_eq!(seq_of(b"{\"seq\":17,\"t\":\"x\"}"), Some(17));
        assert_eq!(
            seq_of(b"{\"seq\":18446744073709551615,"),
            Some(18_446_744_073_709_551_615)
        );
        for other in [
            &b""[..],
            b"{\"seq\":",
            b"{\"seq\":,",
            b"{\"seq\":1",
            b"{\"seq\":-1,",
            b"{\"seq\":18446744073709551616,",
            b"{\"seq\":1x,",
            b"{ \"seq\":1,",
            b"\0\0\0\0",
        ] {
            assert_eq!(seq_of(other), None, "{other:?}");
        }
    }

    #[test]
    fn blocks_hold_whole_lines_even_long_ones() {
        let dir = tempfile::tempdir().expect("temp folder");
        let path = dir.path().join("lines");
        let mut text = String::new();
        for length in [10, 3 * BLOCK, 1, 0, BLOCK - 1, BLOCK, 5] {
            text.push_str(&"x".repeat(length));
            text.push('\n');
        }
        std::fs::write(&path, &text).expect("write");
        let file = File::open(&path).expect("open");
        let mut blocks = Blocks::new(0, text.len() as u64);
        let mut read = Vec::new();
        loop {
            let block = blocks.next(&file).expect("block");
            if block.is_empty() {
                break;
            }
            assert_eq!(block.last(), Some(&b'\n'));
            read.extend_from_slice(block);
        }
        assert_eq!(read, text.as_bytes());
        assert_eq!(lines(text.as_bytes()).count(), 7);
    }
}
