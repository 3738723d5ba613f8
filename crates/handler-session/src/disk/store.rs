//! All durable writes of one session, in the order the files require.

use super::crash::{CrashPoint, Fate};
use super::journal::Journal;
use super::part::Part;
use super::snapshot::{Snapshot, VERSION};
use super::wal::{Wal, WalEntry};
use super::{DiskError, io_error};
use crate::acp::LineDecoder;
use crate::live::{Input, LiveState};
use handler_store::log::LogError;
use handler_store::{EventLog, Redactor};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A line's beginning goes to a file of its own from this size, bytes.
const BIG_PART: usize = 128 * 1024;

/// The files of a session with a running agent.
#[derive(Debug)]
pub(crate) struct Disk {
    dir: PathBuf,
    generation: u64,
    log: EventLog,
    redactor: Redactor,
    seq: u64,
    journal: Journal,
    wal: Wal,
    part: Option<Part>,
    crash: CrashPoint,
}

/// A session taken over from a previous daemon.
#[derive(Debug)]
pub(crate) struct Adopted {
    /// Its files.
    pub disk: Disk,
    /// Where to go on from.
    pub snapshot: Snapshot,
    /// The line under way.
    pub decoder_partial: Vec<u8>,
    /// What happened after the snapshot.
    pub inputs: Vec<WalEntry>,
}

impl Disk {
    /// Prepares the files for a new agent process; `state` is written before anything is sent to it.
    ///
    /// # Errors
    /// [`DiskError`].
    pub(crate) fn create(
        dir: &Path,
        log: EventLog,
        redactor: Redactor,
        previous: u64,
        state: &LiveState,
        crash: CrashPoint,
    ) -> Result<Self, DiskError> {
        let generation = previous + 1;
        for path in [journal_path(dir, generation), wal_path(dir, generation)] {
            // Left by a start that did not get as far as its first snapshot.
            remove(&path)?;
        }
        let journal = Journal::open(&journal_path(dir, generation), 0, crash.clone())?;
        let (wal, _) = Wal::open(&wal_path(dir, generation), 0, crash.clone())?;
        let seq = log.last_seq();
        let disk = Self {
            dir: dir.to_owned(),
            generation,
            log,
            redactor,
            seq,
            journal,
            wal,
            part: None,
            crash,
        };
        disk.snapshot(state, 0, 0, false).write(dir, &disk.crash)?;
        disk.remove_older();
        Ok(disk)
    }

    /// Opens the files of an agent process that is still running.
    ///
    /// # Errors
    /// [`DiskError`]; [`DiskError::NothingToAdopt`] when the last agent had ended or none was started.
    pub(crate) fn adopt(
        dir: &Path,
        log: EventLog,
        redactor: Redactor,
        crash: CrashPoint,
    ) -> Result<Adopted, DiskError> {
        let snapshot = Snapshot::read(dir)?.ok_or(DiskError::NothingToAdopt)?;
        let generation = snapshot.generation;
        let journal = Journal::open(
            &journal_path(dir, generation),
            snapshot.stdin,
            crash.clone(),
        )?;
        let (wal, inputs) = Wal::open(&wal_path(dir, generation), snapshot.inputs, crash.clone())?;
        let decoder_partial = match &snapshot.part {
            Some(part) => part.read(dir, generation)?,
            None => Vec::new(),
        };
        // The log can only be shorter after a crash of the machine.
        let seq = snapshot.seq.min(log.last_seq());
        let disk = Self {
            dir: dir.to_owned(),
            generation,
            log,
            redactor,
            seq,
            journal,
            wal,
            part: snapshot.part.clone(),
            crash,
        };
        Ok(Adopted {
            disk,
            snapshot,
            decoder_partial,
            inputs,
        })
    }

    /// The event log.
    #[must_use]
    pub(crate) fn log(&self) -> &EventLog {
        &self.log
    }

    /// The redactor.
    #[must_use]
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Number of the last event the session has come to.
    #[must_use]
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The agent's input the session has come to, bytes.
    #[must_use]
    pub(crate) fn stdin(&self) -> u64 {
        self.journal.position()
    }

    /// Bytes of the agent's input on disk.
    #[must_use]
    pub(crate) fn stdin_written(&self) -> u64 {
        self.journal.written()
    }

    /// The journal's file.
    #[must_use]
    pub(crate) fn stdin_file(&self) -> Arc<File> {
        self.journal.file()
    }

    /// Bytes of inputs since the last snapshot.
    #[must_use]
    pub(crate) fn wal_length(&self) -> u64 {
        self.wal.length()
    }

    /// Whether everything that took place before has been run again.
    #[must_use]
    pub(crate) fn is_caught_up(&self) -> bool {
        self.seq >= self.log.last_seq() && self.journal.position() >= self.journal.written()
    }

    /// Accepts what took place before as it is: the rest cannot be run again.
    pub(crate) fn skip_to_end(&mut self) {
        self.seq = self.log.last_seq();
        self.journal.skip_to_end();
    }

    /// Writes an input down.
    ///
    /// # Errors
    /// [`DiskError`].
    pub(crate) fn note_input(&mut self, at: u64, input: &Input) -> Result<(), DiskError> {
        self.wal.append(at, input)
    }

    /// Writes bytes for the agent.
    ///
    /// # Errors
    /// [`DiskError`].
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.journal.send(bytes)
    }

    /// Logs an event with secrets taken out, unless the log already has it. Returns its number.
    ///
    /// # Errors
    /// [`DiskError`].
    pub(crate) fn append(&mut self, event: Map<String, Value>) -> Result<u64, DiskError> {
        if self.seq < self.log.last_seq() {
            self.seq += 1;
            return Ok(self.seq);
        }
        if self.crash.pass() != Fate::Go {
            return Err(DiskError::Crashed);
        }
        let mut event = Value::Object(event);
        self.redactor.redact_value(&mut event);
        let Value::Object(event) = event else {
            return Ok(self.seq);
        };
        self.seq = match self.log.append(&event) {
            Err(LogError::TooLong { bytes }) => {
                let kind = event["update"]["sessionUpdate"]
                    .as_str()
                    .unwrap_or_default();
                let note = json!({"kind": "omitted", "sessionUpdate": kind, "bytes": bytes});
                self.log.append(note.as_object().unwrap_or(&Map::new()))?
            }
            other => other?,
        };
        Ok(self.seq)
    }

    /// Writes a snapshot that covers everything so far; returns the offset of the agent's output that
    /// need not be kept any longer.
    ///
    /// # Errors
    /// [`DiskError`].
    pub(crate) fn save(
        &mut self,
        state: &LiveState,
        line_offset: u64,
        seen: u64,
        decoder: &LineDecoder,
    ) -> Result<u64, DiskError> {
        let old = self.part.clone();
        let partial = decoder.partial();
        let read_offset = if partial.is_empty() {
            self.part = None;
            seen
        } else if partial.len() >= BIG_PART {
            let part = match self.part.take().filter(|part| part.start == line_offset) {
                Some(part) => part,
                None => Part {
                    start: line_offset,
                    length: 0,
                },
            };
            let part = self.part.insert(part);
            part.grow(&self.dir, self.generation, partial)?;
            seen
        } else {
            self.part = None;
            line_offset
        };
        self.snapshot(state, line_offset, read_offset, decoder.is_skipping())
            .write(&self.dir, &self.crash)?;
        if let Some(old) = old.filter(|old| self.part.as_ref().is_none_or(|p| p.start != old.start))
        {
            old.remove(&self.dir, self.generation);
        }
        self.wal.clear()?;
        match self.crash.pass() {
            Fate::Go => Ok(read_offset),
            _ => Err(DiskError::Crashed),
        }
    }

    fn snapshot<'a>(
        &self,
        state: &'a LiveState,
        line_offset: u64,
        read_offset: u64,
        is_skipping: bool,
    ) -> Snapshot<&'a LiveState> {
        Snapshot {
            version: VERSION,
            generation: self.generation,
            seq: self.seq,
            stdin: self.journal.position(),
            inputs: self.wal.last(),
            line_offset,
            read_offset,
            part: self.part.clone(),
            is_skipping,
            state,
        }
    }

    /// Removes files of earlier agent processes.
    fn remove_older(&self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let mut parts = name.to_str().unwrap_or_default().split('.');
            let is_ours = matches!(parts.next(), Some("stdin" | "inputs" | "stdout"));
            let generation = parts.next().and_then(|part| part.parse::<u64>().ok());
            if is_ours && generation.is_some_and(|generation| generation != self.generation) {
                std::fs::remove_file(entry.path()).ok();
            }
        }
    }
}

fn journal_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("stdin.{generation}.journal"))
}

fn wal_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("inputs.{generation}.wal"))
}

fn remove(path: &Path) -> Result<(), DiskError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error(path)(error)),
        _ => Ok(()),
    }
}
