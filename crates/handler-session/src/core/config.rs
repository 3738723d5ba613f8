//! What a session is started with, and why it may not be.

use super::MAX_PROMPT;
use crate::disk::{CrashPoint, DiskError};
use crate::live::{Opening, StartFailure};
use crate::policy::capabilities::ClientInfo;
use handler_store::Redactor;
use handler_types::harness::SessionDefaults;
use handler_types::network::NetworkPolicy;
use std::path::PathBuf;
use std::time::Duration;

/// What a session is started with.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Its id, for the daemon's log.
    pub id: String,
    /// Its folder; made when missing.
    pub dir: PathBuf,
    /// The project folder, which is the agent's working directory.
    pub scope: String,
    /// What the sandbox may reach (P3).
    pub network: NetworkPolicy,
    /// What every start sets (P7).
    pub defaults: SessionDefaults,
    /// Put before the first prompt (P9); none: nothing.
    pub instructions: Option<String>,
    /// A turn is cancelled after this time.
    pub turn_timeout: Duration,
    /// How long the agent may take to end a turn that was cancelled for its length.
    pub cancel_grace: Duration,
    /// How long the agent may take to be ready.
    pub start_timeout: Duration,
    /// Viewers at once.
    pub max_attach: usize,
    /// Takes secrets out of everything logged.
    pub redactor: Redactor,
    /// Who the daemon says it is.
    pub client_info: ClientInfo,
    /// Where a test lets the daemon die.
    pub crash: CrashPoint,
}

impl SessionConfig {
    /// A configuration with the usual limits.
    #[must_use]
    pub fn new(id: &str, dir: PathBuf, scope: &str) -> Self {
        Self {
            id: id.to_owned(),
            dir,
            scope: scope.to_owned(),
            network: NetworkPolicy::None,
            defaults: SessionDefaults::default(),
            instructions: None,
            turn_timeout: Duration::from_secs(3600),
            cancel_grace: Duration::from_secs(30),
            start_timeout: Duration::from_secs(120),
            max_attach: 8,
            redactor: Redactor::default(),
            client_info: Opening::default().client_info,
            crash: CrashPoint::default(),
        }
    }
}

/// What kind of start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartKind {
    /// A new agent process and a new conversation.
    New,
    /// A new agent process that goes on with an earlier conversation.
    Load {
        /// Its id for clients.
        acp_session_id: String,
        /// It had a turn; without one it is opened anew under the same id.
        had_turn: bool,
    },
    /// The agent process a previous daemon started is still running, maybe in the middle of a turn.
    Adopt,
}

/// Why a session did not become ready.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// The agent's fault, or it could not be brought into the state asked for. `-32004` in the contract's
    /// words when the kind is `Policy`.
    #[error("{}", .0.message)]
    Failed(StartFailure),
    /// The session's files.
    #[error("{0}")]
    Disk(String),
    /// The session was stopped, or let go, before it was ready (again).
    #[error("the session has ended")]
    Ended,
    /// No agent of this session was running when the last daemon ended.
    #[error("no agent of this session was running")]
    NothingToAdopt,
    /// The agent has input that this session's files know nothing of.
    #[error("the running agent does not belong to this session's files")]
    WrongAgent,
}

impl From<DiskError> for StartError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::NothingToAdopt => Self::NothingToAdopt,
            other => Self::Disk(other.to_string()),
        }
    }
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It ended.
    #[error("the session has ended")]
    Ended,
    /// It is not ready yet.
    #[error("the session is not ready")]
    NotReady,
    /// A turn is in progress.
    #[error("a turn is in progress")]
    Busy,
    /// The prompt is too long.
    #[error("the prompt is longer than {MAX_PROMPT} bytes")]
    TooLong,
    /// The prompt says nothing.
    #[error("the prompt is empty")]
    Empty,
    /// No such question waits.
    #[error("no such permission request is open")]
    NoSuchQuestion,
    /// The agent did not offer this option.
    #[error("that is not one of the options offered")]
    NotAnOption,
}
