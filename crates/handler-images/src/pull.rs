//! From a registry to an image.

use crate::digest::Digest;
use crate::store::Inner;
use handler_engine::images::{ImageError, Lines};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) async fn pull(
    _inner: &Arc<Inner>,
    _reference: &str,
    _lines: &Lines,
    _cancel: &CancellationToken,
) -> Result<Digest, ImageError> {
    Err(ImageError::Unsupported("not yet".to_owned()))
}
