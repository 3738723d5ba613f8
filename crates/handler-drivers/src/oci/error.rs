//! Why an engine did not do what was asked: in words for people, with the status for those who decide.

use handler_engine::driver::DriverError;
use std::time::Duration;

/// Longest message of an engine that is passed on, in bytes: its text is not ours.
const LONGEST: usize = 600;

/// Why an engine could not be reached or refused.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// The engine is not there or does not run; the text says what to do.
    #[error("{0}")]
    Missing(String),
    /// The engine refused; `status` is that of HTTP.
    #[error("{message}")]
    Refused {
        /// HTTP status, e.g. 404 or 409.
        status: u16,
        /// The engine's words, shortened and without control characters.
        message: String,
    },
    /// The exchange broke; whether the engine did it is not known.
    #[error("the engine's connection broke: {0}")]
    Broken(String),
    /// No answer in time.
    #[error("the engine did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
}

impl OciError {
    /// A refusal with the engine's words made safe to show.
    pub(crate) fn refused(status: u16, message: &str) -> Self {
        Self::Refused {
            status,
            message: tidy(message),
        }
    }

    /// Whether the engine said that there is no such thing.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether the engine said that it is in the way or already so.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { status: 409, .. })
    }

    /// As the engine room wants it; `step` says what was tried.
    pub(crate) fn at(self, step: &str) -> DriverError {
        match self {
            Self::Missing(text) => DriverError::HostNotReady(text),
            Self::Refused { message, .. } if is_no_space(&message) => {
                DriverError::NoSpace(format!("{step}: {message}"))
            }
            other => DriverError::Failed {
                step: step.to_owned(),
                message: other.to_string(),
            },
        }
    }
}

fn is_no_space(message: &str) -> bool {
    message.contains("no space left on device") || message.contains("disk quota exceeded")
}

/// One line, no control characters, bounded.
pub(crate) fn tidy(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.trim().chars().map(plain).collect();
    if line.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
        line.push('…');
    }
    line
}

impl From<bollard::errors::Error> for OciError {
    fn from(error: bollard::errors::Error) -> Self {
        use bollard::errors::Error;
        match error {
            Error::DockerResponseServerError {
                status_code,
                message,
            } => Self::refused(status_code, &message),
            Error::RequestTimeoutError => Self::Timeout(super::api::REQUEST_TIMEOUT),
            other => Self::Broken(tidy(&other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_engine_are_one_bounded_line() {
        assert_eq!(tidy(" a\nb\u{1b}[1m "), "a b [1m");
        let long = tidy(&"ä".repeat(4000));
        assert!(long.len() <= LONGEST + 3 && long.ends_with('…'));
    }

    #[test]
    fn a_full_disk_is_told_as_such_and_a_missing_engine_as_the_hosts_fault() {
        let full = OciError::refused(500, "write /x: no space left on device").at("create");
        assert!(matches!(full, DriverError::NoSpace(_)));
        let missing = OciError::Missing("install podman".to_owned()).at("create");
        assert!(matches!(missing, DriverError::HostNotReady(_)));
        assert!(OciError::refused(404, "no such container").is_not_found());
    }
}
