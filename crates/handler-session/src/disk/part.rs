//! The beginning of a very long line of the agent, kept here so that the other side need not keep it.

use super::{DiskError, io_error};
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A line's beginning on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Offset of the agent's output before the line.
    pub start: u64,
    /// Bytes kept.
    pub length: u64,
}

impl Part {
    fn path(&self, dir: &Path, generation: u64) -> PathBuf {
        dir.join(format!("stdout.{generation}.{}.part", self.start))
    }

    /// Adds what is new of the line under way.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub(crate) fn grow(
        &mut self,
        dir: &Path,
        generation: u64,
        line: &[u8],
    ) -> Result<(), DiskError> {
        let path = self.path(dir, generation);
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(io_error(&path))?;
        let have = usize::try_from(self.length)
            .unwrap_or(usize::MAX)
            .min(line.len());
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(have as u64))
            .and_then(|_| file.write_all(&line[have..]))
            .map_err(io_error(&path))?;
        self.length = line.len() as u64;
        Ok(())
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub(crate) fn read(&self, dir: &Path, generation: u64) -> Result<Vec<u8>, DiskError> {
        let path = self.path(dir, generation);
        let mut line = Vec::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(self.length).read_to_end(&mut line))
            .map_err(io_error(&path))?;
        if line.len() as u64 != self.length {
            let reason = "it is shorter than the state says".to_owned();
            return Err(DiskError::Unreadable { path, reason });
        }
        Ok(line)
    }

    /// Removes the file.
    pub(crate) fn remove(&self, dir: &Path, generation: u64) {
        std::fs::remove_file(self.path(dir, generation)).ok();
    }
}
