//! What is seen of a sandbox from outside: agent programs, activity, figures over time, its log.

use crate::guest::GuestStats;
use crate::sandbox::SandboxState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What an agent or a shell is doing, as far as its screen or its session says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It waits for a person: a permission, a choice, a password.
    NeedsInput,
    /// It failed, or keeps failing and tries again.
    Error,
    /// It works.
    Working,
    /// It did what it was given last.
    Done,
    /// It was given nothing yet, or was interrupted.
    Idle,
}

impl Activity {
    /// The word of the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeedsInput => "needs_input",
            Self::Error => "error",
            Self::Working => "working",
            Self::Done => "done",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why an [`Activity`] was given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The rule that decided, e.g. `claude-code/api-error` or `session/permission`.
    pub rule: String,
    /// The text that decided, at most 200 characters; empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// One thing in a sandbox that has an activity: a terminal or an agent session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ActivitySource {
    /// Number of its terminal's process, if it is a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<u32>,
    /// Id of its session, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The harness, if one is known to be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
    /// What it does.
    pub state: Activity,
    /// Why that is said.
    pub why: Why,
    /// RFC 3339; since when it does.
    pub since: String,
}

/// `GET …/activity`: what happens in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxActivity {
    /// The most urgent of its sources: needs_input, error, working, done, idle; `idle` without any.
    pub state: Activity,
    /// Why that is said.
    pub why: Why,
    /// RFC 3339; since when.
    pub since: String,
    /// Its terminals and sessions, the most urgent first.
    pub sources: Vec<ActivitySource>,
}

/// How an agent program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum AgentFace {
    /// Its own program on a terminal.
    Terminal,
    /// Over the Agent Client Protocol.
    Acp,
}

/// One running agent program: the topmost process of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunningAgent {
    /// Process id inside.
    pub pid: i32,
    /// How it runs.
    pub face: AgentFace,
}

/// One harness in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// The harness, e.g. `claude-code`.
    pub harness: String,
    /// Its product name.
    pub product: String,
    /// A program of it is on the `PATH` inside.
    pub installed: bool,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its running programs.
    pub running: Vec<RunningAgent>,
}

/// `GET …/agents`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentList {
    /// Every harness known, in the catalogue's order.
    pub agents: Vec<AgentView>,
    /// RFC 3339; when it was looked at (answers are kept for 15 s).
    pub seen_at: String,
}

/// What the host charges to an instance. A figure that cannot be had is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostSide {
    /// Memory of all its processes and the page cache charged to it, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// CPU time so far, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Bytes of its writable layer and home on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// What went through the filter for a sandbox since its settings were first put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EgressTraffic {
    /// Bytes from the sandbox to the filter.
    pub out_bytes: u64,
    /// Bytes from the filter to the sandbox.
    pub in_bytes: u64,
    /// Connections accepted.
    pub connections: u64,
}

/// `GET …/metrics`: what a sandbox uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxMetrics {
    /// RFC 3339; when it was looked at.
    pub at: String,
    /// Its state.
    pub state: SandboxState,
    /// From the guest; absent while it does not run (asking never wakes it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestStats>,
    /// As the host sees it; absent when the backend says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSide>,
    /// Through the egress filter; absent when it has no way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressTraffic>,
    /// Processor use since the sample before, percent of one processor; absent in the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
}

/// `GET …/metrics/history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MetricsHistory {
    /// Seconds between two samples.
    pub interval_seconds: u64,
    /// Oldest first.
    pub samples: Vec<SandboxMetrics>,
}

/// A total and what of it is used, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// In use.
    pub used_bytes: u64,
    /// All there is.
    pub total_bytes: u64,
}

/// `GET /v1/host/stats`: this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostStats {
    /// Processors online.
    pub cpus: u32,
    /// Use of all processors over the last tenth of a second, 0–100.
    pub cpu_percent: f64,
    /// Load averages over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Memory; what could be freed at once counts as unused.
    pub memory: Used,
    /// The disk that holds the daemon's state.
    pub disk: Used,
    /// Seconds since the machine started.
    pub uptime_seconds: u64,
    /// Seconds since the daemon started.
    pub daemon_uptime_seconds: u64,
    /// Resident memory of the daemon, bytes.
    pub daemon_memory_bytes: u64,
    /// Resident memory of the egress filter, bytes; absent while none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_memory_bytes: Option<u64>,
    /// Sandboxes by state; states without any are left out.
    pub sandboxes: BTreeMap<String, u32>,
}

/// Where a log line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LogSource {
    /// Steps of its life.
    Lifecycle,
    /// What its guest or its launcher printed.
    Guest,
    /// Refusals of the filter.
    Egress,
    /// Commands started and ended.
    Command,
    /// Terminals opened and ended.
    Terminal,
    /// What the container engine kept of its output.
    Container,
}

impl LogSource {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Lifecycle,
        Self::Guest,
        Self::Egress,
        Self::Command,
        Self::Terminal,
        Self::Container,
    ];

    /// The word of the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Guest => "guest",
            Self::Egress => "egress",
            Self::Command => "command",
            Self::Terminal => "terminal",
            Self::Container => "container",
        }
    }
}

/// How much a log line matters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// As expected.
    #[default]
    Info,
    /// Worth a look.
    Warning,
    /// Something failed.
    Error,
}

/// One line of a sandbox's log. Secret values are taken out before it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Counts up for the life of the sandbox.
    pub seq: u64,
    /// RFC 3339.
    pub at: String,
    /// Where it comes from.
    pub source: LogSource,
    /// How much it matters.
    #[serde(default)]
    pub level: LogLevel,
    /// One sentence, at most 4096 bytes.
    pub message: String,
}

/// `GET …/logs` without `follow`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogLines {
    /// Oldest first.
    pub lines: Vec<LogLine>,
    /// Older lines existed and were not kept, or not asked for.
    #[serde(default)]
    pub truncated: bool,
}
