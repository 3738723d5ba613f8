//! The folder of a session (contract F.8): what its agent changed, what is in it, and changes taken back.

use serde::{Deserialize, Serialize};

/// How a file differs from the one at the session's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileChange {
    /// It was not there.
    Added,
    /// It was another, or was written to.
    Modified,
    /// It is gone.
    Deleted,
}

/// A file that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChangedFile {
    /// Relative to the session's folder.
    pub path: String,
    /// How.
    pub change: FileChange,
    /// When, RFC 3339; absent for a file that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// What changed since a session started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionChanges {
    /// Since when, RFC 3339.
    pub since: String,
    /// The folder was a Git repository then: earlier versions of its files can be read.
    pub git: bool,
    /// The commit they are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// By path. Not there: what the folder's `.gitignore` files ignore, `.git`.
    pub files: Vec<ChangedFile>,
    /// There are too many files to follow, so that changes are missing here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_followed: bool,
}

/// What a mount is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MountKind {
    /// The session's folder.
    Scope,
    /// Another folder that its agent is given.
    Folder,
    /// A knowledge folder.
    Knowledge,
    /// The skill a session is about.
    Subject,
    /// Skills.
    Config,
    /// What its agent program keeps.
    State,
    /// A cache.
    Cache,
    /// Programs.
    Tools,
    /// Anything else.
    Other,
}

impl MountKind {
    /// Whether its content is shown.
    #[must_use]
    pub fn is_browsable(self) -> bool {
        matches!(
            self,
            Self::Scope | Self::Folder | Self::Knowledge | Self::Subject | Self::Config
        )
    }
}

/// Something of this machine that the agent sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionMount {
    /// Where the agent sees it.
    pub target: String,
    /// What it is there for.
    pub kind: MountKind,
    /// The agent cannot change it.
    pub read_only: bool,
    /// Where it is on this machine.
    pub source: String,
    /// It can be read through `mount`.
    pub browsable: bool,
}

/// What a session's agent sees of this machine, as its sandbox was made last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionMounts {
    /// When that was, RFC 3339; absent before the first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Those that can be read first.
    pub mounts: Vec<SessionMount>,
}

/// What an entry of a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link; never followed.
    Link,
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FolderEntry {
    /// Its name; bytes that are no text stand as U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where a link leads, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What is in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionFolder {
    /// Its path; empty: the session's folder or the mount itself.
    pub path: String,
    /// Folders first, then by name.
    pub entries: Vec<FolderEntry>,
    /// There are more entries than are shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// A file, as it is and as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionFile {
    /// Its path.
    pub path: String,
    /// Bytes; absent for a file that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// How it changed since the session started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileChange>,
    /// Its text, if it is one of at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// An image of at most 1 MiB as `data:` address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The text of a changed file in the commit that HEAD was at when the session started, at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// Files found by what was typed of their path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionFound {
    /// At most 20, the best first.
    pub paths: Vec<String>,
    /// There are too many files to look at all of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_followed: bool,
}

/// `POST /v1/sessions/{id}/reveal`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevealRequest {
    /// What to show; empty: the folder itself.
    #[serde(default)]
    pub path: String,
    /// In this mount instead of the session's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A place where two versions of a text differ, with the lines round it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DiffHunk {
    /// Names it as long as neither version changes.
    pub id: String,
    /// First line in the earlier version, from 1; with no lines there, the line before.
    pub old_start: usize,
    /// Lines there.
    pub old_lines: usize,
    /// First line in the file as it is.
    pub new_start: usize,
    /// Lines there.
    pub new_lines: usize,
    /// Each begins with a space (in both), `-` (earlier only), `+` (now only) or `\` (the line before has no end).
    pub lines: Vec<String>,
}

/// What changed in a file since the session started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionDiff {
    /// Its path.
    pub path: String,
    /// How it changed; absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileChange>,
    /// SHA-256 of the file as it is, for [`RevertRequest`]; absent for a file that is gone or larger than 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// There is an earlier version: the change can be taken back.
    pub revertable: bool,
    /// Empty when it is no text, larger than 1 MiB, or has no earlier version (`why` says which).
    pub hunks: Vec<DiffHunk>,
    /// Why there are no hunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// `POST /v1/sessions/{id}/revert`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevertRequest {
    /// The file.
    pub path: String,
    /// Take back this hunk only; absent: the whole file, so that it is as at the session's start (one that was added
    /// is removed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunk: Option<String>,
    /// The `digest` of the difference the person saw; absent for a file that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}
