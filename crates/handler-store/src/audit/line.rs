//! One line: written, hashed, read.

use handler_types::audit::{AuditRecord, AuditWhat};
use sha2::{Digest as _, Sha256};
use std::io::{self, BufRead};

/// Longest line believed, bytes.
pub(super) const LONGEST: u64 = 4 * 1024 * 1024;

/// What the first line of all refers to.
pub(super) fn zero() -> String {
    "0".repeat(64)
}

/// Hash of bytes, hex.
pub(super) fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").ok();
    }
    text
}

/// A line without its end.
pub(super) fn write(seq: u64, t: i64, prev: &str, what: AuditWhat) -> serde_json::Result<String> {
    serde_json::to_string(&AuditRecord {
        seq,
        t,
        prev: prev.to_owned(),
        what,
    })
}

/// Reads one.
pub(super) fn parse(line: &[u8]) -> Option<AuditRecord> {
    serde_json::from_slice(line).ok()
}

/// The next line with its end into `line`; how many bytes that are (0: no more).
pub(super) fn next(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    io::Read::take(&mut *reader, LONGEST).read_until(b'\n', line)
}

/// The line's bytes without its end; none when it was cut off.
pub(super) fn whole(line: &[u8]) -> Option<&[u8]> {
    line.strip_suffix(b"\n")
}
