//! The session as a pure state machine: lines of the agent and inputs of people go in, effects come out.
//!
//! ```text
//!  Starting ── initialize ── session/new|load ── mode and options set ──► Ready ──► Ended
//!      └───────────────── any failure ─────────────────────────────────────────────►┘
//!  Ready:   idle ── Prompt ──► turn ── answer of session/prompt ──► idle
//! ```
//!
//! Invariant: the same state, lines and inputs give the same effects, so that after a crash the owner
//! runs them again and leaves out the effects that already took place. Therefore nothing here reads a
//! clock, a random number or whether somebody is attached.

pub mod agent;
pub mod effect;
pub mod input;
pub mod opening;
pub mod permission;
pub mod record;
pub mod state;
pub mod turn;

#[cfg(test)]
mod tests;

pub use effect::{Effect, UpdateEffect};
pub use input::{Answer, Input};
pub use opening::{OpenKind, Opening, StartFailure, StartFailureKind};
pub use permission::{Pending, PendingKind, PendingPermission};
pub use state::{LiveState, Phase};

use crate::acp::RawId;

/// Number of an attachment, unique while the owner lives.
pub type ViewerId = u64;

/// The viewer that waits for an answer, and its own id for the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The viewer.
    pub viewer: ViewerId,
    /// Its id.
    pub id: RawId,
}
