//! Why an archive could not be made or taken.

use rustix::io::Errno;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// It is no archive, a broken one, or one that may not be unpacked.
    Invalid,
    /// More than the limits allow.
    Limit,
    /// The system said no.
    System(Errno),
}

/// A failure, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArchiveError {
    /// What kind.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
}

impl ArchiveError {
    /// An archive that is wrong.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Invalid,
            message: message.into(),
        }
    }

    /// An archive that is too big.
    #[must_use]
    pub fn limit(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Limit,
            message: message.into(),
        }
    }

    /// A refusal of the system about `what`.
    #[must_use]
    pub fn system(what: &str, errno: Errno) -> Self {
        let text = std::io::Error::from(errno).to_string();
        // The number adds nothing for people.
        let text = text.split(" (os error").next().unwrap_or_default();
        Self {
            kind: ErrorKind::System(errno),
            message: format!("{what}: {text}"),
        }
    }
}
