//! What a guest says of the system around it: processes, listening sockets, resources.

use serde::{Deserialize, Serialize};

/// A listening TCP socket inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ListeningPort {
    /// The port.
    pub port: u16,
    /// Address it is bound to; `0.0.0.0` and `::` are all.
    pub address: String,
    /// Process that holds it, where that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Name of its program (as the kernel keeps it: at most 15 bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// Any process in a sandbox, whoever started it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SystemProcess {
    /// Process id inside.
    pub pid: i32,
    /// Its parent; 0: none inside.
    pub ppid: i32,
    /// Its process group.
    pub pgid: i32,
    /// Its session.
    pub session: i32,
    /// Its controlling terminal, e.g. `/dev/pts/0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<String>,
    /// The process group in the foreground of that terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground: Option<i32>,
    /// Name of the program as the kernel keeps it, at most 15 bytes.
    pub comm: String,
    /// Arguments, cut after about 4 KiB; empty for one that has ended and was not waited for.
    pub argv: Vec<String>,
    /// Resident memory, bytes.
    pub memory_bytes: u64,
    /// CPU time so far, milliseconds.
    pub cpu_ms: u64,
    /// When it started, milliseconds since the epoch.
    pub started_ms: i64,
}

/// What a sandbox uses.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GuestStats {
    /// Processes alive, the guest included.
    pub processes: u32,
    /// Resident memory of all of them, bytes.
    pub memory_bytes: u64,
    /// CPU time of all of them so far, milliseconds.
    pub cpu_ms: u64,
    /// Time since the guest started, milliseconds.
    pub uptime_ms: u64,
    /// Size of the file system the home is on, bytes.
    #[serde(default)]
    pub disk_total_bytes: u64,
    /// Used on it, by whomever, bytes.
    #[serde(default)]
    pub disk_used_bytes: u64,
    /// Memory limit, when a control group that is visible inside says one, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Processors that may be used; less than a whole one where a quota says so.
    #[serde(default)]
    pub cpus: f64,
    /// Load average of the last minute, of the whole machine where the kernel is shared.
    #[serde(default)]
    pub load: f64,
    /// Bytes received on all interfaces but loopback; absent when there is no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_received_bytes: Option<u64>,
    /// Bytes sent likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_sent_bytes: Option<u64>,
}
