//! Files over the guest link: kinds and entries, what a path is, what an archive may hold, what became of it, what a watch tells.

use serde::{Deserialize, Serialize};

/// What an archive may hold at most. A violation ends the unpacking with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnpackLimits {
    /// Bytes of all files together.
    pub bytes: u64,
    /// Entries, folders and links included.
    pub entries: u64,
    /// Folders above an entry.
    pub depth: u32,
}

impl Default for UnpackLimits {
    /// 64 GiB, a million entries, 128 folders deep.
    fn default() -> Self {
        Self {
            bytes: 64 * 1024 * 1024 * 1024,
            entries: 1_000_000,
            depth: 128,
        }
    }
}

/// What was unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Unpacked {
    /// Files, folders and links made or replaced.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries that were not made, with the reason (device nodes, links that lead out of the folder); the first
    /// hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// How many there are.
    #[serde(default)]
    pub refused_count: u64,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WatchKind {
    /// It is there now.
    Create,
    /// Its content changed; several changes in a row are told once.
    Write,
    /// It is gone.
    Remove,
    /// It has another name; `to`.
    Rename,
    /// Its permissions, owner or times changed.
    Chmod,
    /// Changes were missed, from here on down: look again.
    Overflow,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WatchEvent {
    /// Absolute path, written like [`crate::guest::FileEntry::path`].
    pub path: String,
    /// What happened.
    pub kind: WatchKind,
    /// Where it is now, after a rename within what is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What kind of thing a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

/// A path and what is there. Links are described, not followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Absolute path; bytes that are not UTF-8 are written as `\xNN`, a backslash as `\\`. Paths in requests are
    /// read the same way.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, milliseconds since the epoch.
    pub modified_ms: i64,
    /// Where a link points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}
