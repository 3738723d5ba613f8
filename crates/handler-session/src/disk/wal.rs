//! Inputs since the snapshot, one JSON line each: `{"n":…,"at":…,"input":…}`.
//!
//! `n` grows by one for each input of the session; `at` is the agent's output that had been processed
//! before it, which gives its place among the agent's lines.

use super::crash::{CrashPoint, Fate};
use super::{DiskError, io_error};
use crate::live::Input;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// One input with its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WalEntry {
    /// Its number.
    pub n: u64,
    /// The agent's output processed before it.
    pub at: u64,
    /// The input.
    pub input: Input,
}

/// The file of inputs.
#[derive(Debug)]
pub(crate) struct Wal {
    path: PathBuf,
    file: File,
    length: u64,
    last: u64,
    crash: CrashPoint,
}

impl Wal {
    /// Opens (or makes) the file; gives the inputs numbered above `done`.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub(crate) fn open(
        path: &Path,
        done: u64,
        crash: CrashPoint,
    ) -> Result<(Self, Vec<WalEntry>), DiskError> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io_error(path))?;
        let content = std::fs::read(path).map_err(io_error(path))?;
        let mut entries = Vec::new();
        let (mut length, mut last) = (0, done);
        for line in content.split_inclusive(|b| *b == b'\n') {
            // A crash can only leave the last line unfinished: that input never took effect.
            let Ok(entry) = serde_json::from_slice::<WalEntry>(line) else {
                break;
            };
            if line.last() != Some(&b'\n') {
                break;
            }
            length += line.len() as u64;
            if entry.n > done {
                last = entry.n;
                entries.push(entry);
            }
        }
        file.set_len(length).map_err(io_error(path))?;
        Ok((
            Self {
                path: path.to_owned(),
                file,
                length,
                last,
                crash,
            },
            entries,
        ))
    }

    /// Number of the last input.
    #[must_use]
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Bytes of the file.
    #[must_use]
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Adds an input; when this returns it will take effect, whatever happens.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub(crate) fn append(&mut self, at: u64, input: &Input) -> Result<(), DiskError> {
        #[derive(Serialize)]
        struct Line<'a> {
            n: u64,
            at: u64,
            input: &'a Input,
        }
        let mut line = serde_json::to_vec(&Line {
            n: self.last + 1,
            at,
            input,
        })
        .map_err(|error| io_error(&self.path)(error.into()))?;
        for byte in &mut line {
            if *byte == b'\n' {
                *byte = b' ';
            }
        }
        line.push(b'\n');
        let fate = self.crash.pass();
        let part = if fate == Fate::Tear {
            &line[..line.len() / 2]
        } else {
            &line[..]
        };
        if fate != Fate::Die
            && let Err(error) = self.file.write_all_at(part, self.length)
        {
            // The next input must not stand behind half a line.
            self.file.set_len(self.length).ok();
            return Err(io_error(&self.path)(error));
        }
        if fate != Fate::Go {
            return Err(DiskError::Crashed);
        }
        self.length += line.len() as u64;
        self.last += 1;
        Ok(())
    }

    /// Forgets all inputs: a snapshot covers them.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub(crate) fn clear(&mut self) -> Result<(), DiskError> {
        if self.length > 0 {
            if self.crash.pass() != Fate::Go {
                return Err(DiskError::Crashed);
            }
            self.file.set_len(0).map_err(io_error(&self.path))?;
            self.length = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::RawObject;

    #[test]
    fn inputs_are_read_back_without_those_done_and_without_a_torn_one() {
        let dir = tempfile::tempdir().expect("temp folder");
        let path = dir.path().join("wal");
        let params =
            RawObject::parse(b"{\"prompt\":[\n{\"type\":\"text\",\"n\":1.50}]}").expect("params");
        let prompt = Input::Prompt {
            params,
            at_ms: 5,
            asker: None,
        };
        let (mut wal, _) = Wal::open(&path, 0, CrashPoint::after(2, true)).expect("open");
        wal.append(10, &Input::RefuseExtensions).expect("first");
        wal.append(20, &prompt).expect("second");
        assert!(wal.append(30, &Input::TurnLost).is_err());
        let (mut wal, entries) = Wal::open(&path, 1, CrashPoint::default()).expect("open again");
        assert_eq!(entries.len(), 1);
        assert_eq!((entries[0].n, entries[0].at, wal.last()), (2, 20, 2));
        let Input::Prompt {
            params, at_ms: 5, ..
        } = &entries[0].input
        else {
            panic!("a prompt")
        };
        assert!(params.get("prompt").expect("prompt").get().contains("1.50"));
        wal.clear().expect("clear");
        wal.append(40, &Input::TurnLost).expect("third");
        let (_, entries) = Wal::open(&path, 2, CrashPoint::default()).expect("open a third time");
        assert_eq!((entries.len(), entries[0].n), (1, 3));
    }
}
