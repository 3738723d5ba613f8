//! How long a client may take, how long what nobody uses is kept, and how much one sandbox may take at a time.

use std::time::Duration;

/// Limits of the filter, for each sandbox by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a request's head, a TLS handshake, or the first bytes of a tunnel once they have begun; also how long
    /// a connection of HTTP/1.1 is kept between two requests.
    pub head: Duration,
    /// For a tunnel through which nothing comes.
    pub idle_tunnel: Duration,
    /// For a connection of HTTP/2 without a request.
    pub idle_streams: Duration,
    /// For the daemon to keep a login's new tokens; so long a request towards its hosts waits.
    pub login: Duration,
    /// How long a request waits for its turn before it is refused as `handler_egress_busy`.
    pub patience: Duration,
    /// What one sandbox may take at a time.
    pub share: Share,
}

/// What one sandbox may take of the filter at a time.
///
/// Together they bound its memory: about 128 KiB for a head (at most `heads`), 400 KiB for a request under way with
/// its answer (`requests`), 128 KiB for the beginning of a tunnel (`openings`), 3 MiB for a connection of HTTP/2
/// (`streaming`), 10 KiB for any other tunnel (`connections`), and what it says itself (`coded_mib`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Connections, tunnels with them; more wait to be accepted.
    pub connections: usize,
    /// Connections on which a request of HTTP/1.1 is read or answered; more wait unread.
    pub heads: usize,
    /// Requests under way; more wait, as many as `heads`, and the others are refused.
    pub requests: usize,
    /// Blind tunnels whose first bytes are incomplete; those of more wait unread.
    pub openings: usize,
    /// Buffers of 64 KiB for blind tunnels; more tunnels that are busy at the same moment have 4 KiB.
    pub buffers: usize,
    /// TLS handshakes; more wait unread.
    pub handshakes: usize,
    /// Connections of HTTP/2; more are offered HTTP/1.1.
    pub streaming: usize,
    /// MiB for undoing content codings; what does not fit is refused.
    pub coded_mib: usize,
    /// Names being looked up; more wait.
    pub look_ups: usize,
    /// Requests refused in a second, after a first second's worth; more refusals are told later.
    pub refusals_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            idle_tunnel: Duration::from_secs(60 * 60),
            idle_streams: Duration::from_secs(5 * 60),
            login: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            share: Share::default(),
        }
    }
}

impl Default for Share {
    fn default() -> Self {
        Self {
            connections: 4096,
            heads: 1024,
            requests: 512,
            openings: 256,
            buffers: 256,
            handshakes: 64,
            streaming: 64,
            coded_mib: 256,
            look_ups: 16,
            refusals_per_second: 1000,
        }
    }
}
