//! The one task that owns a session: it takes the agent's lines, the viewers' messages and the API's
//! commands one after the other, lets the pure state decide, and carries the effects out.

mod catch_up;
mod clients;
mod commands;
mod exec;
mod facts;
pub(crate) mod link;
mod run;
mod stderr;
mod time;

pub(crate) use catch_up::fold_log;
pub use commands::Choice;
pub(crate) use commands::{Command, QUEUE};
pub use facts::SessionFacts;
pub(crate) use run::{Owner, Parts};
