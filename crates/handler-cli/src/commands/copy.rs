//! `handler sandbox cp`: files and folders in and out.
//!
//! Invariant: an archive that comes out of a sandbox is not trusted: it is unpacked beneath the target by
//! descriptor, no link is followed, no device node made, and limits end it. An interrupted copy leaves no half
//! file.

use super::{Outcome, files::split};
use crate::context::Context;
use crate::exit::Failure;
use bytes::Bytes;
use handler_archive::{Limits, Packing, Unpacking};
use handler_client::transport::encode;
use handler_client::{Client, ClientError};
use handler_types::guest::{FileKind, Unpacked};
use http::Method;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

/// What a folder that comes out may hold.
const LIMITS: Limits = Limits {
    bytes: 64 * 1024 * 1024 * 1024,
    entries: 1_000_000,
    depth: 128,
};
/// Bytes read at once.
const PIECE: usize = 64 * 1024;
/// Time between two words on how far it is.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Says how far a copy is, on a terminal.
struct Progress<'a> {
    context: &'a Context,
    bytes: u64,
    told: Instant,
}

impl<'a> Progress<'a> {
    fn new(context: &'a Context) -> Self {
        Self {
            context,
            bytes: 0,
            told: Instant::now(),
        }
    }

    fn add(&mut self, count: usize) {
        self.bytes += count as u64;
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            self.context
                .out
                .progress(&format!("{} KiB", self.bytes / 1024));
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.context.out.progress("");
    }
}

/// Copies a file or a folder in or out.
///
/// # Errors
/// [`Failure`].
pub(super) async fn copy(from: &str, to: &str, context: &Context) -> Outcome {
    match (split(from), split(to)) {
        (Some((sandbox, path)), None) => download(sandbox, path, to, context).await,
        (None, Some((sandbox, path))) => upload(from, sandbox, path, context).await,
        _ => Err(Failure::Usage("exactly one side is SANDBOX:PATH".into())),
    }
}

/// Whether a path inside is a folder; a link to one counts.
async fn is_folder(client: &Client, sandbox: &str, path: &str) -> Result<bool, Failure> {
    match client.stat_path(sandbox, path).await {
        Ok(entry) if entry.kind == FileKind::Link => {
            Ok(client.list_dir(sandbox, path, 1).await.is_ok())
        }
        Ok(entry) => Ok(entry.kind == FileKind::Folder),
        Err(error) if error.problem().is_some_and(|p| p.status == 404) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn download(sandbox: &str, path: &str, to: &str, context: &Context) -> Outcome {
    let client = context.client()?;
    let mut target = PathBuf::from(to);
    if is_folder(&client, sandbox, path).await? {
        let name = base_name(path).filter(|_| !path.ends_with("/."));
        if let Some(name) = name.filter(|_| target.is_dir()) {
            target.push(name);
        }
        return download_folder(&client, sandbox, path, &target, context).await;
    }
    if target.is_dir() {
        target.push(base_name(path).unwrap_or("file"));
    }
    download_file(&client, sandbox, path, &target, context).await
}

/// The last name of a path inside; none for the root and for `..`, which would lead elsewhere here.
fn base_name(path: &str) -> Option<&str> {
    let name = path.trim_end_matches('/').rsplit('/').next()?;
    (!matches!(name, "" | "." | "..")).then_some(name)
}

async fn open(
    client: &Client,
    route: &str,
    sandbox: &str,
    path: &str,
) -> Result<Incoming, Failure> {
    let address = format!(
        "/v1/sandboxes/{}/{route}?path={}",
        encode(sandbox),
        encode(path)
    );
    let none = Empty::<Bytes>::new();
    Ok(client
        .stream(Method::GET, &address, none)
        .await?
        .into_body())
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ClientError::Broken(Box::new(e)))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn download_file(
    client: &Client,
    sandbox: &str,
    path: &str,
    target: &Path,
    context: &Context,
) -> Outcome {
    let mut body = open(client, "files", sandbox, path).await?;
    let part = target.with_file_name(format!(".handler-{}", handler_base::random::hex(6)));
    let wrap = |e| Failure::local(format!("cannot write {}", target.display()), e);
    let mut file = std::fs::File::create_new(&part).map_err(wrap)?;
    let mut progress = Progress::new(context);
    let result: Result<(), Failure> = async {
        while let Some(data) = next(&mut body).await? {
            file.write_all(&data).map_err(wrap)?;
            progress.add(data.len());
        }
        std::fs::rename(&part, target).map_err(wrap)
    }
    .await;
    if result.is_err() {
        std::fs::remove_file(&part).ok();
    }
    result.map(|()| 0)
}

async fn download_folder(
    client: &Client,
    sandbox: &str,
    path: &str,
    target: &Path,
    context: &Context,
) -> Outcome {
    let mut body = open(client, "files/archive", sandbox, path).await?;
    let wrap = |e| Failure::local(format!("cannot write {}", target.display()), e);
    std::fs::create_dir_all(target).map_err(wrap)?;
    let failed = |e: handler_archive::ArchiveError| Failure::Failed(e.to_string());
    let mut unpacking = Unpacking::open(target, LIMITS).map_err(failed)?;
    let mut progress = Progress::new(context);
    while let Some(data) = next(&mut body).await? {
        progress.add(data.len());
        unpacking.add(&data).map_err(failed)?;
    }
    let done = unpacking.finish().map_err(failed)?;
    drop(progress);
    report(
        &Unpacked {
            files: done.files,
            bytes: done.bytes,
            refused: done.refused,
            refused_count: done.refused_count,
        },
        context,
    );
    Ok(0)
}

fn report(done: &Unpacked, context: &Context) {
    context.out.show(done, |out, done| {
        for refused in &done.refused {
            out.note(format!("left out: {refused}"));
        }
        if done.refused_count > done.refused.len() as u64 {
            out.note(format!("left out in all: {}", done.refused_count));
        }
        out.note(format!("{} entries, {} bytes", done.files, done.bytes));
    });
}

async fn upload(from: &str, sandbox: &str, path: &str, context: &Context) -> Outcome {
    let client = context.client()?;
    let meta = tokio::fs::metadata(from)
        .await
        .map_err(|e| Failure::local(format!("cannot read {from}"), e))?;
    let mut path = path.to_owned();
    let name = Path::new(from).file_name().and_then(|name| name.to_str());
    if let Some(name) = name.filter(|_| !from.ends_with("/."))
        && (path.ends_with('/') || is_folder(&client, sandbox, &path).await?)
    {
        path = format!("{}/{name}", path.trim_end_matches('/'));
    }
    if meta.is_dir() {
        upload_folder(&client, from, sandbox, &path, context).await
    } else {
        upload_file(&client, from, sandbox, &path, context).await
    }
}

/// A body of pieces that another task reads.
fn body(
    pieces: mpsc::Receiver<std::io::Result<Bytes>>,
) -> impl hyper::body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static {
    let frames = futures::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece.map(Frame::data), pieces))
    });
    StreamBody::new(Box::pin(frames))
}

async fn upload_file(
    client: &Client,
    from: &str,
    sandbox: &str,
    path: &str,
    context: &Context,
) -> Outcome {
    let wrap = |e| Failure::local(format!("cannot read {from}"), e);
    let mut file = tokio::fs::File::open(from).await.map_err(wrap)?;
    let (sender, receiver) = mpsc::channel(2);
    let address = format!(
        "/v1/sandboxes/{}/files?path={}&parents=true",
        encode(sandbox),
        encode(path)
    );
    let mut progress = Progress::new(context);
    let feed = async {
        loop {
            let mut buffer = vec![0; PIECE];
            let piece = file.read(&mut buffer).await.map(|count| {
                buffer.truncate(count);
                Bytes::from(buffer)
            });
            let is_last = !matches!(&piece, Ok(bytes) if !bytes.is_empty());
            progress.add(piece.as_ref().map_or(0, Bytes::len));
            let is_end = matches!(&piece, Ok(bytes) if bytes.is_empty());
            if is_end || sender.send(piece).await.is_err() || is_last {
                break;
            }
        }
        drop(sender);
    };
    let upload = client.stream(Method::PUT, &address, body(receiver));
    tokio::pin!(upload);
    // A daemon that refuses is not kept waiting for by a pipe that says nothing.
    let response = tokio::select! {
        response = &mut upload => response,
        () = feed => upload.await,
    };
    drop(progress);
    let answer = response?
        .into_body()
        .collect()
        .await
        .map_err(|e| ClientError::Broken(Box::new(e)))?;
    if context.out.json {
        context.out.bytes(&answer.to_bytes());
        context.out.line("");
    }
    Ok(0)
}

async fn upload_folder(
    client: &Client,
    from: &str,
    sandbox: &str,
    path: &str,
    context: &Context,
) -> Outcome {
    let failed = |e: handler_archive::ArchiveError| Failure::Failed(e.to_string());
    let (mut packing, _) = Packing::open(Path::new(from)).map_err(failed)?;
    let (sender, receiver) = mpsc::channel(2);
    let (counted, mut counts) = mpsc::channel(64);
    let read = tokio::task::spawn_blocking(move || {
        loop {
            let mut buffer = vec![0; PIECE];
            let count = packing.read(&mut buffer);
            buffer.truncate(count);
            counted.try_send(count).ok();
            if count == 0 || sender.blocking_send(Ok(Bytes::from(buffer))).is_err() {
                return packing.skipped();
            }
        }
    });
    let address = format!(
        "/v1/sandboxes/{}/files/archive?path={}&format=tar",
        encode(sandbox),
        encode(path)
    );
    let mut progress = Progress::new(context);
    let tell = async {
        while let Some(count) = counts.recv().await {
            progress.add(count);
        }
    };
    let (response, ()) = tokio::join!(client.stream(Method::POST, &address, body(receiver)), tell);
    drop(progress);
    let answer = response?
        .into_body()
        .collect()
        .await
        .map_err(|e| ClientError::Broken(Box::new(e)))?;
    if let Ok((skipped, _)) = read.await {
        for path in skipped {
            context.out.note(format!("left out: {path}"));
        }
    }
    let done: Unpacked = serde_json::from_slice(&answer.to_bytes())
        .map_err(|e| ClientError::Unexpected(e.to_string()))?;
    report(&done, context);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_from_inside_leads_elsewhere_here() {
        assert_eq!(base_name("/a/b/"), Some("b"));
        assert_eq!(base_name("b"), Some("b"));
        for odd in ["/", "", "/a/..", "..", ".", "/a/."] {
            assert_eq!(base_name(odd), None, "{odd}");
        }
    }
}
