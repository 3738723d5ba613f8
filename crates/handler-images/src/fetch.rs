//! Fetching one blob into a file: counted, hashed while it comes, gone on with where it broke off.
//!
//! What is fetched lies in `<digest>.part` until its digest is right. A broken fetch leaves the part for the
//! next try; a wrong or cancelled one leaves nothing.

use crate::digest::{Digest, Hashing};
use crate::error::io_error;
use crate::folders::Folders;
use crate::manifest::Descriptor;
use crate::registry::Registry;
use crate::say::{say, size};
use handler_engine::images::{ImageError, Lines};
use reqwest::{Response, StatusCode};
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often a fetch may break off without having got on.
const BREAKS: u32 = 5;
/// After how many of them it is begun anew.
const ANEW: u32 = 2;
/// Least time between two lines of progress.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// How far all layers together are.
#[derive(Debug)]
pub(crate) struct Progress {
    total: u64,
    done: AtomicU64,
    said: Mutex<Instant>,
    lines: Lines,
}

impl Progress {
    pub(crate) fn new(total: u64, lines: Lines) -> Self {
        Self {
            total,
            done: AtomicU64::new(0),
            said: Mutex::new(Instant::now()),
            lines,
        }
    }

    /// So much need not be fetched.
    pub(crate) async fn skip(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.tell().await;
    }

    async fn tell(&self) {
        {
            let mut said = self
                .said
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            if said.elapsed() < SAY_EVERY {
                return;
            }
            *said = Instant::now();
        }
        let done = self.done.load(Ordering::Relaxed).min(self.total);
        let text = format!("{} of {} fetched", size(done), size(self.total));
        say(&self.lines, &text).await;
    }
}

/// A file being filled.
struct Part {
    path: PathBuf,
    file: Hashing<File>,
    length: u64,
}

impl Part {
    /// Opens what an earlier try left, reading it once for its digest.
    fn open(path: PathBuf, most: u64) -> io::Result<Self> {
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        let length = file.metadata()?.len();
        let mut part = Self {
            path,
            file: Hashing::new(file),
            length,
        };
        if length > most {
            part.restart()?;
        } else {
            io::copy(&mut part.file, &mut io::sink())?;
        }
        Ok(part)
    }

    fn restart(&mut self) -> io::Result<()> {
        let mut file = File::options().read(true).write(true).open(&self.path)?;
        file.set_len(0)?;
        file.rewind()?;
        self.file = Hashing::new(file);
        self.length = 0;
        Ok(())
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// Fetches a blob; answers its file, whose digest is right.
pub(crate) async fn fetch(
    folders: &Folders,
    registry: &Registry,
    blob: &Descriptor,
    progress: &Progress,
    cancel: &CancellationToken,
) -> Result<PathBuf, ImageError> {
    let whole = folders.blob(&blob.digest);
    let path = whole.with_extension("part");
    let result = tokio::select! {
        result = fill(&path, registry, blob, progress) => result,
        () = cancel.cancelled() => Err(ImageError::Cancelled),
    };
    match result {
        Ok(digest) if digest == blob.digest => {
            std::fs::rename(&path, &whole)
                .map_err(|error| io_error("keep a fetched layer", &error))?;
            Ok(whole)
        }
        Ok(digest) => {
            forget(&path);
            Err(ImageError::Failed(format!(
                "the registry sent {digest} instead of {}",
                blob.digest
            )))
        }
        Err(error) => {
            // Only a broken line is worth going on with.
            if !matches!(error, ImageError::Unavailable(_)) {
                forget(&path);
            }
            Err(error)
        }
    }
}

fn forget(path: &Path) {
    std::fs::remove_file(path).ok();
}

/// Fills the part until it is as long as it should be; answers its digest.
async fn fill(
    path: &Path,
    registry: &Registry,
    blob: &Descriptor,
    progress: &Progress,
) -> Result<Digest, ImageError> {
    let failed = |error: io::Error| io_error("write a fetched layer", &error);
    let (own, most) = (path.to_owned(), blob.size);
    let part = tokio::task::spawn_blocking(move || Part::open(own, most)).await;
    let mut part = part
        .map_err(|error| ImageError::Failed(error.to_string()))?
        .map_err(failed)?;
    progress.done.fetch_add(part.length, Ordering::Relaxed);
    let mut breaks = 0;
    let mut farthest = part.length;
    while part.length < blob.size {
        match some(&mut part, registry, blob, progress).await {
            Ok(()) if part.length == blob.size => break,
            // Cut short without an error counts as a break.
            Ok(()) => {}
            Err(ImageError::Unavailable(why)) => tracing::debug!(%why, "a fetch broke off"),
            Err(error) => return Err(error),
        }
        breaks = if part.length > farthest {
            0
        } else {
            breaks + 1
        };
        farthest = farthest.max(part.length);
        if breaks == ANEW && part.length > 0 {
            // A registry that will not go on from there may still give the whole.
            progress.done.fetch_sub(part.length, Ordering::Relaxed);
            part.restart().map_err(failed)?;
        }
        if breaks >= BREAKS {
            return Err(ImageError::Unavailable(format!(
                "{}: the connection broke off {BREAKS} times at {} of {}; pull again to go on from there",
                blob.digest,
                size(part.length),
                size(blob.size)
            )));
        }
    }
    part.file.flush().map_err(failed)?;
    Ok(part.file.digest())
}

/// One request: from where the part ends, as far as it goes.
async fn some(
    part: &mut Part,
    registry: &Registry,
    blob: &Descriptor,
    progress: &Progress,
) -> Result<(), ImageError> {
    let failed = |error: io::Error| io_error("write a fetched layer", &error);
    let mut answer = registry.blob(&blob.digest, part.length).await?;
    if part.length > 0 && !goes_on(&answer, part.length) {
        progress.done.fetch_sub(part.length, Ordering::Relaxed);
        part.restart().map_err(failed)?;
        if answer.status() != StatusCode::OK {
            return Ok(());
        }
    }
    loop {
        let chunk = answer
            .chunk()
            .await
            .map_err(|error| registry.broken(error))?;
        let Some(chunk) = chunk else { return Ok(()) };
        if part.length + chunk.len() as u64 > blob.size {
            return Err(ImageError::Failed(format!(
                "the registry sent more than the {} bytes of {}",
                blob.size, blob.digest
            )));
        }
        part.add(&chunk).map_err(failed)?;
        progress
            .done
            .fetch_add(chunk.len() as u64, Ordering::Relaxed);
        progress.tell().await;
    }
}

/// Whether the answer starts where it was asked to.
fn goes_on(answer: &Response, from: u64) -> bool {
    let range = answer.headers().get(reqwest::header::CONTENT_RANGE);
    let start = range
        .and_then(|range| range.to_str().ok())
        .and_then(|range| range.strip_prefix("bytes "))
        .and_then(|range| range.split('-').next())
        .and_then(|start| start.parse::<u64>().ok());
    answer.status() == StatusCode::PARTIAL_CONTENT && start == Some(from)
}
