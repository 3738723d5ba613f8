//! Ports inside a sandbox: what listens, what is forwarded to the host, and how a browser opens one.

use serde::{Deserialize, Serialize};

/// A port of a sandbox: something listens on it, or it is forwarded, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PortView {
    /// The port inside.
    pub port: u16,
    /// Whether something listens on it now. Unknown counts as no (the sandbox does not run).
    pub open: bool,
    /// The address it listens on inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The process that listens, as numbered inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// That process's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Where on the host it is forwarded from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<ForwardView>,
    /// Where a browser that was let in finds it (see `POST …/ports/{port}/open`).
    pub url: String,
}

/// Where on the host a port is forwarded from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForwardView {
    /// The host's address.
    pub bind: String,
    /// The host's port.
    pub host_port: u16,
    /// Why it does not listen at the moment (the port is taken by another program); it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `POST …/ports`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForwardRequest {
    /// The port inside, 1–65535. It need not be open yet.
    pub port: u16,
    /// The host's port; 0: any free one. Absent: the same as inside when it is free and not below 1024, else any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<u16>,
    /// The host's address (default 127.0.0.1). Others than loopback need `HANDLER_FORWARD_BIND`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<String>,
}

/// `POST …/ports/{port}/open`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenRequest {
    /// Where to go first: a path with an optional query (default `/`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A way in for one browser.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OpenedPort {
    /// Open it in a browser: works once, within a minute, and leads to the page itself.
    pub url: String,
}

impl std::fmt::Debug for OpenedPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedPort").finish_non_exhaustive()
    }
}

/// What is said in text frames of `…/connect/{port}`; bytes are in binary frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum TunnelWord {
    /// The sender sends no more bytes; the other direction goes on.
    Eof,
}

/// How an SSH client knows a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SshHostKey {
    /// The name to keep the key under.
    pub alias: String,
    /// The public key, `ssh-ed25519 AAAA…`.
    pub public_key: String,
}
