//! What one sandbox may take of the stack.

use std::time::Duration;

/// Most connections at once, those that wait for the filter included; more are refused.
pub const FLOWS: usize = 512;
/// Bytes buffered in each direction of a connection.
pub const BUFFER: usize = 64 * 1024;
/// Most names with a made-up address; the longest unused without connections makes room.
pub const NAMES: usize = 4096;
/// Most questions for names that wait for the filter; more fail at once.
pub const QUERIES: usize = 128;
/// Most packets waiting for the device.
pub(crate) const PACKETS_OUT: usize = 256;
/// Packets taken from the device before others get their turn.
pub(crate) const BATCH: usize = 64;
/// How long the other side may leave something unacknowledged.
pub(crate) const UNACKNOWLEDGED: Duration = Duration::from_secs(60);
/// How long the filter may take for a connection; it gives up earlier itself.
pub(crate) const CONNECT: Duration = Duration::from_secs(60);
/// How long the filter may take for a name.
pub(crate) const ASK: Duration = Duration::from_secs(5);
/// How long a DNS connection may be silent.
pub(crate) const DNS_IDLE: Duration = Duration::from_secs(10);
/// How long the filter's word on a name counts.
pub(crate) const WORD: Duration = Duration::from_secs(1);
/// Longest head of an answer of the filter, bytes.
pub(crate) const HEAD: usize = 16 * 1024;
