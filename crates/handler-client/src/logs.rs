//! A sandbox's log: which lines, and as they come.

use crate::error::ClientError;
use crate::events::EventStream;
use crate::transport::{Client, encode};
use handler_types::observe::{LogLine, LogLines, LogSource};
use http::Method;

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

/// Lines as they come; they end when the sandbox is gone or the daemon stops.
pub type LogStream = EventStream<LogLine>;

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
        self.follow(&wish.path(id, true), MAX_EVENT).await
    }
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
