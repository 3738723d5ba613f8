//! What is kept of a terminal on disk: a small record and the last snapshot of its screen, in a folder of its own
//! below the sandbox's.
//!
//! Invariant: output is acknowledged to the guest only below what a written snapshot holds, so that after any end
//! of the daemon snapshot and unacknowledged output together are everything, once. Nothing is flushed to the disk
//! itself: when the machine ends, the sandbox does too.

use handler_terminal::{Limits, Screen};
use handler_types::guest::{Exit, TtySize};
use handler_types::terminal::TerminalNumber;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// File of the record in a terminal's folder.
const RECORD: &str = "terminal.json";
/// File of the snapshot.
const SCREEN: &str = "screen";

/// A terminal as it is known without its process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) terminal: TerminalNumber,
    /// Key of its process; finds it again whatever its number.
    pub(super) key: String,
    /// Number of its process; 0 until it is known.
    pub(super) process: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) argv: Vec<String>,
    pub(super) size: TtySize,
    pub(super) created_ms: i64,
    /// It has ended, and all its output is in the snapshot.
    #[serde(default)]
    pub(super) ended: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit: Option<Exit>,
}

/// A terminal's folder.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

/// What a snapshot says besides the screen.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Position {
    /// Output bytes the screen has taken.
    pub(super) offset: u64,
    /// When output came last, milliseconds since the epoch.
    pub(super) changed_ms: i64,
}

impl Folder {
    /// Makes the folder of the next free number, above `above`, in the terminals' folder.
    pub(super) fn make(
        terminals: &Path,
        above: TerminalNumber,
    ) -> io::Result<(TerminalNumber, Self)> {
        handler_base::fs::create_private_dir(terminals)?;
        let known = numbers(terminals)?.into_iter().max().unwrap_or(0);
        let mut number = known.max(above).saturating_add(1);
        loop {
            let folder = terminals.join(number.to_string());
            match std::fs::create_dir(&folder) {
                Ok(()) => return Ok((number, Self(folder))),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The folder of a number.
    pub(super) fn of(terminals: &Path, number: TerminalNumber) -> Self {
        Self(terminals.join(number.to_string()))
    }

    pub(super) fn write_record(&self, record: &Record) -> io::Result<()> {
        self.write(RECORD, &serde_json::to_vec(record)?)
    }

    pub(super) fn read_record(&self) -> io::Result<Record> {
        Ok(serde_json::from_slice(&std::fs::read(
            self.0.join(RECORD),
        )?)?)
    }

    pub(super) fn write_screen(&self, snapshot: &[u8]) -> io::Result<()> {
        self.write(SCREEN, snapshot)
    }

    /// The screen as last written; none if there is none that can be read.
    pub(super) fn read_screen(&self) -> Option<(Screen, Position)> {
        let bytes = std::fs::read(self.0.join(SCREEN)).ok()?;
        match Screen::restore(&bytes, Limits::default()) {
            Ok((screen, note)) => Some((screen, serde_json::from_value(note).unwrap_or_default())),
            Err(error) => {
                tracing::warn!(%error, folder = %self.0.display(), "a terminal's screen begins anew");
                None
            }
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, fresh) = (self.0.join(name), self.0.join(format!("{name}.new")));
        std::fs::write(&fresh, bytes)?;
        std::fs::rename(fresh, path)
    }

    pub(super) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %self.0.display(), "a closed terminal's folder stays");
        }
    }
}

/// Numbers of the terminals that have a folder.
pub(super) fn numbers(terminals: &Path) -> io::Result<Vec<TerminalNumber>> {
    let entries = match std::fs::read_dir(terminals) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut all: Vec<TerminalNumber> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    all.sort_unstable();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_terminal::Size;

    #[test]
    fn numbers_are_not_given_twice_and_a_half_written_screen_is_none() {
        let base = tempfile::tempdir().expect("a folder");
        let terminals = base.path().join("terminals");
        let (one, first) = Folder::make(&terminals, 0).expect("made");
        let (two, _) = Folder::make(&terminals, 0).expect("made");
        assert_eq!((one, two), (1, 2));
        assert_eq!(Folder::make(&terminals, 7).expect("made").0, 8);
        assert!(first.read_record().is_err() && first.read_screen().is_none());
        let size = Size { cols: 9, rows: 3 };
        let mut screen = Screen::new(size, Limits::default());
        screen.feed(b"text");
        let at = Position {
            offset: 4,
            changed_ms: 5,
        };
        let bytes = screen.snapshot(&serde_json::to_value(at).expect("JSON"));
        first
            .write_screen(&bytes[..bytes.len() - 1])
            .expect("written");
        assert!(first.read_screen().is_none());
        first.write_screen(&bytes).expect("written");
        let (again, position) = first.read_screen().expect("whole");
        assert_eq!(
            (again.rows_text()[0].as_str(), position.offset),
            ("text", 4)
        );
        first.remove();
        assert_eq!(numbers(&terminals).expect("read"), [2, 8]);
    }
}
