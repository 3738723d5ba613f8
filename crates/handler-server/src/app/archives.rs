//! Folders of a sandbox as archives: tar comes from the guest and goes to it; gzip and zip are made of it and
//! made to it here, as the bytes pass.
//!
//! Invariant: what is held of an archive is bounded. A zip archive has its directory at its end, so one that is
//! sent is kept first in a file without a name, of bounded size.

use crate::app::sandboxes::guest_error;
use crate::http::problem::{ApiError, ApiResult};
use bytes::Bytes;
use flate2::write::{GzEncoder, MultiGzDecoder};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use handler_archive::{Limits, zip};
use handler_engine::guest::{FileStream, GuestHandle};
use handler_types::ProblemCode;
use handler_types::api::ArchiveFormat;
use handler_types::guest::{UnpackLimits, Unpacked};
use hyper::body::Frame;
use std::io::Write as _;
use std::path::Path;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

/// Largest zip archive taken, bytes.
const MOST_ZIP: u64 = 16 * 1024 * 1024 * 1024;
/// Bytes unzipped at once: what they become is at most about a thousand times as long.
const GZIP_STEP: usize = 2048;
/// Pieces of a converted archive that may wait for the guest.
const PIECES: usize = 4;
/// Trailer that says how many paths are not in an archive.
pub const SKIPPED: &str = "x-archive-skipped";

type Piece = Result<Bytes, String>;

/// Bytes on their way into an archive of another form.
enum Maker {
    Tar,
    Gzip(GzEncoder<Vec<u8>>),
    Zip(Box<zip::FromTar>),
}

impl Maker {
    fn new(format: ArchiveFormat) -> Self {
        match format {
            ArchiveFormat::Tar => Self::Tar,
            ArchiveFormat::TarGz => {
                Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::fast()))
            }
            ArchiveFormat::Zip => Self::Zip(Box::default()),
        }
    }

    fn add(&mut self, piece: Bytes) -> Result<Bytes, String> {
        match self {
            Self::Tar => Ok(piece),
            Self::Gzip(encoder) => {
                encoder.write_all(&piece).map_err(|e| e.to_string())?;
                Ok(std::mem::take(encoder.get_mut()).into())
            }
            Self::Zip(zip) => zip.add(&piece).map(Bytes::from).map_err(|e| e.to_string()),
        }
    }

    fn finish(self) -> Result<Bytes, String> {
        match self {
            Self::Tar => Ok(Bytes::new()),
            Self::Gzip(encoder) => encoder.finish().map(Bytes::from).map_err(|e| e.to_string()),
            Self::Zip(zip) => zip.finish().map(Bytes::from).map_err(|e| e.to_string()),
        }
    }
}

/// A folder or file as an archive; the last frame says in a trailer how many paths are left out.
///
/// # Errors
/// When the guest cannot read it.
pub async fn pack(
    guest: &GuestHandle,
    path: &str,
    format: ArchiveFormat,
) -> ApiResult<impl Stream<Item = Result<Frame<Bytes>, String>> + Send + use<>> {
    // A zip archive knows no second names of a file.
    let keeps_hard_links = format != ArchiveFormat::Zip;
    let packed = guest
        .pack_with(path, keeps_hard_links)
        .await
        .map_err(guest_error)?;
    let state = Some((packed, Some(Maker::new(format))));
    Ok(futures::stream::unfold(state, |state| async move {
        let (mut packed, maker) = state?;
        let Some(mut maker) = maker else {
            return Some((Ok(trailer(&packed)), None));
        };
        loop {
            let made = match packed.next().await {
                Some(Ok(piece)) => maker.add(piece),
                Some(Err(error)) => Err(error.to_string()),
                None => {
                    let last = maker.finish().map(Frame::data);
                    let rest = last.is_ok().then_some((packed, None));
                    return Some((last, rest));
                }
            };
            match made {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Some((Ok(Frame::data(bytes)), Some((packed, Some(maker))))),
                Err(error) => return Some((Err(error), None)),
            }
        }
    }))
}

fn trailer(packed: &FileStream) -> Frame<Bytes> {
    let mut trailers = axum::http::HeaderMap::new();
    trailers.insert(SKIPPED, packed.skipped().1.into());
    Frame::trailers(trailers)
}

/// Unpacks an archive into a folder.
///
/// # Errors
/// What the guest refuses: no archive, one that leads outside, one beyond the limits.
pub async fn unpack<S>(
    guest: &GuestHandle,
    path: &str,
    format: ArchiveFormat,
    content: S,
    spool: &Path,
) -> ApiResult<Unpacked>
where
    S: Stream<Item = Piece> + Send + Unpin + 'static,
{
    let limits = UnpackLimits::default();
    let archive: BoxStream<'static, Piece> = match format {
        ArchiveFormat::Tar => content.boxed(),
        ArchiveFormat::TarGz => gunzip(content).boxed(),
        ArchiveFormat::Zip => unzip(content, limits, spool).await?.boxed(),
    };
    guest
        .unpack(path, archive, limits)
        .await
        .map_err(guest_error)
}

/// The plain bytes of gzipped ones.
fn gunzip<S>(content: S) -> impl Stream<Item = Piece> + Send
where
    S: Stream<Item = Piece> + Send + Unpin + 'static,
{
    struct State<S> {
        content: S,
        piece: Bytes,
        decoder: Option<MultiGzDecoder<Vec<u8>>>,
    }
    let state = State {
        content,
        piece: Bytes::new(),
        decoder: Some(MultiGzDecoder::new(Vec::new())),
    };
    let broken = |e: std::io::Error| format!("the archive is no gzip, or a broken one: {e}");
    futures::stream::unfold(state, move |mut state| async move {
        let mut decoder = state.decoder.take()?;
        loop {
            if state.piece.is_empty() {
                match state.content.next().await {
                    Some(Ok(piece)) => state.piece = piece,
                    Some(Err(error)) => return Some((Err(error), state)),
                    None => {
                        let last = decoder.finish().map(Bytes::from).map_err(broken);
                        return Some((last, state));
                    }
                }
            }
            let step = state.piece.split_to(state.piece.len().min(GZIP_STEP));
            if let Err(error) = decoder.write_all(&step) {
                return Some((Err(broken(error)), state));
            }
            let plain = std::mem::take(decoder.get_mut());
            if !plain.is_empty() {
                state.decoder = Some(decoder);
                return Some((Ok(plain.into()), state));
            }
        }
    })
}

/// A zip archive as tar: kept in a file first, then read from there.
async fn unzip<S>(
    mut content: S,
    limits: UnpackLimits,
    spool: &Path,
) -> ApiResult<impl Stream<Item = Piece> + Send + use<S>>
where
    S: Stream<Item = Piece> + Send + Unpin + 'static,
{
    let no_room = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::StorageFull => ApiError::new(
            ProblemCode::NoSpace,
            "no room on this machine to take the zip archive",
        ),
        _ => ApiError::internal("keeping the zip archive", &e),
    };
    let mut file = tokio::fs::File::from_std(tempfile::tempfile_in(spool).map_err(no_room)?);
    let mut size = 0_u64;
    while let Some(piece) = content.next().await {
        let piece = piece.map_err(|e| ApiError::new(ProblemCode::Invalid, e))?;
        size += piece.len() as u64;
        if size > MOST_ZIP {
            let message = format!("a zip archive of at most {MOST_ZIP} bytes is taken; send tar");
            return Err(ApiError::new(ProblemCode::TooLarge, message));
        }
        file.write_all(&piece).await.map_err(no_room)?;
    }
    file.flush().await.map_err(no_room)?;
    let file = file.into_std().await;
    let limits = Limits {
        bytes: limits.bytes,
        entries: limits.entries,
        depth: limits.depth,
    };
    let (sender, receiver) = mpsc::channel::<Piece>(PIECES);
    handler_base::tasks::spawn_named("read a zip archive", async move {
        let told = sender.clone();
        let read = tokio::task::spawn_blocking(move || {
            zip::to_tar(file, limits, |piece| {
                sender.blocking_send(Ok(piece.into())).is_ok()
            })
        });
        let failure = match read.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_panicked) => "the zip archive could not be read".to_owned(),
        };
        told.send(Err(failure)).await.ok();
    });
    Ok(tokio_stream::wrappers::ReceiverStream::new(receiver))
}
