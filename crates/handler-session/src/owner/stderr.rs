//! The agent's standard error: its last words for error messages, and a bounded file.

use handler_store::Redactor;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A line above this size is not waited for, bytes.
const LINE: usize = 16 * 1024;
/// Bytes kept for error messages.
const TAIL: usize = 4 * 1024;
/// Size at which the file is turned over, bytes.
const FILE: u64 = 1024 * 1024;

/// Keeps what the agent writes to its standard error. Secrets are taken out; failures are ignored,
/// because nothing depends on it.
#[derive(Debug)]
pub(crate) struct Stderr {
    path: PathBuf,
    file: Option<File>,
    length: u64,
    tail: Vec<u8>,
    /// The line under way: a secret must not hide at the border of two pieces.
    line: Vec<u8>,
}

impl Stderr {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            path: dir.join("stderr.log"),
            file: None,
            length: 0,
            tail: Vec::new(),
            line: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8], redactor: &Redactor) {
        self.line.extend_from_slice(bytes);
        let whole = match memchr::memrchr(b'\n', &self.line) {
            Some(last) => last + 1,
            None if self.line.len() > LINE => self.line.len(),
            None => return,
        };
        let text: Vec<u8> = self.line.drain(..whole).collect();
        let text = String::from_utf8_lossy(&text);
        let clean = redactor.redact(&text);
        self.write(clean.as_bytes());
        self.tail.extend_from_slice(clean.as_bytes());
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.length > FILE {
            self.file = None;
            std::fs::rename(&self.path, self.path.with_extension("log.1")).ok();
        }
        if self.file.is_none() {
            self.file = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&self.path)
                .ok();
            self.length = self
                .file
                .as_ref()
                .and_then(|f| f.metadata().ok())
                .map_or(0, |m| m.len());
        }
        if let Some(file) = &mut self.file
            && file.write_all(bytes).is_ok()
        {
            self.length += bytes.len() as u64;
        }
    }

    /// The last lines, for an error message.
    pub(crate) fn tail(&self, redactor: &Redactor) -> String {
        let line = String::from_utf8_lossy(&self.line);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&self.tail),
            redactor.redact(&line)
        );
        text.trim().to_owned()
    }
}
