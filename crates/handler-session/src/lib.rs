//! ACP sessions that outlive their viewers: policy, live turn, event log, attach.
//!
//! A session is one conversation with one agent process. [`SessionCore::start`] takes the agent as two
//! byte streams ([`io::AgentIo`]) and gives a [`SessionHandle`]; viewers attach through it and speak ACP.
//! The session neither starts nor ends processes and knows no sandbox.

pub mod acp;
mod attach;
mod core;
mod disk;
pub mod io;
mod live;
mod owner;
pub mod plain;
pub mod policy;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;

pub use crate::attach::{ViewerEvent, ViewerGone, ViewerReceiver, ViewerSender};
pub use crate::core::{
    Buried, Choice, MAX_PROMPT, SessionConfig, SessionCore, SessionError, SessionHandle,
    StartError, StartKind,
};
pub use crate::disk::CrashPoint;
pub use crate::live::{PendingKind, PendingPermission, StartFailure, StartFailureKind};
pub use crate::owner::SessionFacts;
