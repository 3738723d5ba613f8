//! The error of the launcher: which step failed and what the system said.
//!
//! Every fallible call of the launcher is given its step by [`StepExt::step`], so that a person reads
//! `mount /home/x/code: Permission denied` and never a bare number.

use handler_types::launch::LaunchAnswer;

/// A step of the launch that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {message}")]
pub struct StepError {
    /// Which step.
    pub step: String,
    /// The cause, in words.
    pub message: String,
    /// The error number, if the system gave one.
    pub errno: Option<i32>,
}

impl StepError {
    /// A failure that is not the system's.
    pub(crate) fn new(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            message: message.into(),
            errno: None,
        }
    }

    /// What the launcher answers.
    pub(super) fn into_answer(self) -> LaunchAnswer {
        LaunchAnswer::Failed {
            step: self.step,
            message: self.message,
            errno: self.errno,
        }
    }
}

/// Gives a result its step.
pub(crate) trait StepExt<T> {
    /// Names the step; the text is made only when it failed.
    fn step<S: Into<String>>(self, step: impl FnOnce() -> S) -> Result<T, StepError>;
}

impl<T> StepExt<T> for rustix::io::Result<T> {
    fn step<S: Into<String>>(self, step: impl FnOnce() -> S) -> Result<T, StepError> {
        self.map_err(std::io::Error::from).step(step)
    }
}

impl<T> StepExt<T> for std::io::Result<T> {
    fn step<S: Into<String>>(self, step: impl FnOnce() -> S) -> Result<T, StepError> {
        self.map_err(|error| StepError {
            step: step().into(),
            errno: error.raw_os_error(),
            message: message_of(&error),
        })
    }
}

fn message_of(error: &std::io::Error) -> String {
    if error.raw_os_error() == Some(libc::ENOSYS) {
        return "the kernel does not have this system call; Linux 5.12 or newer is needed"
            .to_owned();
    }
    error.to_string()
}
