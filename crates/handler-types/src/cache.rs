//! Caches (contract B.6, D.8): what tools keep between sandboxes, shared by a project's agents or by many projects'.

use crate::id::ProjectId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most caches that are declared.
pub const MAX_CACHES: usize = 50;

/// A cache as `toolbox.toml` declares it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CacheDeclaration {
    /// Where it is mounted, below the home: `~/.cargo`. At most 200 characters.
    pub target: String,
    /// What it holds, for people: one line of at most 200 characters.
    #[serde(default)]
    pub about: String,
    /// Any tool writes there, not one.
    #[serde(default)]
    pub general: bool,
}

/// `PUT /v1/caches`: all that are declared from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CachesRequest {
    /// By name: 1 to 64 of `a-z`, `0-9`, `-` and `_`, the first a letter or digit.
    pub caches: BTreeMap<String, CacheDeclaration>,
}

/// A declared cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CacheView {
    /// Its name.
    pub name: String,
    /// Where it is mounted, below the home.
    pub target: String,
    /// What it holds.
    pub about: String,
    /// Any tool writes there.
    pub general: bool,
}

/// A project, named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProjectRef {
    /// Its id.
    pub id: ProjectId,
    /// Its name.
    pub name: String,
}

/// The caches that many projects share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GlobalCaches {
    /// The folder they lie in, on the host.
    pub folder: String,
    /// Names of those that are there.
    pub caches: Vec<String>,
    /// Names of those that are there and declared no more.
    pub removed: Vec<String>,
    /// Projects that chose them.
    pub projects: Vec<ProjectRef>,
}

/// A project's own caches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OwnCaches {
    /// The project.
    pub project_id: ProjectId,
    /// Its name.
    pub name: String,
    /// The folder they lie in, on the host.
    pub folder: String,
    /// Names of those that are there.
    pub caches: Vec<String>,
    /// Names of those that are there and declared no more.
    pub removed: Vec<String>,
}

/// `GET /v1/caches`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CachesInfo {
    /// What is declared, by name.
    pub caches: Vec<CacheView>,
    /// Those that many projects share.
    pub global: GlobalCaches,
    /// Those of one project each.
    pub own: Vec<OwnCaches>,
    /// Projects without.
    pub off: Vec<ProjectRef>,
}

/// `GET /v1/caches/sizes`: bytes on disk of each cache that is there, whoever inside wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CacheSizes {
    /// Of the shared ones, by name.
    pub global: BTreeMap<String, u64>,
    /// Of projects' own: by project id, then by name.
    pub own: BTreeMap<String, BTreeMap<String, u64>>,
}
