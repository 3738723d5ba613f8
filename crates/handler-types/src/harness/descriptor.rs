//! The descriptor of a harness (contract B.1).

use super::{McpTransport, PermissionMode};
use crate::network::AllowEntry;
use crate::provider::Protocol;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A coding-agent program, described. `~/` at the start of a path stands for its home.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HarnessDescriptor {
    /// `handler.harness/v1`.
    pub api_version: String,
    /// `claude-code`.
    pub name: String,
    /// `Claude Code`.
    pub product: String,
    /// Repository of its image, without a tag.
    pub image: String,
    /// Program and arguments speaking ACP on stdio.
    pub acp_command: Vec<String>,
    /// Its home inside the sandbox.
    pub home: String,
    /// How it is installed for the `native` engine.
    pub install: HarnessInstall,
    /// Folders and files of its own state, by slot.
    #[serde(default)]
    pub state_slots: BTreeMap<String, StateSlot>,
    /// How an account of it is logged in; none: it runs on providers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<HarnessLogin>,
    /// Config files it reads, whose content a provider may give, by slot.
    #[serde(default)]
    pub config_files: BTreeMap<String, ConfigFile>,
    /// Protocols it can use, first choice first; none: it runs on accounts only.
    #[serde(default)]
    pub provider_protocols: Vec<Protocol>,
    /// Neutral mode → how it is set. A mode left out is one it cannot honour.
    pub permissions: BTreeMap<PermissionMode, PermissionMapping>,
    /// ACP config option that selects the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_option: Option<String>,
    /// Where it loads a person's skills from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills_dir: Option<String>,
    /// The file it reads a person's own instructions from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_file: Option<String>,
    /// MCP servers it accepts in `session/new`.
    #[serde(default)]
    pub mcp_transports: Vec<McpTransport>,
    /// The environment it starts MCP servers with.
    #[serde(default)]
    pub mcp_env: McpEnv,
    /// The file it reads MCP servers from instead of `session/new`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_config_file: Option<String>,
    /// Fixed environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that let an account's own connectors in; empty: it has none.
    #[serde(default)]
    pub account_connectors: BTreeMap<String, String>,
    /// Paths that need an empty writable folder when the root is read-only.
    #[serde(default)]
    pub writable_paths: Vec<String>,
    /// Its terminal program; none: it has none here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalProgram>,
    /// Which of a model's limits it has a setting for.
    #[serde(default)]
    pub limits: HarnessLimits,
}

/// Package manager of a harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstallManager {
    /// npm, with a Node.js brought along.
    Npm,
    /// pip, in a virtual environment of the machine's Python.
    Pip,
}

/// How a harness gets into the managed read-only prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HarnessInstall {
    /// Package manager.
    pub manager: InstallManager,
    /// Packages whose versions make the version line, e.g. `pi-acp`; the first is the product.
    pub version_packages: Vec<String>,
    /// Lowest Node.js that runs it, e.g. `22.19.0` (npm); one at least as new is brought along as a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_node: Option<String>,
    /// Lowest Python that runs it, e.g. `3.12` (pip); the machine must have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_python: Option<String>,
    /// The product's version where no package carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_version: Option<String>,
    /// Program of the prefix and arguments that exit with 0 when the installation works.
    pub check: Vec<String>,
}

/// A folder or file where a harness keeps state: a login file, the session's history, or the agent's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateSlot {
    /// Path inside.
    pub target: String,
    /// `dir` or `file`.
    pub kind: SlotKind,
    /// Whether the harness cannot start without it.
    #[serde(default)]
    pub required: bool,
    /// Mounted read-only, e.g. a login file that is never rewritten.
    #[serde(default)]
    pub read_only: bool,
    /// Its session history: bound to the session's own folder.
    #[serde(default)]
    pub per_session: bool,
    /// The file that a login leaves, kept by Handler; bound only for an account.
    #[serde(default)]
    pub credential: bool,
    /// Content of a file when Handler makes it (default `{}` for `.json`, else nothing).
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

/// Whether a vendor's terms let an automation run an agent on an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unattended {
    /// They do.
    Allowed,
    /// Unclear or not read yet: allowed with a warning.
    CheckTerms,
    /// They do not.
    Refused,
}

/// How an account is logged in: exactly one of `token` and `file`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HarnessLogin {
    /// What the vendor's terms say of automations.
    pub unattended: Unattended,
    /// `https://` address of the terms.
    pub terms: String,
    /// When they were read, `YYYY-MM-DD`; none: not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
    /// What people call the plan it signs in to.
    pub subscription: String,
    /// Variable the harness reads the token from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What the person runs to get a token; Handler never runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_command: Option<String>,
    /// How a token starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_prefix: Option<String>,
    /// How many days a token lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_lifetime_days: Option<u32>,
    /// The credential slot that a login leaves; its file name below `{dir}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What is run on the host to log in.
    #[serde(default)]
    pub command: Vec<String>,
    /// Environment for it; `{dir}` is the folder it gets for its state.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What a session logged in with it reaches.
    pub hosts: Vec<AllowEntry>,
    /// One line for the person logging in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Plans an account may name.
    #[serde(default)]
    pub plans: Vec<String>,
    /// Variable that gets the plan; both or neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_env: Option<String>,
}

/// A config file that a provider may fill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFile {
    /// Path inside.
    pub target: String,
    /// Whether the harness cannot start without it.
    #[serde(default)]
    pub required: bool,
    /// The harness rewrites it: a copy of its own, not a mount.
    #[serde(default)]
    pub seed: bool,
}

/// How a neutral permission mode is set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionMapping {
    /// ACP mode ids for `session/set_mode`, in order of preference: the first one offered is set. Empty: nothing to set.
    #[serde(default)]
    pub session_modes: Vec<String>,
    /// Environment, only where the harness has no ACP mode for it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What the harness really does in it, for people.
    pub about: String,
}

/// The environment a harness starts MCP servers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum McpEnv {
    /// Its own, without its secrets.
    #[default]
    Inherit,
    /// Another: less of it, or all with its secrets. `render` has the sandbox's put back.
    Sandbox,
}

/// A harness's own terminal program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TerminalProgram {
    /// Run instead of `acpCommand`.
    pub command: Vec<String>,
    /// Flags of each mode; exactly the modes of the descriptor.
    pub permissions: BTreeMap<PermissionMode, Vec<String>>,
    /// Flag that takes the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_flag: Option<String>,
    /// Or: the variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_env: Option<String>,
    /// Flag that takes the file of MCP servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_config_flag: Option<String>,
    /// Or: the variable that takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers_env: Option<String>,
    /// Flag that takes the instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_flag: Option<String>,
}

/// The settings a harness has for a model's limits, for people; none: it has no such setting.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HarnessLimits {
    /// For `contextWindow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<String>,
    /// For `maxOutput`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<String>,
}
