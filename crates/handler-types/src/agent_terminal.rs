//! A harness's own terminal program on an agent (contract D.16).

use crate::agent::ModelAccess;
use crate::guest::TtySize;
use crate::id::SandboxId;
use crate::terminal::TerminalNumber;
use serde::{Deserialize, Serialize};

/// `POST /v1/agents/{id}/terminal`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TerminalStart {
    /// The client's terminal type, for `TERM` (default: `xterm-256color`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
    /// For `COLORTERM` (default: `truecolor`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colorterm: Option<String>,
    /// Arguments for the program; at most 256, 128 KiB together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The model it runs with: one of the agent's or any other (default: the agent's first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelAccess>,
    /// The folder, for an agent without one of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// Size of the client's terminal (default 80 × 24).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<TtySize>,
}

/// What was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminalStarted {
    /// Its sandbox; removed when the terminal closes.
    pub sandbox: SandboxId,
    /// Its terminal in that sandbox.
    pub terminal: TerminalNumber,
    /// What puts it on a person's terminal.
    pub attach: Vec<String>,
}
