//! `PATCH /v1/sandboxes/{id}`: what of a sandbox can be changed, and how something is taken away.

use crate::lifetime::IdlePolicy;
use crate::sandbox::Resources;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Changes to a sandbox. What is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateSandbox {
    /// Another name; the empty text: none but its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// These labels instead of all it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// This data of programs instead of all it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Removed so many seconds from now; 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// What happens when nobody uses it; `{"none": true}`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleUpdate>,
    /// These limits instead of all it has. While it runs only where its backend can change them live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// Another idle policy, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum IdleUpdate {
    /// This one.
    Policy(IdlePolicy),
    /// None.
    Nothing(NoIdle),
}

/// `{"none": true}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NoIdle {
    /// Always true.
    pub none: bool,
}
