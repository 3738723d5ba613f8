//! Requests to an engine's API socket: bounded answers, streams of JSON lines, refusals as [`ImageError`].
//!
//! One connection a request: dropping the answer closes it, which is how the engine is told to stop.

use super::text::clean;
use crate::oci::{Flavour, OciApi, OciError, OciUse};
use bytes::Bytes;
use handler_base::http::{Endpoint, HttpError};
use handler_engine::images::ImageError;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;

/// Longest answer that is read whole, bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// Longest line of a stream, bytes.
const MAX_LINE: usize = 1024 * 1024;
/// How long a short call may take on a busy machine.
const SHORT: Duration = Duration::from_secs(120);

/// An engine's API.
#[derive(Debug, Clone)]
pub(super) struct Api {
    pub(super) engine: OciApi,
}

/// An answer, and the engine kept running until it is read.
pub(super) struct Reply {
    response: Response<Incoming>,
    _engine: OciUse,
}

impl Api {
    /// Whether it is Podman.
    pub(super) fn is_podman(&self) -> bool {
        self.engine.flavour() == Flavour::Podman
    }

    /// The backend's name.
    pub(super) fn backend(&self) -> &'static str {
        self.engine.flavour().name()
    }

    /// The address of a call in the engine's own dialect.
    pub(super) fn address(&self, path: &str, query: &[(&str, &str)]) -> String {
        let mut address = match self.engine.flavour() {
            Flavour::Podman => format!("/v4.0.0/libpod{path}"),
            Flavour::Docker => path.to_owned(),
        };
        for (index, (key, value)) in query.iter().enumerate() {
            let sign = if index == 0 { '?' } else { '&' };
            write!(address, "{sign}{key}={}", encode(value)).expect("a string can be written to");
        }
        address
    }

    /// Sends a request; a refusal becomes an error. The body of the answer streams.
    pub(super) async fn send<B>(
        &self,
        method: Method,
        address: &str,
        body: B,
        headers_within: Option<Duration>,
    ) -> Result<Reply, ImageError>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let engine = self.engine.connect().await.map_err(unavailable)?;
        let request = Request::builder()
            .method(method)
            .uri(address)
            .header(http::header::HOST, "localhost")
            .header(http::header::CONTENT_TYPE, "application/x-tar")
            .body(body)
            .map_err(|error| ImageError::Invalid(format!("not a request: {error}")))?;
        let response = Endpoint::Unix(engine.socket())
            .send(request, headers_within)
            .await
            .map_err(|error| self.broken(&error))?;
        if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED {
            return Ok(Reply {
                response,
                _engine: engine,
            });
        }
        let status = response.status();
        let text = read(response).await.unwrap_or_default();
        Err(refusal(status, &text))
    }

    /// Sends a request without body and reads the JSON answer.
    pub(super) async fn json(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Value, ImageError> {
        let address = self.address(path, query);
        let answer = tokio::time::timeout(SHORT, async {
            let reply = self
                .send(method, &address, Full::<Bytes>::default(), None)
                .await?;
            read(reply.response).await
        });
        let bytes = answer.await.map_err(|_| {
            ImageError::Unavailable(format!(
                "{} does not answer within {SHORT:?}",
                self.backend()
            ))
        })??;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| ImageError::Failed(format!("not understood: {error}")))
    }

    fn broken(&self, error: &HttpError) -> ImageError {
        let backend = self.backend();
        let cause = std::error::Error::source(error).map_or(String::new(), |c| format!(": {c}"));
        ImageError::Unavailable(format!("{backend} cannot be reached: {error}{cause}"))
    }
}

fn unavailable(error: OciError) -> ImageError {
    ImageError::Unavailable(error.to_string())
}

async fn read(response: Response<Incoming>) -> Result<Bytes, ImageError> {
    Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| ImageError::Failed(format!("the answer broke off: {error}")))
}

/// The engine's word for a refusal, and which kind it is.
fn refusal(status: StatusCode, body: &[u8]) -> ImageError {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = ["message", "cause", "error"]
        .iter()
        .find_map(|key| value[*key].as_str())
        .map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    classify(status.as_u16(), &text)
}

/// An error out of the engine's words; `status` 0 where it came in a stream.
pub(super) fn classify(status: u16, text: &str) -> ImageError {
    let text: String = clean(text.trim()).chars().take(2000).collect();
    if text.contains("no space left on device") {
        return ImageError::NoSpace(format!("the engine's store has no room: {text}"));
    }
    match status {
        404 => ImageError::NotFound(text),
        400 => ImageError::Invalid(text),
        409 => ImageError::InUse(text),
        _ => ImageError::Failed(text),
    }
}

/// Documents of an answer, one a line (or one after another), as they come.
pub(super) struct JsonLines {
    reply: Reply,
    buffer: Vec<u8>,
}

impl JsonLines {
    pub(super) fn new(reply: Reply) -> Self {
        Self {
            reply,
            buffer: Vec::new(),
        }
    }

    /// The next document; none at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, ImageError> {
        loop {
            if let Some(value) = self.parse()? {
                return Ok(Some(value));
            }
            match self.reply.response.body_mut().frame().await {
                None => return self.last(),
                Some(Err(error)) => {
                    return Err(ImageError::Failed(format!("the engine broke off: {error}")));
                }
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }

    fn parse(&mut self) -> Result<Option<Value>, ImageError> {
        let mut stream = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => {
                let end = stream.byte_offset();
                self.buffer.drain(..end);
                Ok(Some(value))
            }
            Some(Err(error)) if !error.is_eof() => {
                Err(ImageError::Failed(format!("not understood: {error}")))
            }
            _ if self.buffer.len() > MAX_LINE => {
                Err(ImageError::Failed("a line of more than 1 MiB".to_owned()))
            }
            _ => Ok(None),
        }
    }

    fn last(&mut self) -> Result<Option<Value>, ImageError> {
        if self.buffer.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        Err(ImageError::Failed(
            "the engine's answer broke off".to_owned(),
        ))
    }
}

/// Percent-encodes a text for an address.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string can be written to");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_keep_their_kind_and_lose_escape_sequences() {
        let error = refusal(
            StatusCode::CONFLICT,
            br#"{"cause":"c","message":"in \u001b[1muse"}"#,
        );
        assert!(matches!(error, ImageError::InUse(text) if text == "in use"));
        let error = refusal(StatusCode::NOT_FOUND, b"nothing");
        assert!(matches!(error, ImageError::NotFound(text) if text == "nothing"));
        let error = classify(0, "write /x: no space left on device");
        assert!(matches!(error, ImageError::NoSpace(_)));
    }
}
