//! What commands said, kept on disk while nobody listens: a detached command never waits for a viewer, and one who
//! comes later reads its output from the start, over restarts of the daemon.
//!
//! ```text
//! <state>/sandboxes/<id>/output/<guest>-<process>.data    the output, all streams together, from the first run's offset on
//! <state>/sandboxes/<id>/output/<guest>-<process>.runs    which stream from which offset on (16 bytes each)
//! ```
//!
//! Invariant: the guest is told that it may forget output only when it is in the file, or when the limits say that
//! it is not kept. At most [`MOST_BYTES`] are kept of a process and [`MOST_TOTAL`] of a sandbox; what comes after
//! that while nobody listens is lost, which shows as a gap in the offsets.

use handler_types::guest::Stream;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes kept of one process.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// Most bytes kept of all processes of one sandbox.
const MOST_TOTAL: u64 = 1024 * 1024 * 1024;
/// Bytes of one run: offset, stream, nothing.
const RUN: usize = 16;
/// Most changes of stream kept.
const MOST_RUNS: usize = 1_000_000;
/// Bytes read at once.
const PIECE: u64 = 64 * 1024;

/// The kept output of one process.
#[derive(Debug)]
pub(super) struct Kept {
    data: File,
    runs_file: File,
    /// Where each run begins, and its stream.
    runs: Vec<(u64, Stream)>,
    /// Offset of the first byte in the file.
    start: u64,
    /// Offset of the next byte to keep.
    end: u64,
    /// It can take no more.
    is_full: bool,
    /// Bytes kept of the whole sandbox.
    total: Arc<AtomicU64>,
}

/// Paths of the files of one name.
pub(super) fn paths(folder: &Path, name: &str) -> [PathBuf; 2] {
    ["data", "runs"].map(|kind| folder.join(format!("{name}.{kind}")))
}

impl Kept {
    /// Opens what is kept, or begins with nothing.
    pub(super) fn open(folder: &Path, name: &str, total: Arc<AtomicU64>) -> io::Result<Self> {
        let [data, runs] = paths(folder, name);
        let open = |path: PathBuf| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
                .open(path)
        };
        let (data, mut runs_file) = (open(data)?, open(runs)?);
        let length = data.metadata()?.len();
        let mut bytes = Vec::new();
        runs_file.read_to_end(&mut bytes)?;
        let runs = read_runs(&bytes, length);
        let start = runs.first().map_or(0, |(start, _)| *start);
        // What was begun when the daemon was killed is written again.
        runs_file.set_len((runs.len() * RUN) as u64)?;
        Ok(Self {
            is_full: length > 0 && runs.is_empty(),
            start,
            end: if runs.is_empty() { 0 } else { start + length },
            data,
            runs_file,
            runs,
            total,
        })
    }

    /// Offset of the first byte kept.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Offset behind what is kept.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Keeps output that begins at `offset`; what is kept already is skipped. Gives the offset below which the guest
    /// may forget: all of it when this is full and `drops`, as far as it is kept otherwise.
    pub(super) fn add(&mut self, offset: u64, stream: Stream, bytes: &[u8], drops: bool) -> u64 {
        let behind = offset + bytes.len() as u64;
        if self.runs.is_empty() {
            // The first there is, whatever others had of it before.
            (self.start, self.end) = (offset, offset);
        }
        let is_next = offset <= self.end && behind > self.end;
        if is_next && !self.is_full {
            let skip = usize::try_from(self.end - offset).unwrap_or(bytes.len());
            if self.write(stream, &bytes[skip..]).is_err() {
                self.is_full = true;
            }
        }
        if behind <= self.end || drops {
            behind
        } else {
            self.end
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let total = self.total.fetch_add(length, Ordering::Relaxed) + length;
        let fits = self.end - self.start + length <= MOST_BYTES && total <= MOST_TOTAL;
        if !fits || self.runs.len() >= MOST_RUNS {
            self.total.fetch_sub(length, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.runs.last().is_none_or(|(_, last)| *last != stream) {
            let mut run = [0; RUN];
            run[..8].copy_from_slice(&self.end.to_le_bytes());
            run[8] = stream as u8;
            let at = (self.runs.len() * RUN) as u64;
            self.runs_file.write_all_at(&run, at)?;
            self.runs.push((self.end, stream));
        }
        self.data.write_all_at(bytes, self.end - self.start)?;
        self.end += length;
        Ok(())
    }

    /// A piece of one stream that begins at `offset`; none at the end.
    pub(super) fn read(&self, offset: u64) -> io::Result<Option<(Stream, Vec<u8>)>> {
        if offset < self.start || offset >= self.end {
            return Ok(None);
        }
        let after = self.runs.partition_point(|(start, _)| *start <= offset);
        let Some((_, stream)) = after.checked_sub(1).and_then(|at| self.runs.get(at)) else {
            return Ok(None);
        };
        let run_end = self.runs.get(after).map_or(self.end, |(start, _)| *start);
        let length = (run_end - offset).min(PIECE);
        let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
        self.data.read_exact_at(&mut piece, offset - self.start)?;
        Ok(Some((*stream, piece)))
    }
}

/// Runs that make sense: upwards, and within `length` bytes from the first.
fn read_runs(bytes: &[u8], length: u64) -> Vec<(u64, Stream)> {
    let mut runs: Vec<(u64, Stream)> = Vec::new();
    for run in bytes.chunks_exact(RUN) {
        let Some(start) = run
            .first_chunk::<8>()
            .map(|start| u64::from_le_bytes(*start))
        else {
            break;
        };
        let is_next = match runs.last() {
            Some((last, _)) => *last < start,
            None => true,
        };
        let first = runs.first().map_or(start, |(first, _)| *first);
        match Stream::from_byte(run[8]) {
            Some(stream) if is_next && start - first < length => runs.push((start, stream)),
            _ => break,
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(kept: &Kept) -> Vec<(Stream, Vec<u8>)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some((stream, piece)) = kept.read(at).expect("readable") {
            at += piece.len() as u64;
            found.push((stream, piece));
        }
        found
    }

    #[test]
    fn output_is_kept_with_its_streams_over_a_restart_and_pieces_sent_again_are_skipped() {
        let temp = tempfile::tempdir().expect("temp");
        let total = || Arc::new(AtomicU64::new(0));
        let mut kept = Kept::open(temp.path(), "g-7", total()).expect("opens");
        assert_eq!(kept.add(0, Stream::Stdout, b"one ", false), 4);
        assert_eq!(kept.start(), 0);
        assert_eq!(kept.add(2, Stream::Stdout, b"e two", false), 7);
        assert_eq!(kept.add(7, Stream::Stderr, b"err", false), 10);
        // A gap is not kept, and may only be forgotten when told so.
        assert_eq!(kept.add(20, Stream::Stdout, b"far", false), 10);
        assert_eq!(kept.add(20, Stream::Stdout, b"far", true), 23);
        let expected = [
            (Stream::Stdout, b"one two".to_vec()),
            (Stream::Stderr, b"err".to_vec()),
        ];
        assert_eq!(all(&kept), expected);
        drop(kept);
        // The daemon was killed between a run and its bytes.
        let [_, runs] = paths(temp.path(), "g-7");
        let mut bytes = std::fs::read(&runs).expect("there");
        bytes.extend_from_slice(&10_u64.to_le_bytes());
        bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 9]);
        std::fs::write(&runs, bytes).expect("written");
        let mut kept = Kept::open(temp.path(), "g-7", total()).expect("opens");
        assert_eq!((kept.end(), all(&kept)), (10, expected.to_vec()));
        kept.add(10, Stream::Stdout, b"more", false);
        assert_eq!(all(&kept).len(), 3);
    }

    #[test]
    fn what_begins_later_is_kept_from_there() {
        let temp = tempfile::tempdir().expect("temp");
        let open = || Kept::open(temp.path(), "g-1", Arc::new(AtomicU64::new(0))).expect("opens");
        assert_eq!(open().add(100, Stream::Stderr, b"late", false), 104);
        let mut kept = open();
        assert_eq!((kept.start(), kept.end()), (100, 104));
        kept.add(104, Stream::Stdout, b"r", false);
        assert_eq!(
            kept.read(102).expect("readable"),
            Some((Stream::Stderr, b"te".to_vec()))
        );
        assert_eq!(
            kept.read(104).expect("readable"),
            Some((Stream::Stdout, b"r".to_vec()))
        );
        assert_eq!(kept.read(99).expect("readable"), None);
    }

    #[test]
    fn a_full_sandbox_keeps_no_more_and_says_so_by_what_may_be_forgotten() {
        let temp = tempfile::tempdir().expect("temp");
        let total = Arc::new(AtomicU64::new(MOST_TOTAL - 3));
        let mut kept = Kept::open(temp.path(), "g-1", total.clone()).expect("opens");
        assert_eq!(kept.add(0, Stream::Stdout, b"abcd", false), 0);
        assert_eq!(kept.add(0, Stream::Stdout, b"abcd", true), 4);
        assert_eq!(total.load(Ordering::Relaxed), MOST_TOTAL - 3);
    }
}
