//! ACP without I/O: lines, envelopes, and the messages the daemon itself writes.
//!
//! Typed where the daemon decides, raw where it relays: only the envelope and a few members are read;
//! every other member keeps the bytes it came with.

pub mod build;
pub mod codec;
pub mod codes;
pub mod envelope;
pub mod raw;

pub use codec::{LineDecoder, LineEvent};
pub use envelope::{Envelope, EnvelopeError, Kind, RawId};
pub use raw::RawObject;

/// Longest line accepted from an agent, bytes.
pub const MAX_AGENT_LINE: usize = 64 * 1024 * 1024;
/// Longest message accepted from a viewer, bytes.
pub const MAX_CLIENT_MESSAGE: usize = 16 * 1024 * 1024;
