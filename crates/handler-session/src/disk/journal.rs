//! The agent's input as a file: byte n of the file is byte n of the agent's standard input.
//!
//! Two lengths matter: what the file has, and how far the session has (again) come. Sending bytes that
//! the file already has writes nothing.

use super::crash::{CrashPoint, Fate};
use super::{DiskError, io_error};
use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The journal of one agent process.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: Arc<File>,
    written: u64,
    position: u64,
    crash: CrashPoint,
}

impl Journal {
    /// Opens (or makes) a journal of which the session has processed `position` bytes.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub(crate) fn open(path: &Path, position: u64, crash: CrashPoint) -> Result<Self, DiskError> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io_error(path))?;
        let written = file.metadata().map_err(io_error(path))?.len();
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            written,
            position,
            crash,
        })
    }

    /// The file, for the one who writes it to the agent.
    #[must_use]
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Bytes the session has come to: what may be given to the agent.
    #[must_use]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes the file has.
    #[must_use]
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        let end = self.position + bytes.len() as u64;
        if end > self.written {
            let have = usize::try_from(self.written.saturating_sub(self.position)).unwrap_or(0);
            let missing = &bytes[have.min(bytes.len())..];
            let fate = self.crash.pass();
            let part = if fate == Fate::Tear {
                &missing[..missing.len() / 2]
            } else {
                missing
            };
            if fate != Fate::Die {
                self.file
                    .write_all_at(part, end - missing.len() as u64)
                    .map_err(io_error(&self.path))?;
            }
            if fate != Fate::Go {
                return Err(DiskError::Crashed);
            }
            self.written = end;
        }
        self.position = end;
        Ok(())
    }

    /// Accepts what the file has as processed: nothing will produce it again.
    pub(crate) fn skip_to_end(&mut self) {
        self.position = self.position.max(self.written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sent_again_are_written_once_even_after_a_torn_write() {
        let dir = tempfile::tempdir().expect("temp folder");
        let path = dir.path().join("stdin");
        let mut journal = Journal::open(&path, 0, CrashPoint::after(1, true)).expect("open");
        journal.send(b"first\n").expect("first");
        assert!(matches!(journal.send(b"second\n"), Err(DiskError::Crashed)));
        assert_eq!(std::fs::read(&path).expect("read"), b"first\nsec");
        let mut journal = Journal::open(&path, 0, CrashPoint::default()).expect("open again");
        for line in [&b"first\n"[..], b"second\n", b"third\n"] {
            journal.send(line).expect("send");
        }
        assert_eq!(
            std::fs::read(&path).expect("read"),
            b"first\nsecond\nthird\n"
        );
        assert_eq!(journal.position(), journal.written());
    }
}
