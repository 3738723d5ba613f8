//! The files of a sandbox's log: `log.ndjson` and the one before it, `log.1.ndjson`.
//!
//! Opened by descriptor beneath the folder of sandboxes, links not followed, for each batch: nothing stays open that
//! would keep a removed sandbox's files. A line that a crash cut short is closed by the next one and left out.

use super::{MOST_LINES, Note, Wanted};
use handler_types::SandboxId;
use handler_types::observe::{LogLine, LogLines, LogSource};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2, renameat};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

const NOW: &str = "log.ndjson";
const BEFORE: &str = "log.1.ndjson";
/// What native guests and their launchers write into.
const GUEST: &str = "guest.log";
/// A file of so many bytes is put away.
const ROTATE: u64 = 2 * 1024 * 1024;
/// Longest line read back.
const LONGEST_LINE: u64 = 64 * 1024;
/// Lines held for a sandbox whose folder is not there yet.
const EARLY: usize = 16;
/// Bytes of the guest's file taken at a time; what is further behind is left out.
const GUEST_STEP: u64 = 64 * 1024;

/// A line as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stored {
    #[serde(flatten)]
    line: LogLine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guest_end: Option<u64>,
}

impl Stored {
    pub(super) fn of(note: &Note, message: String) -> Self {
        Self {
            line: LogLine {
                seq: 0,
                at: handler_base::clock::rfc3339(note.at),
                source: note.source,
                level: note.level,
                message,
            },
            started: note.process.and_then(Result::ok),
            ended: note.process.and_then(Result::err),
            guest_end: note.guest_end,
        }
    }
}

/// What is known of a log without reading it again.
#[derive(Debug, Default)]
struct Known {
    bytes: u64,
    last_seq: u64,
    open: BTreeSet<u32>,
    last_egress: i64,
    guest_end: u64,
    is_cut: bool,
}

impl Known {
    fn take(&mut self, stored: &Stored) {
        self.last_seq = self.last_seq.max(stored.line.seq);
        self.guest_end = stored.guest_end.unwrap_or(self.guest_end);
        if let Some(process) = stored.started {
            self.open.insert(process);
        }
        if let Some(process) = stored.ended {
            self.open.remove(&process);
        }
        match stored.line.source {
            LogSource::Egress => {
                let at = handler_base::clock::parse_rfc3339(&stored.line.at);
                self.last_egress = self.last_egress.max(at.unwrap_or_default());
            }
            // Processes are numbered anew by the next guest.
            LogSource::Lifecycle => {
                let message = &stored.line.message;
                let is_end = ["starting", "stopped", "failed"]
                    .iter()
                    .any(|word| message.starts_with(word));
                if is_end {
                    self.open.clear();
                }
            }
            _ => {}
        }
    }
}

/// All logs on the disk.
#[derive(Debug)]
pub(super) struct Disk {
    sandboxes: PathBuf,
    known: HashMap<SandboxId, Known>,
    early: HashMap<SandboxId, Vec<Stored>>,
}

impl Disk {
    pub(super) fn new(sandboxes: PathBuf) -> Self {
        Self {
            sandboxes,
            known: HashMap::new(),
            early: HashMap::new(),
        }
    }

    fn folder(&self, id: &SandboxId) -> io::Result<OwnedFd> {
        let root = File::open(&self.sandboxes)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = openat2(&root, id.as_str(), flags, Mode::empty(), beneath())?;
        Ok(fd)
    }

    /// Appends a line; what was written, numbered. A sandbox without a folder keeps a few for later.
    pub(super) fn append(&mut self, id: &SandboxId, stored: Stored) -> Vec<(SandboxId, LogLine)> {
        let Ok(folder) = self.folder(id) else {
            let early = self.early.entry(id.clone()).or_default();
            if early.len() < EARLY {
                early.push(stored);
            }
            return Vec::new();
        };
        let mut lines = self.early.remove(id).unwrap_or_default();
        lines.push(stored);
        let known = known(&mut self.known, id, &folder);
        match write(&folder, known, lines) {
            Ok(lines) => lines.into_iter().map(|line| (id.clone(), line)).collect(),
            Err(error) => {
                tracing::warn!(sandbox = %id, %error, "a sandbox's log cannot be written");
                Vec::new()
            }
        }
    }

    /// Forgets a sandbox that is gone.
    pub(super) fn forget(&mut self, id: &SandboxId) {
        self.known.remove(id);
        self.early.remove(id);
    }

    pub(super) fn open_processes(&mut self, id: &SandboxId) -> Vec<u32> {
        let Ok(folder) = self.folder(id) else {
            return Vec::new();
        };
        let known = known(&mut self.known, id, &folder);
        known.open.iter().copied().collect()
    }

    pub(super) fn last_egress(&mut self, id: &SandboxId) -> i64 {
        let Ok(folder) = self.folder(id) else {
            return 0;
        };
        known(&mut self.known, id, &folder).last_egress
    }

    /// Lines that are kept and wanted.
    pub(super) fn read(&mut self, id: &SandboxId, wanted: &Wanted) -> LogLines {
        let mut found: Vec<LogLine> = Vec::new();
        let tail = wanted.tail.clamp(1, MOST_LINES);
        let mut truncated = false;
        if let Ok(folder) = self.folder(id) {
            for name in [BEFORE, NOW] {
                each(&folder, name, |stored| {
                    // Of what was rotated away nothing is known but that numbers are missing.
                    truncated |= found.is_empty() && wanted.after.is_none() && stored.line.seq > 1;
                    let at = handler_base::clock::parse_rfc3339(&stored.line.at);
                    if wanted.fits(&stored.line, at.unwrap_or_default()) {
                        found.push(stored.line);
                    }
                })
                .ok();
            }
        }
        let from = found.len().saturating_sub(tail);
        truncated |= from > 0;
        found.drain(..from);
        LogLines {
            lines: found,
            truncated,
        }
    }

    /// New whole lines of the guest's own file, and where they end.
    pub(super) fn guest_text(&mut self, id: &SandboxId) -> (Vec<String>, u64) {
        let Ok(folder) = self.folder(id) else {
            return (Vec::new(), 0);
        };
        let known = known(&mut self.known, id, &folder);
        let Ok(text) = guest_lines(&folder, known.guest_end) else {
            return (Vec::new(), known.guest_end);
        };
        // Known at once: the lines are written a moment later.
        known.guest_end = text.1;
        text
    }
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

fn open(folder: &OwnedFd, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = if flags.contains(OFlags::CREATE) {
        Mode::RUSR | Mode::WUSR
    } else {
        Mode::empty()
    };
    let file = File::from(openat2(folder, name, flags, mode, beneath())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

fn known<'k>(
    all: &'k mut HashMap<SandboxId, Known>,
    id: &SandboxId,
    folder: &OwnedFd,
) -> &'k mut Known {
    all.entry(id.clone()).or_insert_with(|| {
        let mut known = Known::default();
        for name in [BEFORE, NOW] {
            each(folder, name, |stored| known.take(&stored)).ok();
        }
        if let Ok(mut file) = open(folder, NOW, OFlags::RDONLY) {
            known.bytes = file.metadata().map_or(0, |meta| meta.len());
            let mut last = [b'\n'];
            if known.bytes > 0 && file.seek(SeekFrom::End(-1)).is_ok() {
                file.read_exact(&mut last).ok();
            }
            known.is_cut = last != *b"\n";
        }
        known
    })
}

/// Every whole line of a file that can be read.
fn each(folder: &OwnedFd, name: &str, mut take: impl FnMut(Stored)) -> io::Result<()> {
    let mut reader = BufReader::new(open(folder, name, OFlags::RDONLY)?);
    let mut line = Vec::new();
    // Whatever its size is: nobody reads more than two files' worth.
    let mut left = ROTATE * 2;
    while left > 0 {
        line.clear();
        let read = (&mut reader)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            break;
        }
        left = left.saturating_sub(read);
        if let Ok(stored) = serde_json::from_slice(&line) {
            take(stored);
        }
    }
    Ok(())
}

fn write(folder: &OwnedFd, known: &mut Known, lines: Vec<Stored>) -> io::Result<Vec<LogLine>> {
    if known.bytes >= ROTATE {
        renameat(folder, NOW, folder, BEFORE)?;
        known.bytes = 0;
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let mut file = open(folder, NOW, flags)?;
    let mut text = Vec::new();
    if std::mem::take(&mut known.is_cut) {
        text.push(b'\n');
    }
    let mut written = Vec::with_capacity(lines.len());
    let mut seq = known.last_seq;
    for mut stored in lines {
        seq += 1;
        stored.line.seq = seq;
        serde_json::to_writer(&mut text, &stored)?;
        text.push(b'\n');
        written.push(stored);
    }
    if let Err(error) = file.write_all(&text) {
        // Perhaps half of it is there.
        known.is_cut = true;
        return Err(error);
    }
    known.bytes += text.len() as u64;
    for stored in &written {
        known.take(stored);
    }
    Ok(written.into_iter().map(|stored| stored.line).collect())
}

/// Whole lines of the guest's file behind `from`.
fn guest_lines(folder: &OwnedFd, from: u64) -> io::Result<(Vec<String>, u64)> {
    let mut file = open(folder, GUEST, OFlags::RDONLY)?;
    let size = file.metadata()?.len();
    // A file made anew begins again.
    let mut at = if size < from { 0 } else { from };
    let mut lines = Vec::new();
    if size - at > GUEST_STEP {
        let left_out = size - at - GUEST_STEP;
        lines.push(format!("{left_out} bytes of its output are left out"));
        at = size - GUEST_STEP;
    }
    file.seek(SeekFrom::Start(at))?;
    let mut text = Vec::new();
    file.take(GUEST_STEP).read_to_end(&mut text)?;
    let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
        return Ok((Vec::new(), from.min(size)));
    };
    let text = String::from_utf8_lossy(&text[..=end]).into_owned();
    let said = text.lines().filter(|line| !line.trim().is_empty());
    lines.extend(said.map(str::to_owned));
    Ok((lines, at + end as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::observe::LogLevel;

    fn disk() -> (tempfile::TempDir, Disk, SandboxId) {
        let dir = tempfile::tempdir().expect("a folder");
        let id = SandboxId::from_random([7; 8]);
        let disk = Disk::new(dir.path().to_owned());
        (dir, disk, id)
    }

    fn stored(source: LogSource, message: &str, process: Option<Result<u32, u32>>) -> Stored {
        let id = SandboxId::from_random([7; 8]);
        let mut note = Note::new(&id, source, LogLevel::Info, String::new());
        note.process = process;
        Stored::of(&note, message.to_owned())
    }

    fn wanted(tail: usize) -> Wanted {
        Wanted {
            tail,
            ..Wanted::default()
        }
    }

    #[test]
    fn lines_wait_for_the_folder_and_are_numbered_on_after_a_restart() {
        let (dir, mut disk, id) = disk();
        assert!(
            disk.append(&id, stored(LogSource::Lifecycle, "creating", None))
                .is_empty()
        );
        std::fs::create_dir(dir.path().join(id.as_str())).expect("its folder");
        let lines = disk.append(&id, stored(LogSource::Command, "a", Some(Ok(1))));
        assert_eq!(lines.iter().map(|(_, l)| l.seq).collect::<Vec<_>>(), [1, 2]);
        let mut again = Disk::new(dir.path().to_owned());
        assert_eq!(again.open_processes(&id), [1]);
        let lines = again.append(&id, stored(LogSource::Command, "b", Some(Err(1))));
        assert_eq!(lines[0].1.seq, 3);
        assert!(again.open_processes(&id).is_empty());
        let read = again.read(&id, &wanted(10));
        assert_eq!(read.lines.len(), 3);
        assert!(!read.truncated);
    }

    #[test]
    fn a_line_cut_by_a_crash_spoils_no_other() {
        let (dir, mut disk, id) = disk();
        let folder = dir.path().join(id.as_str());
        std::fs::create_dir(&folder).expect("its folder");
        disk.append(&id, stored(LogSource::Command, "whole", None));
        let path = folder.join(NOW);
        let mut text = std::fs::read(&path).expect("the file");
        text.extend_from_slice(b"{\"seq\":2,\"at\":\"20");
        std::fs::write(&path, text).expect("half a line");
        let mut again = Disk::new(dir.path().to_owned());
        again.append(&id, stored(LogSource::Command, "next", None));
        let messages: Vec<String> = again
            .read(&id, &wanted(10))
            .lines
            .into_iter()
            .map(|l| l.message)
            .collect();
        assert_eq!(messages, ["whole", "next"]);
    }

    #[test]
    fn a_log_that_grows_is_put_away_once_and_stays_bounded() {
        let (dir, mut disk, id) = disk();
        std::fs::create_dir(dir.path().join(id.as_str())).expect("its folder");
        let long = "x".repeat(4000);
        for _ in 0..2000 {
            disk.append(&id, stored(LogSource::Guest, &long, None));
        }
        let size = |name: &str| {
            std::fs::metadata(dir.path().join(id.as_str()).join(name)).map_or(0, |m| m.len())
        };
        assert!(size(NOW) + size(BEFORE) < 2 * ROTATE + 10_000);
        let read = disk.read(&id, &wanted(5));
        assert!(read.truncated);
        assert_eq!(read.lines.last().map(|l| l.seq), Some(2000));
        let after = Wanted {
            after: Some(1998),
            ..wanted(100)
        };
        assert_eq!(disk.read(&id, &after).lines.len(), 2);
    }

    #[test]
    fn a_link_in_place_of_the_log_is_not_followed() {
        let (dir, mut disk, id) = disk();
        let folder = dir.path().join(id.as_str());
        std::fs::create_dir(&folder).expect("its folder");
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "mine").expect("a file");
        std::os::unix::fs::symlink(&outside, folder.join(NOW)).expect("a link");
        assert!(
            disk.append(&id, stored(LogSource::Guest, "x", None))
                .is_empty()
        );
        assert_eq!(std::fs::read(&outside).expect("it"), b"mine");
    }

    #[test]
    fn what_the_guest_wrote_is_taken_once_in_whole_lines() {
        let (dir, mut disk, id) = disk();
        let folder = dir.path().join(id.as_str());
        std::fs::create_dir(&folder).expect("its folder");
        let path = folder.join(GUEST);
        std::fs::write(&path, "one\ntwo\nhal").expect("text");
        assert_eq!(disk.guest_text(&id), (vec!["one".into(), "two".into()], 8));
        assert_eq!(disk.guest_text(&id).0.len(), 0);
        std::fs::write(&path, "one\ntwo\nhalf\n").expect("text");
        assert_eq!(disk.guest_text(&id).0, ["half"]);
        std::fs::write(&path, "a".repeat(200_000) + "\nend\n").expect("text");
        let lines = disk.guest_text(&id).0;
        assert_eq!(lines.last().map(String::as_str), Some("end"));
    }
}
