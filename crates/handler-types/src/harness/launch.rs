//! What `render` is given and what it answers (contract B.3).

use super::{McpServer, PermissionMode, SlotKind};
use crate::launch::{LaunchFile, LaunchMount};
use crate::network::AllowEntry;
use crate::provider::Provider;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What `render` is given besides the descriptor. Nothing is looked up: all is here.
#[derive(Debug, Clone)]
pub struct RenderInput {
    /// What its model calls use.
    pub access: ModelAccess,
    /// How free the agent is.
    pub permission_mode: PermissionMode,
    /// Whether the process runs as uid 0 (some harnesses refuse modes then).
    pub is_root: bool,
    /// Where the harness's managed prefix is inside, e.g. `/opt/handler/harness/pi`.
    pub prefix: String,
    /// The project folder inside: absolute, canonical.
    pub scope: String,
    /// Folders on the host with one skill each; the last part of the path is the skill's name.
    pub skills: Vec<String>,
    /// Given to every session.
    pub mcp_servers: Vec<McpServer>,
    /// The agent's own instructions.
    pub instructions: Option<String>,
    /// Arguments for the terminal program, which is then run instead of ACP.
    pub terminal: Option<Vec<String>>,
    /// Path in the home (`~/…`) → folder on the host, mounted writable.
    pub caches: BTreeMap<String, String>,
}

/// What an agent's model calls use: exactly one.
#[derive(Debug, Clone)]
pub enum ModelAccess {
    /// A provider.
    Provider(ProviderAccess),
    /// An account.
    Account(AccountAccess),
}

/// A provider, resolved.
#[derive(Debug, Clone)]
pub struct ProviderAccess {
    /// Its name.
    pub name: String,
    /// The provider.
    pub provider: Provider,
    /// The model id, one of the provider's.
    pub model: String,
    /// What stands for the key inside (a phantom, or the value where a phantom is impossible); none: no key.
    pub key: Option<String>,
    /// Its files for this harness: config file slot → content.
    pub files: BTreeMap<String, String>,
}

/// An account, resolved.
#[derive(Debug, Clone)]
pub struct AccountAccess {
    /// Its name.
    pub name: String,
    /// How it is logged in.
    pub login: AccountLogin,
    /// Its plan, one of the login's.
    pub plan: Option<String>,
    /// Whether its own connectors may be used.
    pub connectors: bool,
    /// The model, chosen over ACP; none: the harness's own choice.
    pub model: Option<String>,
}

/// The credential of an account.
#[derive(Clone)]
pub enum AccountLogin {
    /// What stands for the token inside.
    Token(String),
    /// The credential file on the host.
    File(String),
}

impl std::fmt::Debug for AccountLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "Token(…)",
            Self::File(_) => "File(…)",
        })
    }
}

/// What `render` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HarnessLaunch {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment, the key's stand-in included.
    pub env: BTreeMap<String, String>,
    /// Home inside.
    pub home: String,
    /// Generated files.
    pub files: Vec<LaunchFile>,
    /// State slots with their place resolved.
    pub state: Vec<StateMount>,
    /// Folders and files of the host: skills, caches, the account's login file.
    #[serde(default)]
    pub mounts: Vec<LaunchMount>,
    /// Paths that need an empty writable folder when the root is read-only.
    #[serde(default)]
    pub writable_paths: Vec<String>,
    /// Destinations its model calls and MCP servers need.
    pub egress: Vec<AllowEntry>,
    /// Set after `session/new` or `session/load`.
    pub session_defaults: SessionDefaults,
}

/// A state slot with its place resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateMount {
    /// Slot name.
    pub slot: String,
    /// Absolute path inside.
    pub target: String,
    /// Folder or file.
    pub kind: SlotKind,
    /// The session's own history.
    pub per_session: bool,
    /// Content of a new file.
    pub initial: String,
}

/// What every session of a launch starts with (policy steps P7 and P8).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDefaults {
    /// Mode ids in order of preference; the first one the agent offers is set; none offered: the session is refused. Empty: none.
    #[serde(default)]
    pub mode_ids: Vec<String>,
    /// Config options to set.
    #[serde(default)]
    pub config_options: BTreeMap<String, String>,
    /// Added to `session/new` and `session/load`.
    #[serde(default)]
    pub mcp_servers: Vec<McpServer>,
}
