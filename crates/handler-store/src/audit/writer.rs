//! Appending: takes up what is there, writes, begins new files, removes the oldest.

use super::{files, line};
use handler_types::audit::AuditWhat;
use handler_types::egress::EgressEvent;
use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// How large the log may become.
#[derive(Debug, Clone, Copy)]
pub struct AuditSizes {
    /// A file that is larger is followed by a new one, bytes.
    pub file_bytes: u64,
    /// Files kept.
    pub files: usize,
}

impl Default for AuditSizes {
    fn default() -> Self {
        Self {
            file_bytes: 16 * 1024 * 1024,
            files: 16,
        }
    }
}

/// Why a line was not written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The disk.
    #[error("the audit log cannot be written")]
    Io(#[from] io::Error),
    /// No text can be made of it.
    #[error("a line of the audit log cannot be made")]
    Line(#[from] serde_json::Error),
}

/// The one writer of a log.
#[derive(Debug)]
pub struct AuditWriter {
    folder: PathBuf,
    sizes: AuditSizes,
    file: File,
    size: u64,
    /// Number and hash of the last line.
    last: (u64, String),
    /// Number and time of the last event of the filter that is in the log.
    last_event: Option<(u64, i64)>,
    /// A write failed half-way: the file's end must be looked at before the next.
    doubtful: bool,
}

/// What is found at the end of a log.
struct End {
    file: File,
    size: u64,
    last: (u64, String),
    last_event: Option<(u64, i64)>,
    torn: Vec<u8>,
}

impl AuditWriter {
    /// Takes up the log in a folder, or begins one.
    ///
    /// # Errors
    /// When the folder or its newest file cannot be used.
    pub fn open(folder: &Path, sizes: AuditSizes) -> Result<Self, AuditError> {
        handler_base::fs::create_private_dir(folder)?;
        let end = find_end(folder)?;
        let mut writer = Self {
            folder: folder.to_owned(),
            sizes,
            file: end.file,
            size: end.size,
            last: end.last,
            last_event: end.last_event,
            doubtful: false,
        };
        if !end.torn.is_empty() {
            writer.put_aside(&end.torn)?;
        }
        Ok(writer)
    }

    /// Number and hash of the last line.
    #[must_use]
    pub fn last(&self) -> (u64, &str) {
        (self.last.0, &self.last.1)
    }

    /// Number and time of the last event of the filter in the newest two files.
    #[must_use]
    pub fn last_event(&self) -> Option<(u64, i64)> {
        self.last_event
    }

    /// Appends lines; with `durable` they are on the disk when this returns.
    ///
    /// # Errors
    /// The disk's, and how many lines were written before. What was written half is put aside before the next line.
    pub fn append(
        &mut self,
        t: i64,
        all: Vec<AuditWhat>,
        durable: bool,
    ) -> Result<(), (usize, AuditError)> {
        if self.doubtful {
            *self = Self::open(&self.folder, self.sizes).map_err(|error| (0, error))?;
        }
        let count = all.len();
        for (written, what) in all.into_iter().enumerate() {
            self.append_one(t, what).map_err(|error| (written, error))?;
        }
        if durable {
            let synced = self.file.sync_data();
            synced.map_err(|error| (count, error.into()))?;
        }
        Ok(())
    }

    fn append_one(&mut self, t: i64, what: AuditWhat) -> Result<(), AuditError> {
        if self.size >= self.sizes.file_bytes {
            self.rotate(t)?;
        }
        self.write(t, what)
    }

    fn write(&mut self, t: i64, what: AuditWhat) -> Result<(), AuditError> {
        let event = event_of(&what);
        let seq = self.last.0.saturating_add(1);
        let mut text = line::write(seq, t, &self.last.1, what)?;
        let hash = line::hash(text.as_bytes());
        text.push('\n');
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            self.doubtful = true;
            return Err(error.into());
        }
        self.size += text.len() as u64;
        self.last = (seq, hash);
        self.last_event = event.or(self.last_event);
        Ok(())
    }

    fn put_aside(&mut self, torn: &[u8]) -> Result<(), AuditError> {
        let path = files::torn(&self.folder, self.last.0.saturating_add(1));
        handler_base::fs::write_atomic(&path, torn, 0o600)?;
        self.file.set_len(self.size)?;
        let note = AuditWhat::Torn {
            bytes: torn.len() as u64,
            sha256: line::hash(torn),
        };
        self.write(handler_base::clock::now_ms(), note)
    }

    /// Begins a new file, and removes the oldest that are too many.
    fn rotate(&mut self, t: i64) -> Result<(), AuditError> {
        self.file.sync_data()?;
        let file = create(&files::path(&self.folder, self.last.0.saturating_add(1)))?;
        (self.file, self.size) = (file, 0);
        let all = files::list(&self.folder)?;
        let Some(surplus) = all.len().checked_sub(self.sizes.files.max(2)) else {
            return Ok(());
        };
        if surplus == 0 {
            return Ok(());
        }
        let hash = first_prev(&files::path(&self.folder, all[surplus]))?;
        let through = all[surplus].saturating_sub(1);
        // Told before it is done: a line about files that are still there harms nobody.
        self.write(t, AuditWhat::Retired { through, hash })?;
        self.file.sync_data()?;
        for first in &all[..surplus] {
            std::fs::remove_file(files::path(&self.folder, *first))?;
        }
        Ok(())
    }
}

fn event_of(what: &AuditWhat) -> Option<(u64, i64)> {
    match what {
        AuditWhat::Egress {
            event: EgressEvent { seq, t, .. },
        } => Some((*seq, *t)),
        _ => None,
    }
}

fn create(path: &Path) -> io::Result<File> {
    File::options()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// The hash that a file's first line refers to.
fn first_prev(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    line::next(&mut BufReader::new(File::open(path)?), &mut text)?;
    Ok(line::parse(&text).map_or_else(line::zero, |record| record.prev))
}

/// Reads the newest file to its end. A line that is whole but says nothing stays where it is, and the chain goes on
/// behind it: to find it is the matter of a check.
fn find_end(folder: &Path) -> io::Result<End> {
    let Some(first) = files::list(folder)?.pop() else {
        return Ok(End {
            file: create(&files::path(folder, 1))?,
            size: 0,
            last: (0, line::zero()),
            last_event: None,
            torn: Vec::new(),
        });
    };
    let path = files::path(folder, first);
    let (hash, last_event) = before(folder, first)?;
    let mut end = End {
        file: File::options().append(true).open(&path)?,
        size: 0,
        last: (first.saturating_sub(1), hash),
        last_event,
        torn: Vec::new(),
    };
    let mut reader = BufReader::new(File::open(&path)?);
    let mut text = Vec::new();
    while line::next(&mut reader, &mut text)? > 0 {
        let Some(whole) = line::whole(&text) else {
            end.torn = rest(&path, end.size)?;
            break;
        };
        let record = line::parse(whole);
        let seq = record
            .as_ref()
            .map_or(end.last.0.saturating_add(1), |record| record.seq);
        end.last_event = record
            .and_then(|record| event_of(&record.what))
            .or(end.last_event);
        end.last = (seq.max(end.last.0), line::hash(whole));
        end.size += text.len() as u64;
    }
    Ok(end)
}

/// Hash of the last line before a file, and the last event of the filter there.
fn before(folder: &Path, first: u64) -> io::Result<(String, Option<(u64, i64)>)> {
    let older = files::list(folder)?
        .into_iter()
        .rfind(|other| *other < first);
    let (mut text, mut hash, mut last_event) = (Vec::new(), line::zero(), None);
    let Some(older) = older else {
        return Ok((hash, last_event));
    };
    let mut reader = BufReader::new(File::open(files::path(folder, older))?);
    while line::next(&mut reader, &mut text)? > 0 {
        if let Some(whole) = line::whole(&text) {
            hash = line::hash(whole);
            let record = line::parse(whole);
            last_event = record
                .and_then(|record| event_of(&record.what))
                .or(last_event);
        }
    }
    Ok((hash, last_event))
}

/// What a file holds behind `from`, bounded.
fn rest(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(line::LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}
