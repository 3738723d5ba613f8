//! Knowledge folders (contract D.5): folders of notes that agents may read.

use serde::{Deserialize, Serialize};

/// Largest note that is sent, bytes.
pub const MAX_NOTE: u64 = 1024 * 1024;

/// Who says where the knowledge root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum KnowledgeSource {
    /// `HANDLER_KNOWLEDGE_DIR`: it cannot be changed through the API.
    Env,
    /// `knowledge.toml`.
    Config,
    /// Nobody: `~/knowledge`.
    Default,
}

/// The knowledge root and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeListing {
    /// Absolute path.
    pub root: String,
    /// Who says so.
    pub source: KnowledgeSource,
    /// Whether it is there.
    pub exists: bool,
    /// Its folders, three levels deep, relative to it, parents first; names with `.` or `_` in front are left out.
    pub folders: Vec<String>,
}

/// `PUT /v1/knowledge/root`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetKnowledgeRootRequest {
    /// Absolute path, or one that starts with `~/`; none: `~/knowledge` again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Make the folder when it is not there.
    #[serde(default)]
    pub create: bool,
}

/// `POST /v1/knowledge/folders`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnowledgeFolderRequest {
    /// The new folder, relative to the root; the one it lies in is there, its name begins with neither `.` nor `_`.
    pub path: String,
}

/// A folder of notes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeFolderView {
    /// Relative to the root; `.`: the root itself.
    pub path: String,
    /// Names of the folders in it.
    pub folders: Vec<String>,
    /// Names of the notes in it (`.md`).
    pub notes: Vec<String>,
    /// The note that introduces it: `index.md`, else `README.md`, in whatever case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
}

/// A note. Its text is whoever's who wrote it: to be shown as untrusted Markdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeNote {
    /// Relative to the root.
    pub path: String,
    /// What it says.
    pub text: String,
}
