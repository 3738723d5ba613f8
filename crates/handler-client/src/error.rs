//! What can go wrong between a client and the daemon.

use handler_base::http::HttpError;
use handler_types::Problem;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon does not answer.
    #[error("the daemon cannot be reached")]
    Unreachable(#[source] HttpError),
    /// The exchange broke half-way.
    #[error("the connection to the daemon broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The daemon refused.
    #[error("{0}")]
    Refused(Problem),
    /// The daemon answered something this client does not understand.
    #[error("unexpected answer from the daemon: {0}")]
    Unexpected(String),
}

impl ClientError {
    /// The refusal, if it is one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            _ => None,
        }
    }
}

impl From<HttpError> for ClientError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Connect { .. } => Self::Unreachable(error),
            other => Self::Broken(Box::new(other)),
        }
    }
}
