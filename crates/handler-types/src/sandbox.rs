//! Sandboxes: what is asked for (spec), what is shown (view), and the state machine's states.

use crate::harness::PermissionMode;
use crate::id::SandboxId;
use crate::image::{ImageMount, ImageUse};
use crate::lifetime::{IdlePolicy, LifetimeView};
use crate::network::{AllowEntry, NetworkPolicy, Transparent, TransparentView};
use crate::provider::SecretRef;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a sandbox.
///
/// ```text
/// creating → starting → running → stopping → stopped → starting
/// running → pausing → paused → resuming → running
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
    /// Its processes are being frozen.
    Pausing,
    /// Its processes are frozen in memory: no CPU time, memory kept.
    Paused,
    /// Its processes are being thawed.
    Resuming,
    /// It is being stopped.
    Stopping,
    /// It has no instance; its home is kept.
    Stopped,
    /// It could not be started, or ended by itself; `error` says why.
    Failed,
    /// It is being removed.
    Deleting,
}

/// How locked down a sandbox is. What a backend cannot provide it refuses before anything is made.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Confinement {
    /// No capabilities, no new privileges, read-only root.
    #[default]
    Strict,
    /// What running containers inside needs: the engine's default capabilities, `/dev/fuse`, `/dev/net/tun`.
    Nested,
    /// Only the user namespace (or, rootful, nothing but the namespaces) confines it.
    Privileged,
}

/// Who removes a sandbox.
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
    /// Whether programs that ignore proxy variables are caught too.
    #[serde(default)]
    pub transparent: Transparent,
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
    /// Logins it has a copy of, with stand-ins in place of their tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logins: Vec<LoginBinding>,
    /// Its root file system, pinned; none: the host's system folders (native only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageUse>,
    /// Read-only file systems of other images, pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_mounts: Vec<ImageMount>,
    /// How locked down it is.
    #[serde(default)]
    pub confinement: Confinement,
    /// The container runtime, e.g. `crun` or `runsc`; none: the engine's own choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// More writable folders inside, private and empty at each start (tmpfs), besides the home and `/tmp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable_paths: Vec<String>,
    /// Folders appended to the image's `PATH`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path_append: Vec<String>,
    /// Host path of the one Wayland socket it may draw on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// Removed so many seconds after it was made or was given a new time; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// What happens when nobody uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdlePolicy>,
    /// Free data of programs, never interpreted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The project it counts for, for quotas; none: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The project it is a fork of; its `scope` is then a folder of its own that goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<crate::git::ForkOf>,
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

/// A login in a sandbox. Its stand-ins and what they stand for are with the sealed login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginBinding {
    /// The login's name.
    pub login: String,
    /// Names this sandbox's stand-ins.
    pub grant: String,
    /// Absolute path of the file inside.
    pub target: String,
    /// Destinations its tokens are given to; they are allowed as well.
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
    /// Whether programs that ignore proxy variables are caught too; absent: it has no instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transparent: Option<TransparentView>,
    /// Limits asked for.
    pub resources: Resources,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Free labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its root file system; none: the host's system folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageUse>,
    /// How locked down it is.
    #[serde(default)]
    pub confinement: Confinement,
    /// The container runtime asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// When it ends and what happens when it is idle.
    #[serde(default)]
    pub life: LifetimeView,
    /// Free data of programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The project it counts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The project it is a fork of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<crate::git::ForkOf>,
    /// What of a removal or failed start is still there, in words; empty: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remains: Vec<String>,
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
    /// Whether programs that ignore proxy variables are caught too (default: `auto`).
    #[serde(default)]
    pub transparent: Transparent,
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
    /// Stored logins to hand in with stand-ins in place of their tokens: path inside (absolute, or below the
    /// home) → login and hosts. The file is the sandbox's own copy, 0600.
    #[serde(default)]
    pub logins: BTreeMap<String, LoginGrant>,
    /// Image of the root file system, by name or id; none: the host's system folders (native only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Read-only file systems of other images: absolute path inside → image by name or id.
    #[serde(default)]
    pub image_mounts: BTreeMap<String, String>,
    /// How locked down it is (default: strict).
    #[serde(default)]
    pub confinement: Confinement,
    /// The container runtime, e.g. `crun` or `runsc` (default: the engine's own choice).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// More writable folders inside, private and empty at each start.
    #[serde(default)]
    pub writable_paths: Vec<String>,
    /// Folders appended to the image's `PATH`.
    #[serde(default)]
    pub path_append: Vec<String>,
    /// Let it draw on this person's Wayland display.
    #[serde(default)]
    pub display: bool,
    /// Remove it so many seconds from now (at least 1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// What happens when nobody uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdlePolicy>,
    /// Free data of programs, never interpreted; at most 64 entries, 16 KiB.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// The project it counts for, for quotas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Files made inside before it is handed over: path inside (absolute, or below the home) → text.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Quick files to put in besides the default ones, by name.
    #[serde(default)]
    pub quick_files: Vec<String>,
    /// Leave the default quick files out.
    #[serde(default)]
    pub no_default_files: bool,
    /// An environment preset, by name: what it says counts where the request says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
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

/// A stored login given to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginGrant {
    /// Its name.
    pub login: String,
    /// Destinations its tokens are given to, `HOST:PORT` (default: the login's own); they are allowed as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
