//! Reading a request's body: bounded, and decompressed when it came compressed.

use std::io::Read;

use axum::body::Body;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// Most bytes of a body, as sent and again after decompression. Long histories are a few MiB.
pub(crate) const BODY_LIMIT: usize = 32 * 1024 * 1024;

/// Why a body could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadBodyError {
    #[error("the body is larger than {BODY_LIMIT} bytes")]
    TooLarge,
    #[error("the body ended early: {0}")]
    Interrupted(String),
    #[error("the body is not valid gzip: {0}")]
    Gzip(std::io::Error),
    #[error("content-encoding {0:?} is not understood")]
    UnknownEncoding(String),
}

impl ReadBodyError {
    /// The HTTP status that says so.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::TooLarge => 413,
            Self::UnknownEncoding(_) => 415,
            Self::Interrupted(_) | Self::Gzip(_) => 400,
        }
    }
}

/// Reads a whole body, undoing `content-encoding: gzip`.
pub(crate) async fn read(body: Body, encoding: Option<&str>) -> Result<Bytes, ReadBodyError> {
    let collected = Limited::new(body, BODY_LIMIT).collect().await;
    let bytes = collected.map_err(classify)?.to_bytes();
    match encoding
        .map(|name| name.trim().to_ascii_lowercase())
        .as_deref()
    {
        None | Some("" | "identity") => Ok(bytes),
        Some("gzip" | "x-gzip") => gunzip(&bytes),
        Some(other) => Err(ReadBodyError::UnknownEncoding(
            other.chars().take(40).collect(),
        )),
    }
}

fn classify(error: Box<dyn std::error::Error + Send + Sync>) -> ReadBodyError {
    if error.is::<LengthLimitError>() {
        return ReadBodyError::TooLarge;
    }
    ReadBodyError::Interrupted(error.to_string())
}

fn gunzip(bytes: &[u8]) -> Result<Bytes, ReadBodyError> {
    let mut plain = Vec::new();
    // One byte over the limit tells "exactly the limit" from "more than it".
    let mut decoder = MultiGzDecoder::new(bytes).take(BODY_LIMIT as u64 + 1);
    decoder
        .read_to_end(&mut plain)
        .map_err(ReadBodyError::Gzip)?;
    if plain.len() > BODY_LIMIT {
        return Err(ReadBodyError::TooLarge);
    }
    Ok(plain.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).expect("memory does not fail");
        encoder.finish().expect("memory does not fail")
    }

    #[tokio::test]
    async fn a_small_gzip_body_cannot_grow_past_the_limit() {
        let bomb = gzip(&vec![0; BODY_LIMIT + 1]);
        assert!(bomb.len() < BODY_LIMIT / 100);
        let read = read(bomb.into(), Some("gzip")).await;
        assert!(matches!(read, Err(ReadBodyError::TooLarge)), "{read:?}");
    }

    #[tokio::test]
    async fn broken_gzip_and_unknown_encodings_are_errors() {
        let broken = read("not gzip".into(), Some("gzip")).await;
        assert!(matches!(broken, Err(ReadBodyError::Gzip(_))), "{broken:?}");
        let unknown = read("x".into(), Some("br")).await;
        assert!(
            matches!(unknown, Err(ReadBodyError::UnknownEncoding(_))),
            "{unknown:?}"
        );
        let cut = read(
            gzip(b"hello hello hello")[..12].to_vec().into(),
            Some("gzip"),
        )
        .await;
        assert!(matches!(cut, Err(ReadBodyError::Gzip(_))), "{cut:?}");
    }
}
