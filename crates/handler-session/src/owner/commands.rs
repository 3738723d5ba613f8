//! What handles and viewers ask of the owner.

use crate::attach::{ViewerReceiver, ViewerSender};
use crate::core::SessionError;
use crate::live::{PendingPermission, ViewerId};
use bytes::Bytes;
use handler_types::session::StopHow;
use tokio::sync::oneshot;

/// Commands that may wait.
pub(crate) const QUEUE: usize = 64;

/// How a question is answered through the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// One of the options offered.
    Option(String),
    /// None.
    Cancelled,
}

/// One command.
#[derive(Debug)]
pub(crate) enum Command {
    Attach {
        reply: oneshot::Sender<(ViewerSender, ViewerReceiver)>,
    },
    Frame {
        viewer: ViewerId,
        frame: Bytes,
    },
    Replayed {
        viewer: ViewerId,
        upto: u64,
    },
    ReplayFailed {
        viewer: ViewerId,
        reason: String,
    },
    Prompt {
        text: String,
        reply: oneshot::Sender<Result<(), SessionError>>,
    },
    Cancel {
        reply: oneshot::Sender<()>,
    },
    Permissions {
        reply: oneshot::Sender<Vec<PendingPermission>>,
    },
    Answer {
        id: String,
        choice: Choice,
        reply: oneshot::Sender<Result<(), SessionError>>,
    },
    Stop {
        how: StopHow,
        detail: String,
        reply: oneshot::Sender<()>,
    },
    Release {
        reply: oneshot::Sender<()>,
    },
}
