//! Events of the daemon (`GET /v1/events`, server-sent events): what changed, so that nobody polls.

use crate::agent::AgentView;
use crate::build::BuildView;
use crate::egress::EgressEvent;
use crate::observe::ActivitySource;
use crate::port::PortView;
use crate::project::ProjectView;
use crate::sandbox::SandboxView;
use crate::session::SessionView;
use crate::terminal::{TerminalNumber, TerminalView};
use serde::{Deserialize, Serialize};

/// One change. Sent as SSE with the `type` as event name and an increasing id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum ServerEvent {
    /// A sandbox was made or changed.
    Sandbox {
        /// As it is now.
        sandbox: Box<SandboxView>,
    },
    /// A sandbox is gone.
    SandboxRemoved {
        /// Its id.
        id: String,
    },
    /// A session was made or changed.
    Session {
        /// As it is now.
        session: Box<SessionView>,
    },
    /// A session is gone.
    SessionRemoved {
        /// Its id.
        id: String,
    },
    /// A project was made or changed.
    Project {
        /// As it is now.
        project: Box<ProjectView>,
    },
    /// A project is gone, and its agents with it.
    ProjectRemoved {
        /// Its id.
        id: String,
    },
    /// An agent was made or changed.
    Agent {
        /// As it is now.
        agent: Box<AgentView>,
    },
    /// An agent is gone.
    AgentRemoved {
        /// Its id.
        id: String,
    },
    /// A terminal was made, renamed, titled anew, or has ended.
    Terminal {
        /// Its sandbox's id.
        sandbox: String,
        /// As it is now.
        terminal: TerminalView,
    },
    /// A terminal was closed.
    TerminalRemoved {
        /// Its sandbox's id.
        sandbox: String,
        /// Its number.
        terminal: TerminalNumber,
    },
    /// A build was queued or changed.
    Build {
        /// As it is now.
        build: BuildView,
    },
    /// Images of a backend were made, named or removed: fetch the list again.
    Images {
        /// The backend.
        backend: String,
    },
    /// The filter decided something.
    Egress {
        /// The event.
        event: EgressEvent,
    },
    /// What a terminal or a session does changed.
    Activity {
        /// The sandbox's id.
        sandbox: String,
        /// The terminal or session, as it is now.
        source: ActivitySource,
    },
    /// The ports of a sandbox changed: something listens or no longer does, a forward was made or removed. Told
    /// while somebody looks at them or one is forwarded.
    Ports {
        /// The sandbox's id.
        id: String,
        /// As they are now.
        ports: Vec<PortView>,
    },
    /// The reader fell behind and events were left out: fetch the lists again.
    Missed,
}
