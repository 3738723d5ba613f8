//! A build's log: a file of clean lines with a length it never grows past, and a signal for who follows it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use tokio::sync::watch;

/// Longest log, bytes.
pub(super) const MAX_LOG: u64 = 8 * 1024 * 1024;
/// Said once, where the rest would be.
const CUT: &str = "… the log ends here: it is longer than 8 MiB\n";

/// Writes a log.
#[derive(Debug)]
pub(super) struct LogWriter {
    file: File,
    length: u64,
    is_cut: bool,
    told: watch::Sender<u64>,
}

impl LogWriter {
    /// Begins a log.
    ///
    /// # Errors
    /// A disk that does not take it.
    pub(super) fn create(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            file,
            length: 0,
            is_cut: false,
            told: watch::Sender::new(0),
        })
    }

    /// Told of each new length.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    /// Appends a line; one that has no room is left out, and the first such is said.
    pub(super) fn line(&mut self, text: &str) {
        if self.is_cut {
            return;
        }
        let mut line: String = text
            .chars()
            .filter(|c| !c.is_control() || *c == '\t')
            .collect();
        line.push('\n');
        if self.length + line.len() as u64 + CUT.len() as u64 > MAX_LOG {
            self.is_cut = true;
            CUT.clone_into(&mut line);
        }
        // A full disk costs the log its rest, not the build.
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "a build's log is not written on");
            self.is_cut = true;
        }
        self.length = self.file.stream_position().unwrap_or(self.length);
        self.told.send_replace(self.length);
    }
}

/// Reads whole lines of a log from an offset, at most `limit` bytes; the text and the offset behind it.
///
/// # Errors
/// An unreadable file.
pub(super) fn read(path: &PathBuf, offset: u64, limit: usize) -> std::io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    // A line is read when it is whole, so that no character is cut.
    let end = bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    bytes.truncate(end);
    Ok((
        String::from_utf8_lossy(&bytes).into_owned(),
        offset + end as u64,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_never_grows_past_its_limit_and_says_that_it_was_cut() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        let mut log = LogWriter::create(&path).expect("a log");
        let line = "x".repeat(100_000);
        for _ in 0..100 {
            log.line(&line);
        }
        let length = std::fs::metadata(&path).expect("a file").len();
        assert!(length <= MAX_LOG && length > MAX_LOG - 200_000, "{length}");
        assert_eq!(*log.subscribe().borrow(), length);
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(text.ends_with(CUT));
    }

    #[test]
    fn lines_are_read_whole_from_any_place() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        let mut log = LogWriter::create(&path).expect("a log");
        log.line("öne\u{1b}[1m");
        log.line("two");
        let (text, next) = read(&path, 0, 9).expect("text");
        assert_eq!((text.as_str(), next), ("öne[1m\n", 8));
        assert_eq!(
            read(&path, next, 100).expect("text"),
            ("two\n".to_owned(), 12)
        );
        assert_eq!(read(&path, 12, 100).expect("text"), (String::new(), 12));
        assert_eq!(read(&path, 999, 100).expect("text"), (String::new(), 999));
    }
}
