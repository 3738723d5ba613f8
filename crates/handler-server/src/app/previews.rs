//! Who may see a preview: a ticket that works once lets one browser in, a cookie of that preview keeps it there.
//!
//! A preview is a page of untrusted code on a host name of its own. Its cookie opens that one port of that one sandbox
//! and nothing else: it holds no token, only the daemon's seal over sandbox, port and time. Invariant: a ticket is
//! redeemed at most once, at the preview it was made for, within [`TICKET`].

use crate::http::problem::{ApiError, ApiResult};
use handler_types::{ProblemCode, SandboxId};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a ticket waits for its browser.
const TICKET: Duration = Duration::from_secs(60);
/// Most tickets that wait.
const MOST_TICKETS: usize = 1024;
/// How long a cookie is good, seconds.
pub const COOKIE_SECS: i64 = 12 * 60 * 60;
/// Longest path a ticket leads to, bytes.
const LONGEST_PATH: usize = 2048;

/// One port of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Preview {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The port inside.
    pub port: u16,
}

#[derive(Debug)]
struct Ticket {
    preview: Preview,
    path: String,
    made: Instant,
}

/// Tickets that wait, and the seal of cookies.
pub struct Previews {
    tickets: Mutex<HashMap<String, Ticket>>,
    seal: Hmac<Sha256>,
}

impl std::fmt::Debug for Previews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Previews").finish_non_exhaustive()
    }
}

impl Previews {
    /// Cookies stay good as long as the daemon's token stays the same.
    #[must_use]
    pub fn new(token: &str) -> Self {
        let keyed = |key: &[u8]| {
            Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length")
        };
        let own_key = keyed(token.as_bytes())
            .chain_update(b"preview cookies")
            .finalize();
        Self {
            tickets: Mutex::default(),
            seal: keyed(&own_key.into_bytes()),
        }
    }

    /// A new ticket, made `now`, that leads to `path`.
    ///
    /// # Errors
    /// 400 when the path is none.
    pub fn ticket(&self, preview: Preview, path: &str, now: Instant) -> ApiResult<String> {
        let is_path = path.starts_with('/')
            && !path.starts_with("//")
            && path.len() <= LONGEST_PATH
            && path
                .bytes()
                .all(|b| (0x21..0x7f).contains(&b) && b != b'\\');
        if !is_path {
            return Err(ApiError::new(
                ProblemCode::Invalid,
                "path: one `/` and what follows, percent-encoded, at most 2048 characters",
            ));
        }
        let ticket = handler_base::random::hex(32);
        let mut tickets = self.lock();
        tickets.retain(|_, ticket| now.saturating_duration_since(ticket.made) < TICKET);
        if tickets.len() >= MOST_TICKETS {
            return Err(ApiError::new(
                ProblemCode::TooMany,
                "too many previews are being opened; try again in a minute",
            ));
        }
        let waiting = Ticket {
            preview,
            path: path.to_owned(),
            made: now,
        };
        tickets.insert(ticket.clone(), waiting);
        Ok(ticket)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Ticket>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Redeems a ticket `now`: where it leads to.
    pub fn redeem(&self, preview: &Preview, ticket: &str, now: Instant) -> Option<String> {
        let mut tickets = self.lock();
        let found = tickets.get(ticket)?;
        if found.preview != *preview {
            // Shown at another preview: it stays good for its own.
            return None;
        }
        let found = tickets.remove(ticket)?;
        (now.saturating_duration_since(found.made) < TICKET).then_some(found.path)
    }

    fn sealed(&self, preview: &Preview, until: i64) -> Hmac<Sha256> {
        let text = format!("{} {} {until}", preview.sandbox, preview.port);
        self.seal.clone().chain_update(text)
    }

    /// The value of the cookie of a preview, good from `now_ms` on.
    #[must_use]
    pub fn cookie(&self, preview: &Preview, now_ms: i64) -> String {
        use std::fmt::Write as _;
        let until = now_ms / 1000 + COOKIE_SECS;
        let seal = self.sealed(preview, until).finalize().into_bytes();
        seal.iter().fold(format!("{until}."), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        })
    }

    /// Whether a cookie's value is good for a preview.
    #[must_use]
    pub fn is_good(&self, preview: &Preview, value: &str, now_ms: i64) -> bool {
        let Some((until, seal)) = value.split_once('.') else {
            return false;
        };
        let (Ok(until), Some(seal)) = (until.parse::<i64>(), from_hex(seal)) else {
            return false;
        };
        // Compared in constant time.
        until > now_ms / 1000 && self.sealed(preview, until).verify_slice(&seal).is_ok()
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    (0..64)
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(byte: u8, port: u16) -> Preview {
        Preview {
            sandbox: SandboxId::from_random([byte; 8]),
            port,
        }
    }

    #[test]
    fn a_ticket_works_once_at_its_own_preview_within_a_minute() {
        let previews = Previews::new("token");
        let now = Instant::now();
        let ticket = previews
            .ticket(preview(1, 80), "/a?b=c", now)
            .expect("made");
        assert_eq!(previews.redeem(&preview(2, 80), &ticket, now), None);
        assert_eq!(previews.redeem(&preview(1, 81), &ticket, now), None);
        let path = previews.redeem(&preview(1, 80), &ticket, now);
        assert_eq!(path.as_deref(), Some("/a?b=c"));
        assert_eq!(previews.redeem(&preview(1, 80), &ticket, now), None);
        let late = previews.ticket(preview(1, 80), "/", now).expect("made");
        let then = now + TICKET;
        assert_eq!(previews.redeem(&preview(1, 80), &late, then), None);
        for bad in ["", "a", "//evil.example", "/\\evil.example", "/a b", "/ü"] {
            assert!(previews.ticket(preview(1, 80), bad, now).is_err(), "{bad}");
        }
        for _ in 0..MOST_TICKETS {
            previews.ticket(preview(1, 80), "/", then).expect("room");
        }
        assert!(previews.ticket(preview(1, 80), "/", then).is_err());
    }

    #[test]
    fn a_cookie_opens_its_own_preview_until_its_time_is_over() {
        let previews = Previews::new("token");
        let cookie = previews.cookie(&preview(1, 80), 0);
        assert!(previews.is_good(&preview(1, 80), &cookie, 1));
        assert!(!previews.is_good(&preview(1, 8), &cookie, 1));
        assert!(!previews.is_good(&preview(2, 80), &cookie, 1));
        assert!(!previews.is_good(&preview(1, 80), &cookie, COOKIE_SECS * 1000));
        assert!(!Previews::new("other").is_good(&preview(1, 80), &cookie, 1));
        let later = cookie.replacen(&COOKIE_SECS.to_string(), "99999999", 1);
        assert!(!previews.is_good(&preview(1, 80), &later, 1));
        for bad in ["", ".", "1.", "x.00", &cookie[..cookie.len() - 1]] {
            assert!(!previews.is_good(&preview(1, 80), bad, 1), "{bad}");
        }
    }
}
