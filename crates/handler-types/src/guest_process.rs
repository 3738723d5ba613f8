//! Processes of a guest: what is to run, what is known of it, how it ended.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A process of a sandbox, numbered by the guest from 1; never used again within a sandbox.
pub type ProcessNumber = u32;

/// What to run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessSpec {
    /// Chosen by the host, at most 256 bytes; starting twice with one key starts once. Empty: no key.
    pub key: String,
    /// Program and arguments; the program is looked up in `PATH` when it has no slash. Empty with `shell`.
    #[serde(default)]
    pub argv: Vec<String>,
    /// A command line instead of `argv`, for a login shell: the user's own, bash, sh, or busybox's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Runs as this user: a name of the image's `/etc/passwd`, or `uid[:gid]`. Refused where the guest may not
    /// change users. Sets `HOME`, `USER`, `LOGNAME` and `SHELL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Added to the sandbox's environment; an empty value is a value.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder, absolute, written like [`FileEntry::path`]; default the sandbox's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Whether standard input is a pipe from the host; else it is empty.
    #[serde(default)]
    pub stdin: bool,
    /// Runs on a terminal of this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    /// The whole tree is killed after so long, in milliseconds, not 0. Counts until the process itself ends:
    /// what it leaves in the background then stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Free text for the host, at most 4096 bytes, kept with the process.
    #[serde(default)]
    pub tag: String,
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TtySize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// What has a process number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessKind {
    /// A command.
    #[default]
    Command,
    /// A TCP connection to a port inside. Its exit code is 0, or 1 when it was reset.
    Connection,
}

/// A process as the guest knows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessInfo {
    /// Its number.
    pub process: ProcessNumber,
    /// What it is.
    #[serde(default)]
    pub kind: ProcessKind,
    /// Its process id inside the sandbox.
    pub pid: i32,
    /// Its key.
    pub key: String,
    /// Its tag.
    pub tag: String,
    /// Its program and arguments, cut after about 8 KiB.
    pub argv: Vec<String>,
    /// When it started, milliseconds since the epoch.
    pub started_ms: i64,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Its terminal's size, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    /// Output bytes taken from it so far.
    pub produced: u64,
    /// Output below this offset is forgotten.
    pub acked: u64,
    /// Input bytes the process has taken so far; see [`INPUT_WINDOW`].
    pub received: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Exit code; 128 + signal when a signal ended it.
    pub code: i32,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Its time limit ran out.
    #[serde(default)]
    pub timed_out: bool,
}
