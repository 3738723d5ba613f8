//! Terminals of a sandbox: what is asked, what is shown, and the frames of their WebSocket.

use crate::guest::{Exit, TtySize};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A terminal's number within its sandbox, from 1.
pub type TerminalNumber = u32;

/// `POST …/terminals`. With neither program, shell nor tmux session: a login shell.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTerminal {
    /// Program and arguments (default: a login shell).
    #[serde(default)]
    pub argv: Vec<String>,
    /// A command line for the sandbox's shell, instead of `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Name of a tmux session to attach to; made when there is none of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux: Option<String>,
    /// Environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// User inside the sandbox, where it has several (default: the sandbox's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Size (default 80 × 24; at most 1000 × 500).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<TtySize>,
    /// A name for people, at most 120 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `PATCH …/terminals/{n}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateTerminal {
    /// The new name; empty: none.
    pub name: String,
}

/// Whether a terminal's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TerminalState {
    /// It runs.
    Running,
    /// It has ended, or its sandbox was stopped; the last screen is kept until the terminal is closed.
    Ended,
}

/// A terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminalView {
    /// Its number in the sandbox.
    pub terminal: TerminalNumber,
    /// Number of its process (as in `…/processes`), while the sandbox that started it runs.
    pub process: u32,
    /// Name given by people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Title set by the program inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Working folder told by the shell inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Size.
    pub size: TtySize,
    /// Whether it runs.
    pub state: TerminalState,
    /// How it ended, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Viewers attached now.
    pub viewers: u32,
    /// When it was made, milliseconds since the epoch.
    pub created_ms: i64,
    /// When output came last, milliseconds since the epoch.
    pub changed_ms: i64,
}

/// How a screen is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ScreenFormat {
    /// Plain text.
    #[default]
    Text,
    /// Text with escape codes for colours.
    Ansi,
    /// A document.
    Json,
}

/// `GET …/terminals/{n}/screen?format=json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScreenView {
    /// Size.
    pub size: TtySize,
    /// Text of each row, without trailing blanks.
    pub rows: Vec<String>,
    /// Lines that have left the screen, oldest first, as asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scrollback: Vec<String>,
    /// Row of the cursor, from 0.
    pub cursor_row: u16,
    /// Column of the cursor, from 0.
    pub cursor_col: u16,
    /// Whether it is shown.
    pub cursor_visible: bool,
    /// A full-screen program has the alternate screen.
    pub alternate: bool,
    /// Title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Working folder told by the shell inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The shell inside shows its prompt (only shells that mark it).
    pub at_prompt: bool,
    /// A command of that shell runs.
    pub running: bool,
    /// Exit code of its last command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<i32>,
    /// State told as JSON by a shell or hook inside (OSC 7337).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub told: Option<serde_json::Value>,
    /// When output came last, milliseconds since the epoch.
    pub changed_ms: i64,
}

/// What a viewer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ViewerMode {
    /// Type and set the size.
    #[default]
    Write,
    /// Look.
    Read,
}

/// Text frames of the terminal WebSocket, from the viewer. Binary frames are keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum TerminalCommand {
    /// The viewer's size changed; sets the terminal's if this viewer owns it.
    Resize {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// Makes this viewer the owner of the size and sets it.
    Take {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// So many binary bytes of this connection were drawn, all together (with `ack=client`).
    Ack {
        /// Bytes since the connection was made.
        bytes: u64,
    },
    /// Wants the whole screen again.
    Redraw,
}

/// Text frames of the terminal WebSocket, to the viewer. Binary frames are output bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum TerminalEvent {
    /// First: the terminal.
    Attached {
        /// As it is now.
        terminal: TerminalView,
        /// Whether this viewer owns the size.
        owner: bool,
    },
    /// The binary frames up to `redrawEnd` draw the screen anew; what the viewer showed is void.
    RedrawBegin {
        /// Output bytes left out because the viewer was too far behind.
        skipped: u64,
    },
    /// The redraw is complete.
    RedrawEnd,
    /// The terminal's size, and whether this viewer owns it.
    Size {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
        /// Whether this viewer owns the size.
        owner: bool,
    },
    /// The program set the title.
    Title {
        /// The title; empty: none.
        title: String,
    },
    /// The shell told its working folder.
    Cwd {
        /// The folder.
        cwd: String,
    },
    /// The shell marked its prompt or a command.
    Shell {
        /// A prompt is shown.
        at_prompt: bool,
        /// A command runs.
        running: bool,
        /// Exit code of the last command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_exit: Option<i32>,
    },
    /// A shell or hook told its state (OSC 7337).
    Told {
        /// A JSON object.
        state: serde_json::Value,
    },
    /// The bell rang.
    Bell,
    /// Last: the program ended and all its output was sent.
    Exited {
        /// How, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<Exit>,
    },
    /// Last, for another reason.
    Closed {
        /// Why.
        reason: String,
        /// Attaching again goes on.
        #[serde(default)]
        retry: bool,
    },
}

/// `GET …/tmux`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TmuxSessions {
    /// Whether the sandbox has tmux.
    pub installed: bool,
    /// Its sessions.
    pub sessions: Vec<TmuxSession>,
}

/// A tmux session inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TmuxSession {
    /// Its name.
    pub name: String,
    /// Windows.
    pub windows: u32,
    /// Clients attached inside.
    pub attached: u32,
    /// When it was made, seconds since the epoch.
    pub created: i64,
}
