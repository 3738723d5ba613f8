//! Agents (contract D.1, D.8): one goal, the models it may run with, and how it is contained. Sessions open on one.

use crate::harness::PermissionMode;
use crate::id::{AgentId, ProjectId};
use crate::network::{AllowEntry, Enforcement, NetworkPolicy};
use crate::sandbox::{Confinement, MountSpec, Resources, SecretGrant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest instructions, characters (contract D.8).
pub const MAX_INSTRUCTIONS: usize = 20_000;
/// Most models of an agent.
pub const MAX_MODELS: usize = 20;

/// What an agent runs as: a harness on an account or a provider (exactly one), with a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelAccess {
    /// Harness name (default: the account's, or the first of the catalogue that can use the provider; written down
    /// when it is saved).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
    /// Account name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Provider name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// One of the provider's models (default: its first; written down when it is saved); on an account any that the
    /// program knows (default: its own choice).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Where model calls go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through<'a> {
    /// An account, by name.
    Account(&'a str),
    /// A provider, by name.
    Provider(&'a str),
}

impl<'a> Through<'a> {
    /// What is named; none when both or neither are.
    #[must_use]
    pub fn of(account: Option<&'a str>, provider: Option<&'a str>) -> Option<Self> {
        match (account, provider) {
            (Some(account), None) => Some(Self::Account(account)),
            (None, Some(provider)) => Some(Self::Provider(provider)),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'a str {
        match self {
            Self::Account(name) | Self::Provider(name) => name,
        }
    }
}

impl std::fmt::Display for Through<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Account(name) => write!(f, "account {name}"),
            Self::Provider(name) => write!(f, "provider {name}"),
        }
    }
}

impl ModelAccess {
    /// Where its calls go through; none when both or neither are named.
    #[must_use]
    pub fn through(&self) -> Option<Through<'_>> {
        Through::of(self.account.as_deref(), self.provider.as_deref())
    }
}

/// A host that a model or a setting of an agent needs, and what needs it (contract E4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequiredHost {
    /// As on an allow-list.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub host: AllowEntry,
    /// What needs it, e.g. `provider openrouter`.
    pub by: String,
}

/// One of an agent's models as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentModel {
    /// Harness name.
    pub harness: String,
    /// Account name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Provider name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model id; absent: the program's own choice (on an account only).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Why no session can start with it now, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Filtered only: what its sandbox may reach besides the agent's own list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_hosts: Vec<RequiredHost>,
}

/// Writes a structure with the settings that requests, rows and views of agents share.
macro_rules! with_settings {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
            /// Its goal, e.g. `Review`: 1 to 100 characters; unique in its project, whatever the case.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// For people, at most 500 characters.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub description: Option<String>,
            /// Put before the first prompt of each of its sessions; at most 20 000 characters.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub instructions: Option<String>,
            /// Backend (default: `native`).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub backend: Option<String>,
            /// What it may reach besides its model's host (default: filtered, nothing).
            #[serde(default)]
            pub network: NetworkPolicy,
            /// How free it is in its sandbox; every harness of its models must offer it.
            #[serde(default)]
            pub permissions: PermissionMode,
            /// How locked down its sandboxes are.
            #[serde(default)]
            pub confinement: Confinement,
            /// Stored secrets handed in as stand-ins: variable → secret path and hosts.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            pub secrets: BTreeMap<String, SecretGrant>,
            /// More host folders, inside work folders.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub folders: Vec<MountSpec>,
            /// Knowledge folders it may read, at `/knowledge/<name>`: relative to the knowledge root (`.`: the root
            /// itself) or absolute; kept relative, sorted, each once.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub knowledge: Vec<String>,
            /// Limits of its sandboxes.
            #[serde(default)]
            pub limits: Resources,
            /// A turn is cancelled after so long, seconds, 1 to 604800 (default 3600).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub turn_timeout_secs: Option<u64>,
            /// An idle session without clients is stopped after so long, seconds (default 1800).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub idle_timeout_secs: Option<u64>,
        }
    };
}

with_settings! {
    /// How an agent is set up; how it is kept.
    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    AgentSettings {
        /// 1 to 20, once each; the first by default.
        models: Vec<ModelAccess>,
        /// Its own folder; none: its project's, or the one a session says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
    }
}

with_settings! {
    /// `POST /v1/agents` and `PUT /v1/agents/{id}` (whole: what is left out gets its default).
    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    AgentRequest {
        /// 1 to 20, once each; the first by default.
        models: Vec<ModelAccess>,
        /// Its folder, only outside projects (default: each session says its own).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
        /// The project it is an agent of; none: outside projects. Cannot change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        project_id: Option<ProjectId>,
        /// Make it its project's default.
        #[serde(default)]
        default: bool,
        /// Save although it gives the agent more than it had (a new one: more than filtered, strict, bypass).
        #[serde(default)]
        confirm_risks: bool,
    }
}

with_settings! {
    /// An agent as the API shows it.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    AgentView {
        /// Its id: kept when its settings change.
        id: AgentId,
        /// The project it is an agent of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        project_id: Option<ProjectId>,
        /// It is its project's default.
        #[serde(default)]
        default: bool,
        /// The folder it works in; none: each session says its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
        /// Its models as they are now; the first by default.
        models: Vec<AgentModel>,
        /// Why no session can start on it now, and what to do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
        /// RFC 3339.
        created_at: String,
        /// RFC 3339.
        updated_at: String,
        /// When a session of it last started, RFC 3339.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_used_at: Option<String>,
    }
}

/// `PATCH /v1/agents/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentPatch {
    /// Whether what is not on its list is refused or only told. The call is the confirmation.
    pub egress: Enforcement,
}

impl From<AgentRequest> for AgentSettings {
    fn from(asked: AgentRequest) -> Self {
        Self {
            models: asked.models,
            scope: asked.scope,
            name: asked.name,
            description: asked.description,
            instructions: asked.instructions,
            backend: asked.backend,
            network: asked.network,
            permissions: asked.permissions,
            confinement: asked.confinement,
            secrets: asked.secrets,
            folders: asked.folders,
            knowledge: asked.knowledge,
            limits: asked.limits,
            turn_timeout_secs: asked.turn_timeout_secs,
            idle_timeout_secs: asked.idle_timeout_secs,
        }
    }
}

impl From<AgentView> for AgentRequest {
    /// What would save the agent as it is: to change one thing of it, or to make another like it.
    fn from(view: AgentView) -> Self {
        let models = view.models.into_iter().map(|model| ModelAccess {
            harness: Some(model.harness),
            account: model.account,
            provider: model.provider,
            model: Some(model.model).filter(|model| !model.is_empty()),
        });
        Self {
            models: models.collect(),
            scope: view.scope.filter(|_| view.project_id.is_none()),
            project_id: view.project_id,
            default: view.default,
            confirm_risks: false,
            name: view.name,
            description: view.description,
            instructions: view.instructions,
            backend: view.backend,
            network: view.network,
            permissions: view.permissions,
            confinement: view.confinement,
            secrets: view.secrets,
            folders: view.folders,
            knowledge: view.knowledge,
            limits: view.limits,
            turn_timeout_secs: view.turn_timeout_secs,
            idle_timeout_secs: view.idle_timeout_secs,
        }
    }
}
