//! From what went wrong in here to what the seam knows.

use crate::unpack::UnpackError;
use handler_engine::images::ImageError;
use std::io;
use tokio_util::sync::CancellationToken;

/// Names the failed step; a full disk is told as such.
pub(crate) fn io_error(what: &str, error: &io::Error) -> ImageError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ImageError::NoSpace(format!(
            "{what}: the disk of Handler's data folder is full; remove images or make room"
        )),
        _ => ImageError::Failed(format!("{what}: {error}")),
    }
}

/// What a layer's archive did wrong, or what kept it from being unpacked.
pub(crate) fn unpack_error(error: UnpackError, cancel: &CancellationToken) -> ImageError {
    if cancel.is_cancelled() {
        return ImageError::Cancelled;
    }
    match error {
        UnpackError::Refused { .. } => {
            ImageError::Invalid(format!("the archive is refused: {error}"))
        }
        UnpackError::TooBig(why) => ImageError::Invalid(format!("the archive is refused: {why}")),
        UnpackError::Archive(error) => {
            ImageError::Invalid(format!("the archive cannot be read: {error}"))
        }
        UnpackError::Write { path, source } => io_error(&format!("unpack {path}"), &source),
    }
}
