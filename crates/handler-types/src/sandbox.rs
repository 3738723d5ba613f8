//! Sandboxes: what is asked for (spec), what is shown (view), and the state machine's states.

use crate::harness::PermissionMode;
use crate::id::SandboxId;
use crate::network::{AllowEntry, NetworkPolicy};
use crate::provider::SecretRef;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a sandbox.
///
/// ```text
/// creating → starting → running → stopping → stopped → starting
/// any → failed        any → deleting → (gone)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    /// Its row exists, nothing else is sure.
    Creating,
    /// Its instance is being started.
    Starting,
    /// Its guest answers.
    Running,
    /// It is being stopped.
    Stopping,
    /// It has no instance; its home is kept.
    Stopped,
    /// It could not be started, or ended by itself; `error` says why.
    Failed,
    /// It is being removed.
    Deleting,
}

/// How long a sandbox lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Lifetime {
    /// Until it is removed.
    #[default]
    Kept,
    /// Removed together with the session that owns it.
    Session,
}

/// Limits. Absent: none asked for.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Memory in MiB, at least 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// CPUs, e.g. 1.5; at least 0.05.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Processes and threads, at least 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
}

/// A host folder or file shown in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MountSpec {
    /// Absolute host path.
    pub source: String,
    /// Absolute path inside.
    pub target: String,
    /// Whether it is read-only.
    #[serde(default)]
    pub read_only: bool,
}

/// A file made inside when the sandbox starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSpec {
    /// Absolute path inside.
    pub target: String,
    /// Its text.
    pub content: String,
    /// Permission bits.
    pub mode: u32,
    /// May be changed inside.
    pub writable: bool,
}

/// Everything needed to make a sandbox, resolved. Values of secrets are never in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// Which backend runs it, e.g. `native`.
    pub backend: String,
    /// Name chosen by the person, unique; none: the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The project folder: canonical host path, mounted read-write at the same path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Working folder inside (the scope, else the home).
    pub workdir: String,
    /// Home inside.
    pub home: String,
    /// More mounts.
    #[serde(default)]
    pub mounts: Vec<MountSpec>,
    /// Generated files.
    #[serde(default)]
    pub files: Vec<FileSpec>,
    /// Environment (phantoms may be in it, values never).
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What it may reach.
    pub network: NetworkPolicy,
    /// Limits.
    #[serde(default)]
    pub resources: Resources,
    /// Refuse when a limit cannot be enforced (else it is said in `warnings`).
    #[serde(default)]
    pub strict_limits: bool,
    /// How long it lives.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// Free labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Stand-ins the sandbox holds; each is bound to its secret's value again whenever the filter needs it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phantoms: Vec<PhantomBinding>,
}

/// A stand-in for a secret, stable for the life of a sandbox. No secret itself: it is worthless outside the filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhantomBinding {
    /// What events call it: the secret's path.
    pub name: String,
    /// Where its value is found.
    pub secret: SecretRef,
    /// The variable of `env` that holds it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The stand-in: printable ASCII without space, at least 8, exactly as long as the value.
    pub phantom: String,
    /// Destinations the value is given to; they are allowed as well.
    pub hosts: Vec<AllowEntry>,
}

/// A sandbox as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxView {
    /// Its id.
    pub id: SandboxId,
    /// Its name (the id when none was chosen).
    pub name: String,
    /// Its backend.
    pub backend: String,
    /// Its state.
    pub state: SandboxState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the backend could not enforce and did without, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The project folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Working folder inside.
    pub workdir: String,
    /// What it may reach.
    pub network: NetworkPolicy,
    /// Limits asked for.
    pub resources: Resources,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Free labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
}

/// `POST /v1/sandboxes`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSandbox {
    /// Backend (default: `native`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// A name, unique: `[a-z0-9][a-z0-9_.-]{0,62}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Project folder on the host, mounted read-write at the same path; inside a work folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// More host folders, inside work folders.
    #[serde(default)]
    pub mounts: Vec<MountSpec>,
    /// Environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What it may reach (default: filtered, nothing allowed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    /// Limits.
    #[serde(default)]
    pub resources: Resources,
    /// Take the sandbox even when a limit cannot be enforced here; it is then said in `warnings`.
    #[serde(default)]
    pub best_effort_limits: bool,
    /// Free labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Stored secrets to hand in as phantoms: variable → secret path and hosts.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretGrant>,
}

/// A stored secret given to a sandbox as a phantom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretGrant {
    /// Path in the store.
    pub secret: String,
    /// Destinations it is given to, `HOST:PORT`; they are allowed as well.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub hosts: Vec<crate::network::AllowEntry>,
}

/// What a session's sandbox runs, kept with it so that it can start again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionAgent {
    /// Harness name.
    pub harness: String,
    /// Provider name.
    pub provider: String,
    /// Model id.
    pub model: String,
    /// How free the agent is.
    pub permissions: PermissionMode,
    /// What it may reach besides its model's host.
    pub network: NetworkPolicy,
}
