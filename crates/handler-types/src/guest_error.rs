//! Why the guest could not do what was asked.

use serde::{Deserialize, Serialize};

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct GuestError {
    /// Stable code.
    pub code: GuestErrorCode,
    /// For people.
    pub message: String,
}

/// Stable codes of [`GuestError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestErrorCode {
    /// No such path, process or request.
    NotFound,
    /// It exists already.
    Exists,
    /// The sandbox's own permissions forbid it.
    Denied,
    /// The request makes no sense.
    Invalid,
    /// No room on the file system.
    NoSpace,
    /// A limit of the guest or the sandbox.
    Limit,
    /// Anything else.
    Io,
}
