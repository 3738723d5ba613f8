//! How long a client may take, and how long what nobody uses is kept.

use std::time::Duration;

/// Time limits of the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a request's head, a TLS handshake, or the first bytes of a tunnel once they have begun; also how long
    /// a connection of HTTP/1.1 is kept between two requests.
    pub head: Duration,
    /// For a tunnel through which nothing comes.
    pub idle_tunnel: Duration,
    /// For a connection of HTTP/2 without a request.
    pub idle_streams: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            idle_tunnel: Duration::from_secs(60 * 60),
            idle_streams: Duration::from_secs(5 * 60),
        }
    }
}
