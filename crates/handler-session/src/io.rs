//! The agent as this crate sees it: two numbered byte streams. Which backend carries them is not known here.
//!
//! Both streams are numbered by byte offset from the start of the agent process, and survive the daemon:
//! output is kept by the other side until acknowledged; input already received is ignored when sent again.

use async_trait::async_trait;
use bytes::Bytes;

/// A piece of the agent's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentOutput {
    /// Standard output: ACP lines.
    Stdout {
        /// Offset, in the merged output, of the byte after this piece (what to acknowledge).
        end: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Standard error: free text for the log.
    Stderr {
        /// As above.
        end: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// The agent ended; nothing follows.
    Exited {
        /// Exit code.
        code: i32,
    },
    /// The link broke (sandbox gone); nothing follows.
    Lost {
        /// Why.
        reason: String,
    },
}

/// Why the agent could not be written to.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the agent cannot be reached: {0}")]
pub struct AgentGone(pub String);

/// A running agent process.
#[async_trait]
pub trait AgentIo: Send + Sync {
    /// Next piece of output; cancel safe.
    async fn next(&mut self) -> AgentOutput;
    /// Lets the other side forget output below `end`. Only after what it said is in the event log.
    fn ack(&mut self, end: u64);
    /// Writes input that starts at `offset`; waits while the agent does not read (bounded). Bytes the other side already has are ignored.
    /// A write that takes long is dropped and made again from the same offset, so dropping it must leave the link usable.
    async fn write(&mut self, offset: u64, bytes: Bytes) -> Result<(), AgentGone>;
    /// Input bytes the other side had when this link was made.
    fn received(&self) -> u64;
}
