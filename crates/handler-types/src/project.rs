//! Projects (contract D.8): a folder of code, its settings and its agents.

use crate::agent::{AgentRequest, AgentView};
use crate::id::{AgentId, ProjectId};
use serde::{Deserialize, Serialize};

/// Whose caches a project's agents use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CachesChoice {
    /// The project's own.
    #[default]
    Project,
    /// One for every project that chooses so: a way from one project into another.
    Global,
    /// None.
    Off,
}

/// What is said of a project: `PUT /v1/projects/{id}`, and how it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectSettings {
    /// Its name, 1 to 100 characters (default: the folder's name).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people, at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Absolute path, inside a work folder; one project per folder.
    pub folder: String,
    /// The agent a request goes to unless another is chosen, one of the project's (default: its first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_agent: Option<AgentId>,
    /// Whose caches its agents use.
    #[serde(default)]
    pub caches: CachesChoice,
    /// Its context: only accounts and providers made for it, or for any, run in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// `POST /v1/projects`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateProject {
    /// Its name, 1 to 100 characters (default: the folder's name).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people, at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Absolute path, inside a work folder; one project per folder.
    pub folder: String,
    /// Whose caches its agents use.
    #[serde(default)]
    pub caches: CachesChoice,
    /// Its context: only accounts and providers made for it, or for any, run in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Its first agents, made with it or not at all; at most 50.
    #[serde(default)]
    pub agents: Vec<AgentRequest>,
}

/// A project as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProjectView {
    /// Its id.
    pub id: ProjectId,
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its folder, canonical.
    pub folder: String,
    /// The agent a request goes to unless another is chosen; none: it has no agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_agent: Option<AgentId>,
    /// Whose caches its agents use.
    pub caches: CachesChoice,
    /// Its context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Its agents: the default one first, then by name.
    pub agents: Vec<AgentView>,
    /// Why no session can start in it now, e.g. its folder is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// When a session of its agents last started, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
}
