//! Sessions: one ACP conversation held by the daemon (contract F).

use crate::harness::PermissionMode;
use crate::id::{AgentId, ProjectId, SandboxId, SessionId};
use crate::network::NetworkPolicy;
use serde::{Deserialize, Serialize};

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Sandbox, `initialize`, `session/new` or `session/load` under way.
    Starting,
    /// The agent answers.
    Running,
    /// No sandbox; attaching starts it again.
    Stopped,
    /// It never became usable.
    Failed,
}

/// A session as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// The agent it belongs to; none: it was started without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The project of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Harness name.
    pub harness: String,
    /// Account name: its model calls go through it, or through `provider`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Provider name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model id; absent: the program's own choice (on an account only).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Project folder.
    pub scope: String,
    /// How free the agent is.
    pub permissions: PermissionMode,
    /// What the sandbox may reach (the model's host is added).
    pub network: NetworkPolicy,
    /// The backend it runs on; other than `native`: in the harness's image.
    #[serde(default)]
    pub backend: String,
    /// Its sandbox while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    /// The agent's id for the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acp_session_id: Option<String>,
    /// The person's, else the agent's, else from the first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Put away: left out of lists unless asked for.
    #[serde(default)]
    pub archived: bool,
    /// Context use and running cost as the agent told them last: `used` and `size` in tokens, `cost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<serde_json::Value>,
    /// Its state.
    pub state: SessionState,
    /// A turn is under way.
    pub busy: bool,
    /// Permission requests that wait for an answer.
    pub pending_permissions: u32,
    /// Clients attached.
    pub attached: u32,
    /// A stopped session can be started again with its history.
    pub can_resume: bool,
    /// Why it failed or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the harness had installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness_version: Option<String>,
    /// How the last turn ended: `end_turn`, `cancelled`, `timed_out`, `stopped` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_stop_reason: Option<String>,
    /// Sequence number of the last event.
    pub last_seq: u64,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub last_activity_at: String,
}

/// `POST /v1/sessions`.
///
/// With an agent, its settings count: harness, account, provider and model choose among its models, an account or a
/// provider that it does not list is used for this session only, and what else is said must be what the agent has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSession {
    /// The agent it belongs to, by id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Project folder, inside a work folder. May be left out with an agent that has a folder; must then be it or
    /// lie in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// Harness (default: the first of the catalogue that is installed and can use the provider).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
    /// Account, instead of a provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Provider (default: the only one that fits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model (default: the provider's first; on an account the program's own choice).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How free the agent is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<PermissionMode>,
    /// What it may reach besides its model's host (default: filtered, nothing).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    /// Backend (default: `native`). Others run the harness in its image, which must have been built there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Knowledge folders it may read, at `/knowledge/<name>`: relative to the knowledge root, or absolute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge: Vec<String>,
    /// First prompt, at most 200 000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A turn is cancelled after so long, seconds (default 3600).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_timeout_secs: Option<u64>,
    /// An idle session without clients is stopped after so long, seconds (default 1800).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_secs: Option<u64>,
}

/// How a session stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopHow {
    /// A client stopped it.
    Explicit,
    /// It was idle.
    Idle,
    /// The agent ended by itself.
    Exited,
    /// It was stopped for an error.
    Error,
    /// It was removed.
    Deleted,
}
