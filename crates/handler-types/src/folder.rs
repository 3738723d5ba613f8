//! Work folders (contract D.13) and the folders in them, for those who choose one.

use crate::cache::ProjectRef;
use serde::{Deserialize, Serialize};

/// Most folders that are listed at once.
pub const MAX_LISTED: usize = 500;

/// `PUT /v1/folders`: all of the list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkFoldersRequest {
    /// Absolute paths; `~` and `~/…` are below the home.
    pub roots: Vec<String>,
}

/// A root that agents may work in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkFolderView {
    /// As written.
    pub root: String,
    /// Where it leads.
    pub path: String,
    /// Whether it is there.
    pub exists: bool,
    /// Projects in it.
    pub projects: Vec<ProjectRef>,
}

/// The folders that agents may work in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkFoldersInfo {
    /// In the order of the list.
    pub folders: Vec<WorkFolderView>,
}

/// Folders in a work folder, to choose one. Hidden ones and links are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DirectoryListing {
    /// The folder; none: these are the roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The folder around it, if that may be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Names of the folders in it, at most 500; of the roots their paths.
    pub folders: Vec<String>,
    /// There are more.
    pub more: bool,
}

/// `POST /v1/directories`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateDirectoryRequest {
    /// The folder it is made in: absolute.
    pub parent: String,
    /// Its name: no `/`, no dot in front.
    pub name: String,
}
