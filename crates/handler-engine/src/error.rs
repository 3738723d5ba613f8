//! What can go wrong with a sandbox, and the three questions every failure answers: what kind it is, whose it
//! is, and whether trying again helps. Texts are safe to show: no secret value ever gets into one.

use crate::driver::DriverError;
use crate::filter::FilterError;
use crate::folders::FolderError;
use crate::guest::GuestCallError;
use crate::rows::RowError;
use handler_types::guest::GuestErrorCode;
use handler_types::{Problem, ProblemCode};
use std::time::Duration;

/// Who has to do something about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// The one who asked.
    Caller,
    /// The person who runs this host.
    Host,
    /// The backend or the guest.
    Backend,
    /// This program.
    Us,
}

/// Whether the same request can succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Not as it stands.
    Never,
    /// After something else has changed.
    Later,
    /// At once.
    Now,
}

/// Why an operation on a sandbox failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// No such backend in this daemon.
    #[error("there is no backend `{0}`")]
    NoBackend(String),
    /// The name is taken.
    #[error("a sandbox named `{0}` exists already")]
    NameTaken(String),
    /// No sandbox fits.
    #[error("there is no sandbox `{0}`")]
    NotFound(String),
    /// Several sandboxes fit.
    #[error("`{text}` fits {count} sandboxes; give more of the id")]
    Ambiguous {
        /// What was given.
        text: String,
        /// How many fit.
        count: usize,
    },
    /// The sandbox is in a state that does not allow it.
    #[error("sandbox {sandbox} is {state}: {needed}")]
    WrongState {
        /// Its id.
        sandbox: String,
        /// Its state.
        state: String,
        /// What would have to be true.
        needed: String,
    },
    /// `none`, and on some backends `open`, cannot be left or entered while the sandbox runs.
    #[error(
        "the network of a running sandbox cannot be switched from or to `none` (in containers also `open`); stop it first"
    )]
    NetworkSwitch,
    /// The driver could not do it.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The egress filter could not do it.
    #[error("the egress filter refused the settings")]
    Filter(#[from] FilterError),
    /// A secret that the sandbox needs has no usable value.
    #[error("secret `{secret}`: {reason}")]
    Secret {
        /// Its path.
        secret: String,
        /// What is wrong.
        reason: String,
    },
    /// The guest could not do it.
    #[error(transparent)]
    Guest(#[from] GuestCallError),
    /// The store could not do it.
    #[error("the sandbox could not be written down")]
    Rows(#[source] RowError),
    /// A folder of the sandbox could not be made or removed.
    #[error(transparent)]
    Folders(#[from] FolderError),
    /// A step took too long; it was undone.
    #[error("{step} took longer than {limit:?}")]
    Timeout {
        /// The step.
        step: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// Some of a sandbox could not be removed; it is tried again.
    #[error("not everything of sandbox {sandbox} could be removed: {message}")]
    Leftover {
        /// Its id.
        sandbox: String,
        /// What and why.
        message: String,
    },
    /// The sandbox could not be started; the cause, told to everyone who waited for the same start.
    #[error("{message}")]
    Shared {
        /// The first failure's code.
        code: ProblemCode,
        /// Whose it is.
        whose: Whose,
        /// Whether to try again.
        retry: Retry,
        /// The first failure's whole text.
        message: String,
    },
    /// A limit of this host or of a project is used up.
    #[error("{message}")]
    TooMany {
        /// Which, and what to do.
        message: String,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The engine is ending.
    #[error("the daemon is shutting down")]
    ShuttingDown,
}

impl EngineError {
    /// The stable code: what kind of failure it is.
    #[must_use]
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Invalid(_) | Self::NoBackend(_) => ProblemCode::Invalid,
            Self::NotFound(_) => ProblemCode::NotFound,
            Self::Ambiguous { .. } => ProblemCode::Ambiguous,
            Self::NameTaken(_) | Self::WrongState { .. } | Self::NetworkSwitch => {
                ProblemCode::Conflict
            }
            Self::Driver(error) => driver_code(error),
            Self::Folders(error) if error.is_no_space() => ProblemCode::NoSpace,
            Self::Rows(RowError::NoSpace(_)) => ProblemCode::NoSpace,
            Self::Filter(_) | Self::Leftover { .. } => ProblemCode::BackendFailed,
            Self::Secret { .. } => ProblemCode::NotConfigured,
            Self::Guest(error) => guest_code(error),
            Self::Timeout { .. } => ProblemCode::Timeout,
            Self::Shared { code, .. } => *code,
            Self::TooMany { .. } => ProblemCode::TooMany,
            Self::ShuttingDown => ProblemCode::Unavailable,
            Self::Rows(_) | Self::Folders(_) => ProblemCode::Internal,
        }
    }

    /// Who has to do something about it.
    #[must_use]
    pub fn whose(&self) -> Whose {
        if let Self::Shared { whose, .. } = self {
            return *whose;
        }
        match self.code() {
            ProblemCode::HostNotReady | ProblemCode::NoSpace | ProblemCode::TooMany => Whose::Host,
            ProblemCode::BackendFailed | ProblemCode::Timeout => Whose::Backend,
            ProblemCode::Internal | ProblemCode::Unavailable => Whose::Us,
            _ => Whose::Caller,
        }
    }

    /// Whether trying again helps.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Shared { retry, .. } => *retry,
            Self::Guest(error) if error.is_lost() => Retry::Now,
            Self::Timeout { .. } | Self::ShuttingDown => Retry::Now,
            Self::WrongState { .. }
            | Self::NetworkSwitch
            | Self::Leftover { .. }
            | Self::TooMany { .. } => Retry::Later,
            _ => match self.code() {
                ProblemCode::HostNotReady | ProblemCode::NoSpace | ProblemCode::NotConfigured => {
                    Retry::Later
                }
                ProblemCode::BackendFailed => Retry::Later,
                _ => Retry::Never,
            },
        }
    }

    /// The whole text: this failure and its causes.
    #[must_use]
    pub fn detail(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let part = error.to_string();
            if !text.ends_with(&part) {
                text.push_str(": ");
                text.push_str(&part);
            }
            cause = error.source();
        }
        text
    }

    /// The document for the API.
    #[must_use]
    pub fn to_problem(&self) -> Problem {
        let mut problem = Problem::new(self.code(), self.detail());
        problem.retry_after_seconds = match self {
            Self::TooMany { retry_after, .. } => Some(retry_after.as_secs().max(1)),
            Self::ShuttingDown => Some(5),
            _ => None,
        };
        problem
    }

    /// The same failure for someone else who waited for it.
    pub(crate) fn share(&self) -> Self {
        Self::Shared {
            code: self.code(),
            whose: self.whose(),
            retry: self.retry(),
            message: self.detail(),
        }
    }
}

fn driver_code(error: &DriverError) -> ProblemCode {
    match error {
        DriverError::Unenforceable(_) => ProblemCode::Unenforceable,
        DriverError::Invalid(_) => ProblemCode::Invalid,
        DriverError::HostNotReady(_) => ProblemCode::HostNotReady,
        DriverError::NoSpace(_) => ProblemCode::NoSpace,
        DriverError::Failed { .. } => ProblemCode::BackendFailed,
    }
}

fn guest_code(error: &GuestCallError) -> ProblemCode {
    match error {
        GuestCallError::Refused(refusal) => match refusal.code {
            GuestErrorCode::NotFound => ProblemCode::NotFound,
            GuestErrorCode::Exists => ProblemCode::Conflict,
            GuestErrorCode::Denied => ProblemCode::PathNotAllowed,
            GuestErrorCode::Invalid => ProblemCode::Invalid,
            GuestErrorCode::NoSpace => ProblemCode::NoSpace,
            GuestErrorCode::Limit => ProblemCode::TooLarge,
            GuestErrorCode::Io => ProblemCode::BackendFailed,
        },
        GuestCallError::Invalid(_) => ProblemCode::Invalid,
        GuestCallError::Timeout(_) => ProblemCode::Timeout,
        _ => ProblemCode::BackendFailed,
    }
}

impl From<RowError> for EngineError {
    fn from(error: RowError) -> Self {
        match error {
            RowError::NameTaken(name) => Self::NameTaken(name),
            other => Self::Rows(other),
        }
    }
}
