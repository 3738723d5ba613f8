//! What a sandbox asked for, and what would let it pass: the way from watching to a list.

use crate::SandboxId;
use crate::SessionId;
use crate::egress::EgressDecision;
use crate::network::{AllowEntry, Enforcement, NetworkPolicy};
use serde::{Deserialize, Serialize};

/// `GET …/network/learn`: each destination once, the one asked for last first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LearnView {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The session, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// What it may reach now.
    pub network: NetworkPolicy,
    /// What it asked for since it was made, as far as it is known.
    pub hosts: Vec<LearnedHost>,
    /// Destinations that were forgotten because there were too many.
    #[serde(default)]
    pub forgotten: u64,
}

/// A destination that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LearnedHost {
    /// `HOST:PORT`; `HOST` alone for a name that was looked up and not asked for at any port.
    pub host: String,
    /// The last decision about it.
    pub decision: EgressDecision,
    /// Why, if it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often it was asked for.
    pub count: u64,
    /// First, milliseconds since the epoch.
    pub first_seen: i64,
    /// Last, milliseconds since the epoch.
    pub last_seen: i64,
    /// Whether the list of now names it.
    pub listed: bool,
    /// The entry that would allow it, with port 443 for a name that was only looked up; absent when it is listed, or no entry can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub entry: Option<AllowEntry>,
}

/// `POST …/network/allow` and `…/network/block`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntriesRequest {
    /// Allow-list entries, `HOST:PORT`.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub entries: Vec<AllowEntry>,
}

/// `PUT …/network/enforcement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnforcementRequest {
    /// Refuse what is not listed, or only tell.
    pub enforcement: Enforcement,
}
