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

pub(crate) mod agent;
pub(crate) mod effect;
pub(crate) mod input;
pub(crate) mod opening;
pub(crate) mod permission;
pub(crate) mod record;
pub(crate) mod state;
pub(crate) mod turn;
mod usage;

pub(crate) use effect::{Effect, UpdateEffect};
pub(crate) use input::{Answer, Input};
pub(crate) use opening::{OpenKind, Opening};
pub use opening::{StartFailure, StartFailureKind};
pub(crate) use permission::Pending;
pub use permission::{PendingKind, PendingPermission};
pub(crate) use state::{LiveState, Phase};

use crate::acp::RawId;

/// Number of an attachment, unique while the owner lives.
pub(crate) type ViewerId = u64;

/// The viewer that waits for an answer, and its own id for the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The viewer.
    pub viewer: ViewerId,
    /// Its id.
    pub id: RawId,
}
