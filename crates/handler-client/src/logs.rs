//! A sandbox's log: which lines, and as they come.

use crate::error::ClientError;
use crate::transport::{Client, encode};
use handler_types::observe::{LogLine, LogLines, LogSource};
use http::Method;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;

/// Longest event, bytes.
const MAX_EVENT: usize = 1024 * 1024;

/// Which lines of a log.
#[derive(Debug, Clone, Default)]
pub struct LogWish {
    /// At most the last so many.
    pub tail: usize,
    /// Only lines behind this number.
    pub after: Option<u64>,
    /// Not before: RFC 3339, or milliseconds since the epoch.
    pub since: Option<String>,
    /// Only lines of this source.
    pub source: Option<LogSource>,
}

impl LogWish {
    fn path(&self, id: &str, follow: bool) -> String {
        let mut path = format!("/v1/sandboxes/{}/logs?tail={}", encode(id), self.tail);
        if let Some(after) = self.after {
            path.push_str(&format!("&after={after}"));
        }
        if let Some(since) = &self.since {
            path.push_str(&format!("&since={}", encode(since)));
        }
        if let Some(source) = self.source {
            path.push_str(&format!("&source={}", source.as_str()));
        }
        if follow {
            path.push_str("&follow=true");
        }
        path
    }
}

/// Lines as they come.
#[derive(Debug)]
pub struct LogStream {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Client {
    /// Lines of a sandbox's log that are kept.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn log_lines(&self, id: &str, wish: &LogWish) -> Result<LogLines, ClientError> {
        self.call(Method::GET, &wish.path(id, false), None::<&()>)
            .await
    }

    /// Follows a sandbox's log.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn follow_logs(&self, id: &str, wish: &LogWish) -> Result<LogStream, ClientError> {
        let path = wish.path(id, true);
        let nothing = Empty::<bytes::Bytes>::new();
        let response = self.stream(Method::GET, &path, nothing).await?;
        Ok(LogStream {
            body: response.into_body(),
            buffer: Vec::new(),
        })
    }
}

impl LogStream {
    /// The next line; none when the stream ended (the sandbox is gone, or the daemon stops).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next(&mut self) -> Result<Option<LogLine>, ClientError> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|w| w == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                match parse(&block) {
                    Some(line) => return Ok(Some(line)),
                    None => continue,
                }
            }
            if self.buffer.len() > MAX_EVENT {
                return Err(ClientError::Unexpected("a line larger than 1 MiB".into()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::Broken(Box::new(error))),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

/// Reads one block; comments are none.
fn parse(block: &[u8]) -> Option<LogLine> {
    let text = std::str::from_utf8(block).ok()?;
    let data: String = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .collect();
    serde_json::from_str(data.trim_start()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_written_into_the_address() {
        let wish = LogWish {
            tail: 5,
            after: Some(9),
            since: Some("2026-01-01T00:00:00Z".into()),
            source: Some(LogSource::Egress),
        };
        assert_eq!(
            wish.path("a b", true),
            "/v1/sandboxes/a%20b/logs?tail=5&after=9&since=2026-01-01T00%3A00%3A00Z&source=egress&follow=true"
        );
    }
}
