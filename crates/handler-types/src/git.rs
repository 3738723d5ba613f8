//! Git in a sandbox: what is shown of a repository, and forks of a project.

use serde::{Deserialize, Serialize};

/// Where a repository stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GitStatus {
    /// The branch; absent: HEAD is on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit; absent: there is none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The branch it follows, e.g. `origin/main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Commits the upstream lacks.
    #[serde(default)]
    pub ahead: u64,
    /// Commits of the upstream that are lacking here.
    #[serde(default)]
    pub behind: u64,
    /// Changed paths, at most 2000.
    #[serde(default)]
    pub changes: Vec<GitChange>,
    /// There are more.
    #[serde(default)]
    pub truncated: bool,
}

/// A changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GitChange {
    /// Path below the repository's root; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Where it was before a rename.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// State in the index and in the folder, as `git status --short` writes it, e.g. `M.`, `.M`, `??`, `UU`.
    pub state: String,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GitCommit {
    /// Its id.
    pub id: String,
    /// Author's name.
    pub author: String,
    /// Author's address.
    pub email: String,
    /// RFC 3339.
    pub at: String,
    /// First line of the message.
    pub subject: String,
    /// Branches and tags that point at it.
    #[serde(default)]
    pub refs: Vec<String>,
}

/// A commit with its message and change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GitShow {
    /// The commit.
    pub commit: GitCommit,
    /// The whole message.
    pub message: String,
    /// The change as a patch, at most 2 MiB.
    pub patch: String,
    /// The patch is cut.
    #[serde(default)]
    pub truncated: bool,
}

/// Where a fork came from; kept with its sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForkOf {
    /// The project folder it was taken from.
    pub folder: String,
    /// The branch made for it.
    pub branch: String,
    /// The commit it began at.
    pub base: String,
    /// The sandbox it was taken from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

/// `POST /v1/forks`: a project's repository as a folder and sandbox of its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateFork {
    /// The sandbox whose project is taken; this or `folder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The project folder: the root of a repository in a work folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The new branch.
    pub branch: String,
    /// Where it begins: a branch, tag or commit (default: what is checked out).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// How the new sandbox is made; `scope` must be absent. A fork of a sandbox takes that sandbox's backend,
    /// image, network and limits where this says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<crate::sandbox::CreateSandbox>,
}

/// How a fork stands towards its project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForkView {
    /// Its sandbox.
    pub sandbox: String,
    /// The sandbox's name.
    pub name: String,
    /// Where it came from.
    pub fork: ForkOf,
    /// Its own folder on the host.
    pub path: String,
    /// Commits the project lacks.
    pub ahead: u64,
    /// Commits of the project it lacks.
    pub behind: u64,
    /// Paths changed and not committed.
    pub uncommitted: u64,
    /// Its commits are all in the project.
    pub merged: bool,
}

/// How work is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MergeStrategy {
    /// A merge commit on what the project has checked out.
    #[default]
    Merge,
    /// The fork's commits on top of what the project has checked out.
    Rebase,
}

/// `POST /v1/forks/{sandbox}/merge`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MergeRequest {
    /// How.
    #[serde(default)]
    pub strategy: MergeStrategy,
    /// Message of the merge commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What came of a merge. With conflicts nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MergeResult {
    /// Whether the project has the work now.
    pub merged: bool,
    /// What the project has checked out afterwards.
    pub head: String,
    /// Paths in conflict.
    #[serde(default)]
    pub conflicts: Vec<String>,
}

/// What became of a fork's work when the fork was removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForkKept {
    /// The hidden reference in the project that holds what was not merged; absent: everything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The commit it names; uncommitted changes are in it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}
