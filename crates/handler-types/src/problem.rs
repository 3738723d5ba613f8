//! One shape for every refusal of the API: `application/problem+json` (RFC 9457) with a stable code.

use serde::{Deserialize, Serialize};

/// Stable codes; clients decide on these, never on text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The request's form or content is wrong (400).
    Invalid,
    /// No or a wrong token (401).
    Unauthorized,
    /// Origin or Host not allowed (403).
    Forbidden,
    /// A path outside what may be used (403).
    PathNotAllowed,
    /// No such thing (404).
    NotFound,
    /// It exists already, or is in a state that does not allow this (409).
    Conflict,
    /// The name or id fits several things (409).
    Ambiguous,
    /// Body too large (413).
    TooLarge,
    /// The backend cannot enforce what was asked (422).
    Unenforceable,
    /// A login cannot be taken: it is no token, or no credential file, of that program (422).
    LoginRefused,
    /// This host cannot run it: `handler doctor` says why (424).
    HostNotReady,
    /// A secret, provider or harness that is needed is missing or incomplete (424).
    NotConfigured,
    /// The backend, guest or agent failed (502).
    BackendFailed,
    /// No room on a disk (507).
    NoSpace,
    /// It took too long (504).
    Timeout,
    /// What was asked for gives more than before and was not confirmed: `reasons` says what; ask again with
    /// `confirmRisks` (409).
    RisksNotConfirmed,
    /// A quota or limit of this host is used up; `retryAfterSeconds` says when to ask again (429).
    TooMany,
    /// The daemon cannot take it on now, e.g. it is ending (503).
    Unavailable,
    /// A fault of ours (500).
    Internal,
}

impl ProblemCode {
    /// The HTTP status that goes with the code.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthorized => 401,
            Self::Forbidden | Self::PathNotAllowed => 403,
            Self::NotFound => 404,
            Self::Conflict | Self::Ambiguous | Self::RisksNotConfirmed => 409,
            Self::TooLarge => 413,
            Self::Unenforceable | Self::LoginRefused => 422,
            Self::HostNotReady | Self::NotConfigured => 424,
            Self::BackendFailed => 502,
            Self::NoSpace => 507,
            Self::Timeout => 504,
            Self::TooMany => 429,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }

    /// The title that goes with the code.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Invalid => "invalid request",
            Self::Unauthorized => "missing or invalid token",
            Self::Forbidden => "not allowed from here",
            Self::PathNotAllowed => "path not allowed",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::Ambiguous => "ambiguous",
            Self::TooLarge => "too large",
            Self::Unenforceable => "cannot be enforced",
            Self::LoginRefused => "login refused",
            Self::HostNotReady => "this host cannot run sandboxes",
            Self::NotConfigured => "not configured",
            Self::BackendFailed => "the backend failed",
            Self::NoSpace => "no space left",
            Self::Timeout => "timed out",
            Self::RisksNotConfirmed => "risks not confirmed",
            Self::TooMany => "limit reached",
            Self::Unavailable => "not available now",
            Self::Internal => "internal error",
        }
    }
}

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{title}: {detail}")]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Always `about:blank`.
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    /// Short, the same for one code.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Stable code.
    pub code: ProblemCode,
    /// What happened and what to do, safe to show.
    #[serde(default)]
    pub detail: String,
    /// Seconds after which asking again may help; also the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// Everything that is wrong, or (`risks_not_confirmed`) all that has to be confirmed, one thing each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl Problem {
    /// Makes a problem with the code's title and status.
    #[must_use]
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            kind: about_blank(),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            retry_after_seconds: None,
            reasons: Vec::new(),
        }
    }
}
