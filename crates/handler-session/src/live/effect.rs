//! What a step wants done, in this order.

use super::ViewerId;
use crate::acp::RawObject;
use serde_json::{Map, Value};

/// An update of the session.
#[derive(Debug, Clone)]
pub(crate) struct UpdateEffect {
    /// `params.update`.
    pub update: Value,
    /// The agent's own parameters, shown with everything they hold; none: made by the daemon.
    pub params: Option<RawObject>,
    /// Whether it becomes an event.
    pub is_logged: bool,
    /// Offset of the agent's output after the line that caused it.
    pub offset: Option<u64>,
    /// The viewer that knows already.
    pub except: Option<ViewerId>,
}

/// One thing to do.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    /// Write a line (with its end) to the agent.
    Send(Vec<u8>),
    /// Log an update and show it.
    Update(UpdateEffect),
    /// Log something that is not shown by itself.
    Record(Map<String, Value>),
    /// Give one viewer a message.
    Reply {
        /// The viewer.
        viewer: ViewerId,
        /// JSON text.
        frame: Vec<u8>,
    },
    /// Give a message to every viewer that has its replay.
    Show {
        /// JSON text.
        frame: Vec<u8>,
        /// All but this one.
        except: Option<ViewerId>,
    },
    /// What viewers and the API see of the state changed.
    Changed,
    /// The session can be used.
    Ready,
    /// Nothing follows.
    Ended {
        /// For the viewers.
        reason: String,
    },
    /// Something was not passed on.
    Dropped(String),
}
