//! The door to a session: how it is started or taken over, and the handle to it.

mod config;
mod handle;
mod start;

pub use crate::owner::Choice;
pub use config::{SessionConfig, SessionError, StartError, StartKind};
pub use handle::{MAX_PROMPT, SessionHandle};
pub use start::{Buried, SessionCore};
