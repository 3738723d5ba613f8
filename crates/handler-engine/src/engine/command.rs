//! What can be asked of an owner, and where the answers go.

use super::gate::Pass;
use crate::error::EngineError;
use crate::lifecycle::Event;
use handler_types::lifetime::IdlePolicy;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{Resources, SandboxView};
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Where the outcome of a command goes.
pub(super) type Reply = oneshot::Sender<Result<SandboxView, EngineError>>;

/// Changes to a sandbox; what is absent stays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SandboxUpdate {
    /// Another name; `Some(None)`: none of its own.
    pub name: Option<Option<String>>,
    /// Other labels, all of them.
    pub labels: Option<BTreeMap<String, String>>,
    /// Other data of programs, all of it.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Removed so many seconds from now; `Some(None)`: never.
    pub ttl_seconds: Option<Option<u64>>,
    /// Another idle policy; `Some(None)`: none.
    pub idle: Option<Option<IdlePolicy>>,
    /// Other limits.
    pub resources: Option<Resources>,
}

/// What can be asked of an owner.
#[derive(Debug)]
pub(super) enum Command {
    /// One of the state machine's commands.
    Step {
        event: Event,
        /// None: nobody waits for the outcome.
        reply: Option<Reply>,
        /// Its turn to start, kept until it has.
        pass: Option<Pass>,
    },
    /// It is to be used: wake it, if it rests because nobody used it.
    Wake { reply: Reply, pass: Option<Pass> },
    /// Nobody seems to use it: look, and do what its idle policy says.
    Idle,
    /// Other settings.
    Update(Box<SandboxUpdate>, Reply),
    /// Another network policy.
    SetNetwork(NetworkPolicy, Reply),
    /// A new filter process knows nothing of this sandbox: put its settings again.
    RefreshFilter,
    /// Its secrets have changed: put its settings now, and say whether they are.
    RenewFilter(Reply),
}

impl Command {
    /// An order whose outcome nobody waits for.
    pub(super) fn order(event: Event) -> Self {
        Self::Step {
            event,
            reply: None,
            pass: None,
        }
    }

    /// Answers an order that is not carried out; `is_gone`: its sandbox is.
    pub(super) fn dismiss(self, result: impl FnOnce(bool) -> Result<SandboxView, EngineError>) {
        let (reply, is_delete) = match self {
            Self::Step { event, reply, .. } => (reply, event == Event::Delete),
            Self::Wake { reply, .. }
            | Self::Update(_, reply)
            | Self::SetNetwork(_, reply)
            | Self::RenewFilter(reply) => (Some(reply), false),
            Self::Idle | Self::RefreshFilter => (None, false),
        };
        if let Some(reply) = reply {
            // The one who asked may have gone meanwhile.
            reply.send(result(is_delete)).ok();
        }
    }
}
