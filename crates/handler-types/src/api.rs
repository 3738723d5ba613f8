//! Request and response bodies of `/v1` that are not views of a resource.

use crate::guest::{Exit, FileEntry, Stream, TtySize};
use crate::id::AgentId;
use crate::network::NetworkPolicy;
use crate::provider::{Protocol, ProviderFilesOf, ProviderModel};
pub use crate::terminal::CreateTerminal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items, newest first.
    pub items: Vec<T>,
    /// Give it as `cursor` for the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `GET /v1/health`; needs no token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// Version of the daemon.
    pub version: String,
    /// Its process id.
    pub pid: u32,
}

/// Runs a command: `POST …/exec` (buffered) and `POST …/processes` (kept, streamed).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecRequest {
    /// Program and arguments; at least one, unless `shell` is given.
    #[serde(default)]
    pub argv: Vec<String>,
    /// A command line instead of `argv`, run by a login shell: the user's own, bash or sh, whichever is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// User inside: a name or `uid[:gid]` (default: the sandbox's). Refused where a sandbox has a single user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Added to the sandbox's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder (default: the sandbox's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Standard input, UTF-8 (buffered exec only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Keep standard input open for `…/stdin` and the WebSocket (processes only).
    #[serde(default)]
    pub open_stdin: bool,
    /// The whole tree is killed after so long, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Most bytes of each stream in the answer (buffered exec; default 8 MiB, at most 64 MiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Free text kept with the process.
    #[serde(default)]
    pub tag: String,
}

/// Answer of a buffered exec. A non-zero code is a result, not an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExecResult {
    /// How it ended.
    pub exit: Exit,
    /// Standard output; bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// Standard error likewise.
    pub stderr: String,
    /// Output beyond `maxOutput` was read and left out.
    #[serde(default)]
    pub truncated: bool,
    /// Total bytes of both streams.
    pub output_bytes: u64,
    /// Milliseconds from start to end as the daemon saw it.
    pub duration_ms: u64,
}

/// Lines of `POST …/exec?stream=true`. Output is `text` where it is UTF-8 and `base64` where it is not; `end` is
/// the offset behind it, from which `…/processes/{process}/attach?from=` goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ExecEvent {
    /// First.
    Started {
        /// Number of the process.
        process: u32,
        /// Process id inside.
        pid: i32,
    },
    /// Standard output.
    Stdout {
        /// As text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// As bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
        /// Offset behind it.
        end: u64,
    },
    /// Standard error.
    Stderr {
        /// As text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// As bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
        /// Offset behind it.
        end: u64,
    },
    /// Last: it ended.
    Exit {
        /// How.
        exit: Exit,
        /// Total bytes of both streams.
        output_bytes: u64,
        /// Milliseconds from start to end as the daemon saw it.
        duration_ms: u64,
    },
    /// Last: what became of it is not known here.
    Lost {
        /// Why.
        reason: String,
    },
}

/// Form of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ArchiveFormat {
    /// Tar.
    #[default]
    #[serde(rename = "tar")]
    Tar,
    /// Tar with gzip.
    #[serde(rename = "tar.gz")]
    TarGz,
    /// Zip.
    #[serde(rename = "zip")]
    Zip,
}

/// `POST …/files/chmod`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChmodRequest {
    /// Path inside; a link is followed.
    pub path: String,
    /// Permission bits, octal, e.g. `755`.
    pub mode: String,
    /// All that a folder holds as well; links in it are left alone.
    #[serde(default)]
    pub recursive: bool,
}

/// A process of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProcessView {
    /// Its number in the sandbox.
    pub process: u32,
    /// Process id inside.
    pub pid: i32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Its tag.
    pub tag: String,
    /// Whether it runs on a terminal, and its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Milliseconds since the epoch.
    pub started_ms: i64,
    /// Output bytes so far.
    pub output_bytes: u64,
}

/// Text frames of the process WebSocket, from the client. Binary frames are input bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum StreamCommand {
    /// Ends the input.
    CloseStdin,
    /// Sends a signal to the process's tree.
    Signal {
        /// Its number.
        signal: i32,
    },
    /// Output below this offset need not be kept (only when attached with `ack=client`).
    Ack {
        /// First offset still needed.
        up_to: u64,
    },
    /// Sets the terminal's size.
    Resize {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
}

/// Text frames of the process WebSocket, to the client. Binary frames are one
/// [`Stream`] byte and output bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum StreamEvent {
    /// First: the process, and the offset the output starts at.
    Attached {
        /// The process.
        process: ProcessView,
        /// Offset of the first byte that follows.
        offset: u64,
    },
    /// Last: all output was sent.
    Exited {
        /// How it ended.
        exit: Exit,
    },
    /// The stream ended for another reason (sandbox stopped, attached elsewhere).
    Closed {
        /// Why.
        reason: String,
        /// Attaching again (to the daemon's next start) goes on.
        #[serde(default)]
        retry: bool,
    },
}

/// `POST …/processes/{n}/signal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignalRequest {
    /// Signal number, 1–31.
    pub signal: i32,
    /// Every descendant as well (default true).
    #[serde(default = "yes")]
    pub tree: bool,
}

fn yes() -> bool {
    true
}

/// `GET …/dir`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DirListing {
    /// By path.
    pub entries: Vec<FileEntry>,
    /// More exist than are listed.
    #[serde(default)]
    pub truncated: bool,
}

/// `PUT …/files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileWritten {
    /// Bytes.
    pub size: u64,
    /// SHA-256, lower-case hex.
    pub sha256: String,
}

/// `POST …/files/mkdir`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MkdirRequest {
    /// Path inside; a relative one is below the working folder.
    pub path: String,
    /// Parents too; no error when it exists.
    #[serde(default)]
    pub parents: bool,
}

/// `POST …/files/move`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveRequest {
    /// From.
    pub from: String,
    /// To.
    pub to: String,
    /// Replace what is there.
    #[serde(default)]
    pub overwrite: bool,
}

/// `PUT …/network`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkUpdate {
    /// The new policy, whole. `none` cannot be left or entered while the sandbox runs.
    pub network: NetworkPolicy,
}

/// `POST /v1/providers`, and `PUT /v1/providers/{name}` (whole; its key stays unless it is said).
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderRequest {
    /// Name: `[a-z0-9][a-z0-9_-]{0,62}`.
    pub name: String,
    /// Template to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Endpoints; override the template's.
    #[serde(default)]
    pub endpoints: BTreeMap<Protocol, String>,
    /// Models; override the template's.
    #[serde(default)]
    pub models: Vec<ProviderModel>,
    /// The key's value; goes to the secret store at `providers/<name>/apiKey` and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(write_only))]
    pub key: Option<String>,
    /// Take its key away: it needs none any more.
    #[serde(default)]
    pub remove_key: bool,
    /// Config files for some harness: harness → slot → `{file}`, `{env}` or `{content}` (absent: those it has).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<ProviderFilesOf>,
    /// The contexts it may be used in, or `any`; none: only projects without a context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
}

/// A provider as the API shows it: never with its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProviderView {
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Endpoints.
    pub endpoints: BTreeMap<Protocol, String>,
    /// Models.
    pub models: Vec<ProviderModel>,
    /// Where its key comes from: `secret`, `env`, `file`, `command`; absent: none needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `ready`, `incomplete` (its key has no value) or `invalid` (its file cannot be read).
    pub status: String,
    /// What is wrong, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Harnesses that can use it.
    pub harnesses: Vec<String>,
    /// Its config files for harnesses: harness → slot → where its content comes from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: ProviderFilesOf,
    /// The contexts it may be used in, or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
    /// The agents that list it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentId>,
}

/// A template for a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProviderTemplate {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: String,
    /// Endpoints.
    pub endpoints: BTreeMap<Protocol, String>,
    /// Models.
    pub models: Vec<ProviderModel>,
    /// Whether a key is needed.
    pub needs_key: bool,
}

/// `PUT /v1/secrets/{path}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRequest {
    /// The value: 1 byte to 64 KiB.
    #[cfg_attr(feature = "openapi", schema(write_only))]
    pub value: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A stored secret as the API shows it: never its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SecretView {
    /// Its path.
    pub path: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
}

/// `PUT /v1/logins/{name}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginRequest {
    /// The credential file's text, 1 byte to 64 KiB: a JSON object, or lines `NAME=VALUE`.
    #[cfg_attr(feature = "openapi", schema(write_only))]
    pub file: String,
    /// Destinations its tokens are given to, `HOST:PORT`, where a sandbox names none itself.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub hosts: Vec<crate::network::AllowEntry>,
}

/// A stored login as the API shows it: never its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LoginView {
    /// Its name.
    pub name: String,
    /// Destinations its tokens are given to where a sandbox names none itself.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub hosts: Vec<crate::network::AllowEntry>,
    /// The fields that hold tokens, JSON pointers.
    pub tokens: Vec<String>,
    /// When it was renewed last by a sandbox's request, RFC 3339; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_at: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
}

/// A harness as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HarnessView {
    /// Its name.
    pub name: String,
    /// Its product name.
    pub product: String,
    /// Protocols it speaks.
    pub protocols: Vec<Protocol>,
    /// Permission modes it can honour.
    pub permissions: Vec<crate::harness::PermissionMode>,
    /// How an account of it is logged in; absent: it runs on providers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<crate::account::LoginHow>,
    /// `installed`, `missing`, `installing`, `failed`.
    pub status: String,
    /// What is installed, one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why the last installation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `POST /v1/folders`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FolderRequest {
    /// Absolute path; `~/` is the home.
    pub path: String,
}

/// One line of `handler doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostCheck {
    /// What was checked.
    pub name: String,
    /// `ok`, `warning` or `failed`.
    pub status: CheckStatus,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// How a [`HostCheck`] came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// Fine.
    Ok,
    /// Works without it, less well.
    Warning,
    /// Nothing runs until it is mended.
    Failed,
}

/// A backend of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BackendView {
    /// Its name.
    pub name: String,
    /// Whether sandboxes can be made with it now.
    pub available: bool,
    /// What was checked.
    pub checks: Vec<HostCheck>,
    /// What it can do on this host; what it cannot is refused.
    #[serde(default)]
    pub capabilities: crate::lifetime::Capabilities,
}

/// Which stream a byte belongs to, in the API's binary frames (same values as the guest's).
pub type OutputStream = Stream;

impl std::fmt::Debug for SecretRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretRequest")
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LoginRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginRequest")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ProviderRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderRequest")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
