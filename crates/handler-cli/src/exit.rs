//! Exit codes, and how failures are told: the cause chain, then a hint.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed |
//! | 2 | wrong usage |
//! | 3 | refused: not allowed, not enforceable, not configured |
//! | 4 | not found |
//! | 5 | daemon unreachable |
//! | the command's own | of `sandbox exec`, once the command runs |

use handler_client::ClientError;
use handler_types::ProblemCode;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API said no, or could not be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The command was typed wrong in a way the parser cannot see.
    #[error("{0}")]
    Usage(String),
    /// Something on this side failed.
    #[error("{what}")]
    Local {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// Something else; the text says what.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    /// Wraps an I/O error with what was tried.
    pub fn local(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Local {
            what: what.into(),
            source,
        }
    }

    /// The exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Client(ClientError::Unreachable(_)) => 5,
            Self::Client(ClientError::Refused(problem)) => match problem.code {
                ProblemCode::NotFound => 4,
                ProblemCode::Forbidden
                | ProblemCode::PathNotAllowed
                | ProblemCode::Unauthorized
                | ProblemCode::Unenforceable
                | ProblemCode::HostNotReady
                | ProblemCode::RisksNotConfirmed
                | ProblemCode::NotConfigured => 3,
                ProblemCode::Invalid | ProblemCode::Ambiguous => 2,
                _ => 1,
            },
            Self::Usage(_) => 2,
            _ => 1,
        }
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Client(ClientError::Unreachable(_)) => Some(
                "start the daemon with `handler daemon start` (or `handler serve` to watch it)",
            ),
            Self::Client(ClientError::Refused(problem)) => match problem.code {
                ProblemCode::HostNotReady => Some("`handler doctor` says what this machine lacks"),
                ProblemCode::Unauthorized => {
                    Some("the token file of the config folder does not fit the running daemon")
                }
                _ => None,
            },
            _ => None,
        }
    }
}
