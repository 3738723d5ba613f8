//! When a sandbox ends, and what happens while nobody uses it.

use serde::{Deserialize, Serialize};

/// What happens to a sandbox that nobody uses. A running command, an open terminal, an open connection to a
/// port and an attached session are use; a paused sandbox is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdlePolicy {
    /// Seconds without use, at least 1.
    pub after_seconds: u64,
    /// What is then done.
    pub action: IdleAction,
    /// Whether the next use (a command, a terminal, a file, a connection) makes it run again.
    #[serde(default = "yes")]
    pub wake: bool,
}

fn yes() -> bool {
    true
}

/// What is done to an idle sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum IdleAction {
    /// Its processes are frozen; refused where the backend cannot.
    Pause,
    /// Its processes end; its home and writable layer are kept.
    Stop,
    /// It is removed.
    Delete,
}

/// When a sandbox ends, as the API shows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LifetimeView {
    /// RFC 3339; removed then. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// What happens when nobody uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdlePolicy>,
    /// RFC 3339; last use known. Absent: not used since the daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<String>,
}

/// What a backend can do on this host, asked before anything is made. What it cannot is refused, never pretended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// Starts from the host's system folders, without an image.
    pub host_root: bool,
    /// Starts from images.
    pub images: bool,
    /// Shows the file systems of other images inside.
    #[serde(default)]
    pub image_mounts: bool,
    /// Builds images.
    pub build: bool,
    /// Freezes and thaws.
    pub pause: bool,
    /// Enforces a memory limit.
    pub memory_limit: bool,
    /// Enforces a CPU limit.
    pub cpu_limit: bool,
    /// Enforces a limit on processes.
    pub pids_limit: bool,
    /// Offers confinement `nested`.
    pub nested: bool,
    /// Offers confinement `privileged`.
    pub privileged: bool,
    /// Mode `open` is the engine's own network: programs that know no proxy reach out too.
    pub open_network: bool,
    /// Catches programs that ignore proxy variables, where it is required.
    #[serde(default)]
    pub transparent: bool,
    /// The same unless it is switched off.
    #[serde(default)]
    pub transparent_auto: bool,
    /// Runtimes that may be named; empty: no choice.
    #[serde(default)]
    pub runtimes: Vec<String>,
    /// Shows one Wayland socket inside.
    pub display: bool,
    /// Runs commands as other users than the sandbox's own.
    pub users: bool,
}
