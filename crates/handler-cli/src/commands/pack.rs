//! A folder or file on its way to the daemon as a streaming body.

use crate::exit::Failure;
use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes read at once.
const PIECE: usize = 128 * 1024;

/// What failed on this side is told after the upload: the daemon only sees that it broke off.
pub(super) type Packing = tokio::task::JoinHandle<std::io::Result<()>>;

/// The folder as a tar archive: links as links, everything else as it is.
///
/// # Errors
/// No such folder.
pub(super) fn folder(
    folder: &Path,
) -> Result<
    (
        impl hyper::body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static,
        Packing,
    ),
    Failure,
> {
    let wrap = |error| Failure::local(format!("cannot read {}", folder.display()), error);
    let folder: PathBuf = folder.canonicalize().map_err(wrap)?;
    if !folder.is_dir() {
        return Err(Failure::Usage(format!("{} is no folder", folder.display())));
    }
    let (writer, reader) = std::os::unix::net::UnixStream::pair().map_err(wrap)?;
    reader.set_nonblocking(true).map_err(wrap)?;
    let reader = tokio::net::UnixStream::from_std(reader).map_err(wrap)?;
    let packing = tokio::task::spawn_blocking(move || {
        let mut archive = tar::Builder::new(std::io::BufWriter::with_capacity(PIECE, writer));
        archive.follow_symlinks(false);
        archive.append_dir_all(".", &folder)?;
        archive
            .into_inner()?
            .into_inner()
            .map_err(|e| e.into_error())?;
        Ok(())
    });
    Ok((body(reader), packing))
}

/// A file as it is; `-` is standard input.
///
/// # Errors
/// No such file.
pub(super) async fn file(
    path: &str,
) -> Result<impl hyper::body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static, Failure>
{
    let reader: Box<dyn AsyncRead + Send + Unpin> = if path == "-" {
        Box::new(tokio::io::stdin())
    } else {
        let file = tokio::fs::File::open(path).await;
        Box::new(file.map_err(|e| Failure::local(format!("cannot read {path}"), e))?)
    };
    Ok(body(reader))
}

fn body(
    reader: impl AsyncRead + Send + Unpin + 'static,
) -> impl hyper::body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static {
    let pieces = futures::stream::try_unfold(reader, |mut reader| async move {
        let mut piece = vec![0; PIECE];
        let got = reader.read(&mut piece).await?;
        piece.truncate(got);
        Ok::<_, std::io::Error>((got > 0).then(|| (Frame::data(Bytes::from(piece)), reader)))
    });
    StreamBody::new(Box::pin(pieces))
}
