//! Harnesses as data: the descriptor (`handler.harness/v1`, contract B.1, the part used so far), what
//! `render` is given and what it answers (B.3).

use crate::network::AllowEntry;
use crate::provider::{Protocol, Provider};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How free the agent is in its sandbox.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    /// Asks before it changes or runs something.
    Ask,
    /// Changes files freely, asks for the rest.
    AcceptEdits,
    /// Never asks; the sandbox is the wall.
    #[default]
    Bypass,
}

/// A coding-agent program, described.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HarnessDescriptor {
    /// `handler.harness/v1`.
    pub api_version: String,
    /// `claude-code`.
    pub name: String,
    /// `Claude Code`.
    pub product: String,
    /// Program and arguments speaking ACP on stdio.
    pub acp_command: Vec<String>,
    /// Its home inside the sandbox.
    pub home: String,
    /// How it is installed for the `native` engine.
    pub install: HarnessInstall,
    /// Folders and files of its own state, by slot.
    #[serde(default)]
    pub state_slots: BTreeMap<String, StateSlot>,
    /// Protocols it can use, first choice first.
    pub provider_protocols: Vec<Protocol>,
    /// Neutral mode → how it is set. A mode left out is one it cannot honour.
    pub permissions: BTreeMap<PermissionMode, PermissionMapping>,
    /// Whether it starts the stdio MCP servers that a session is given.
    #[serde(default)]
    pub mcp_stdio: bool,
    /// ACP config option that selects the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_option: Option<String>,
    /// Fixed environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// How a harness gets into the managed read-only prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HarnessInstall {
    /// Package manager; only `npm` so far.
    pub manager: String,
    /// Packages whose versions make the version line, e.g. `pi-acp`; the first is the product.
    pub version_packages: Vec<String>,
    /// Lowest Node.js version that runs it, e.g. `22.19.0`; one at least as new is brought along as a package.
    pub min_node: String,
    /// The product's version where no package carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_version: Option<String>,
    /// Program of the prefix and arguments that exit with 0 when the installation works.
    pub check: Vec<String>,
}

/// A folder or file where a harness keeps state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateSlot {
    /// Path inside, `~` = home.
    pub target: String,
    /// `dir` or `file`.
    pub kind: SlotKind,
    /// Its session history: bound to the session's own folder.
    #[serde(default)]
    pub per_session: bool,
    /// Content of a file when Handler makes it (default `{}`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<String>,
}

/// Kind of a [`StateSlot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotKind {
    /// A folder.
    Dir,
    /// A file.
    File,
}

/// How a neutral permission mode is set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionMapping {
    /// ACP mode ids for `session/set_mode`, in order of preference: the first one offered is set. Empty: nothing to set.
    #[serde(default)]
    pub session_modes: Vec<String>,
    /// Environment that goes with the mode.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// What `render` is given besides the descriptor. Nothing is looked up: all is here.
#[derive(Debug, Clone)]
pub struct RenderInput {
    /// The provider's name.
    pub provider_name: String,
    /// The provider.
    pub provider: Provider,
    /// The model id, one of the provider's.
    pub model: String,
    /// What stands for the key inside (a phantom, or the value where a phantom is impossible); none: no key.
    pub key: Option<String>,
    /// How free the agent is.
    pub permission_mode: PermissionMode,
    /// Whether the process runs as uid 0 (some harnesses refuse modes then).
    pub is_root: bool,
    /// Where the harness's managed prefix is inside, e.g. `/opt/handler/harness/pi`.
    pub prefix: String,
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
    pub files: Vec<crate::launch::LaunchFile>,
    /// State slots: (slot, target inside, kind, initial content), `~` expanded.
    pub state: Vec<StateMount>,
    /// Destinations its model calls need.
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

/// What every session of a launch starts with (policy step P7).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDefaults {
    /// Mode ids in order of preference; the first one the agent offers is set; none offered: the session is refused. Empty: none.
    #[serde(default)]
    pub mode_ids: Vec<String>,
    /// Config options to set.
    #[serde(default)]
    pub config_options: BTreeMap<String, String>,
}
