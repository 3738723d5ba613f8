//! Viewers of a session: their queues, their replay, who gets what.

pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod roster;

pub use queue::{ViewerEvent, ViewerGone, ViewerReceiver, ViewerSender};
pub(crate) use roster::Roster;
