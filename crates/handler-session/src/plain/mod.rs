//! A plain connection (contract C): one client, one agent process, nothing kept.
//!
//! ```text
//! client ── frame ──▶ Relay::client ──▶ agent
//!        ◀── frame ── Relay::agent ◀── line ──
//! ```
//!
//! [`Relay`] performs nothing: it is given a message and answers with what goes where.

mod relay;
mod setting;

pub use relay::{Passed, Relay, RelayConfig};
