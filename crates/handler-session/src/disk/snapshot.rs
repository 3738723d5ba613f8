//! `live.json`: the state, and how much of each stream it covers.

use super::crash::{CrashPoint, Fate};
use super::part::Part;
use super::{DiskError, io_error};
use crate::live::LiveState;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Format of the file.
pub(super) const VERSION: u32 = 1;

/// The state and what it covers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot<S = LiveState> {
    /// Format.
    pub version: u32,
    /// Number of the agent process.
    pub generation: u64,
    /// Last event.
    pub seq: u64,
    /// Bytes of the agent's input.
    pub stdin: u64,
    /// Number of the last input.
    pub inputs: u64,
    /// Agent's output after the last whole line.
    pub line_offset: u64,
    /// Agent's output taken in.
    pub read_offset: u64,
    /// The beginning of a line under way, when it was taken in.
    pub part: Option<Part>,
    /// The line under way is thrown away for its length.
    pub is_skipping: bool,
    /// The state.
    pub state: S,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("live.json")
}

impl Snapshot {
    /// Reads the snapshot of a session; none when there is no file.
    ///
    /// # Errors
    /// [`DiskError::Io`], [`DiskError::Unreadable`].
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, DiskError> {
        let path = path(dir);
        let content = match std::fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&path)(error)),
        };
        let unreadable = |reason: String| DiskError::Unreadable {
            path: path.clone(),
            reason,
        };
        let snapshot: Self =
            serde_json::from_slice(&content).map_err(|error| unreadable(error.to_string()))?;
        if snapshot.version != VERSION {
            return Err(unreadable(format!(
                "format {} is not known",
                snapshot.version
            )));
        }
        Ok(Some(snapshot))
    }
}

impl<S: Serialize> Snapshot<S> {
    /// Replaces the file in one step. Does not wait for the disk: it has to outlive the daemon, and an
    /// agent does not outlive the machine.
    ///
    /// # Errors
    /// [`DiskError::Io`].
    pub(crate) fn write(&self, dir: &Path, crash: &CrashPoint) -> Result<(), DiskError> {
        let path = path(dir);
        let temp = dir.join(".live.json.new");
        let content = serde_json::to_vec(self).map_err(|error| io_error(&path)(error.into()))?;
        let fate = crash.pass();
        if fate == Fate::Die {
            return Err(DiskError::Crashed);
        }
        let half = if fate == Fate::Tear {
            &content[..content.len() / 2]
        } else {
            &content[..]
        };
        std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temp)
            .and_then(|mut file| file.write_all(half))
            .map_err(io_error(&temp))?;
        if fate == Fate::Tear {
            return Err(DiskError::Crashed);
        }
        std::fs::rename(&temp, &path).map_err(io_error(&path))
    }
}
