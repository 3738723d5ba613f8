//! Content codings: which one a body has, undone and done again as the body streams.
//!
//! Invariant: neither direction ever holds more than one piece of input, the coding's own window (at most
//! 16 MiB) and one piece of output, whatever the ratio.

mod decode;
mod encode;

pub(crate) use decode::{Decoded, Decoder};
pub(crate) use encode::Encoder;

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};

/// A coding that can be undone and done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// `gzip`
    Gzip,
    /// `deflate`, with zlib's frame.
    Deflate,
    /// `deflate` without it, as some clients send it; known by the first bytes only.
    BareDeflate,
    /// `br`
    Brotli,
    /// `zstd`
    Zstd,
}

impl Coding {
    /// Most memory that undoing and doing it takes, in MiB.
    pub(crate) fn weight(self) -> u32 {
        match self {
            Self::Gzip | Self::Deflate | Self::BareDeflate => 1,
            Self::Zstd => 10,
            Self::Brotli => 20,
        }
    }
}

/// A coding nobody here can read, or several on top of each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownCoding;

/// A body that is not what its coding says.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body does not follow its content coding")]
pub(crate) struct Corrupt;

/// The coding of a message's body, if it has one. A transfer coding other than `chunked` is never
/// understood.
pub(crate) fn coding_of(headers: &HeaderMap) -> Result<Option<Coding>, UnknownCoding> {
    if tokens(headers, &TRANSFER_ENCODING)?
        .iter()
        .any(|token| token != "chunked")
    {
        return Err(UnknownCoding);
    }
    match tokens(headers, &CONTENT_ENCODING)?.as_slice() {
        [] => Ok(None),
        [one] => match one.as_str() {
            "gzip" | "x-gzip" => Ok(Some(Coding::Gzip)),
            "deflate" => Ok(Some(Coding::Deflate)),
            "br" => Ok(Some(Coding::Brotli)),
            "zstd" => Ok(Some(Coding::Zstd)),
            _ => Err(UnknownCoding),
        },
        _ => Err(UnknownCoding),
    }
}

/// Where an RPC says that each of its messages is coded by itself, and what it would take.
const MESSAGES: [&str; 2] = ["grpc-encoding", "connect-content-encoding"];
const ACCEPT_MESSAGES: [&str; 2] = ["grpc-accept-encoding", "connect-accept-encoding"];

/// Asks for an answer without any coding.
pub(crate) fn ask_plain(headers: &mut HeaderMap) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for name in ACCEPT_MESSAGES {
        headers.remove(name);
    }
}

/// Whether the messages within a body are coded, each by itself.
pub(crate) fn has_coded_messages(headers: &HeaderMap) -> bool {
    MESSAGES.iter().any(|name| {
        headers
            .get_all(*name)
            .iter()
            .any(|value| value != "identity")
    })
}

/// The names in a list field, but those that say nothing.
fn tokens(headers: &HeaderMap, name: &HeaderName) -> Result<Vec<String>, UnknownCoding> {
    let mut all = Vec::new();
    for value in headers.get_all(name) {
        let text = value.to_str().map_err(|_| UnknownCoding)?;
        all.extend(text.split(',').map(|part| part.trim().to_ascii_lowercase()));
    }
    all.retain(|token| !token.is_empty() && token != "identity");
    Ok(all)
}

#[cfg(test)]
mod tests;
