//! Why a guest could not be reached or did not do what was asked.

use handler_types::frame::FrameError;
use handler_types::guest::GuestError;
use std::path::PathBuf;
use std::time::Duration;

/// Why a link to a guest could not be made or broke.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// Nobody listens.
    #[error("cannot connect to the guest at {}: {message}", socket.display())]
    Connect {
        /// Where.
        socket: PathBuf,
        /// The system's word.
        message: String,
    },
    /// The guest said nothing in time.
    #[error("the guest did not answer within {0:?}")]
    Silent(Duration),
    /// The guest speaks another version.
    #[error("the guest speaks protocol {theirs}, this daemon {ours}")]
    Version {
        /// The guest's.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// Another guest answers than the one this link was made to: the old one and its processes are gone.
    #[error("the guest was replaced by another one")]
    Replaced,
    /// What came is no frame.
    #[error("the guest broke the protocol: {0}")]
    Frame(#[from] FrameError),
    /// What came makes no sense.
    #[error("the guest broke the protocol: {0}")]
    Nonsense(&'static str),
    /// The connection ended.
    #[error("the guest closed the connection")]
    Ended,
    /// The connection broke.
    #[error("the connection to the guest broke: {0}")]
    Broken(String),
    /// We closed it.
    #[error("{0}")]
    Closed(String),
}

impl LinkError {
    /// Whether the guest did something that no honest guest does.
    #[must_use]
    pub fn is_breach(&self) -> bool {
        matches!(self, Self::Frame(_) | Self::Nonsense(_))
    }

    /// Whether connecting again cannot help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Version { .. } | Self::Replaced | Self::Closed(_)
        )
    }
}

/// Why a call did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GuestCallError {
    /// The guest said no.
    #[error(transparent)]
    Refused(GuestError),
    /// The call cannot be made.
    #[error("{0}")]
    Invalid(String),
    /// No answer in time.
    #[error("the guest did not answer within {0:?}")]
    Timeout(Duration),
    /// The link broke before the answer; whether it was done is not known.
    #[error("the link to the guest broke: {0}")]
    Lost(LinkError),
    /// The content given to a write could not be read.
    #[error("the content could not be read: {0}")]
    Source(String),
}

impl GuestCallError {
    /// Whether the link broke (and not the call itself).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}
