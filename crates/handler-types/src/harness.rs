//! Harnesses as data (contract B): the descriptor (`handler.harness/v1`), what `render` is given and what it
//! answers.

mod descriptor;
mod launch;
mod mcp;

pub use descriptor::{
    ConfigFile, HarnessDescriptor, HarnessInstall, HarnessLimits, HarnessLogin, InstallManager,
    McpEnv, PermissionMapping, SlotKind, StateSlot, TerminalProgram, Unattended,
};
pub use launch::{
    AccountAccess, AccountLogin, HarnessLaunch, ModelAccess, ProviderAccess, RenderInput,
    SessionDefaults, StateMount,
};
pub use mcp::{McpServer, McpTransport, NamedValue};

use serde::{Deserialize, Serialize};

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
