//! Builds: long work on images (building, pulling, importing) that the daemon does in the background and that
//! can be followed and cancelled.

use crate::id::BuildId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a build does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BuildKind {
    /// An image from an uploaded context.
    Context,
    /// The toolbox and every harness image on it.
    Toolbox,
    /// The image of one harness.
    Harness,
    /// An image from a registry.
    Pull,
    /// An image from a root file system archive.
    Import,
}

/// Where a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BuildState {
    /// Waits for the one before it.
    Queued,
    /// Under way.
    Running,
    /// Done.
    Succeeded,
    /// Ended with an error; nothing of it is left.
    Failed,
    /// Was cancelled; nothing of it is left.
    Cancelled,
}

impl BuildState {
    /// Whether it will not change any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// A build as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BuildView {
    /// Its id.
    pub id: BuildId,
    /// What it does.
    pub kind: BuildKind,
    /// Whose store the image goes to.
    pub backend: String,
    /// The image, name or harness it is about, for people.
    pub target: String,
    /// Where it is.
    pub state: BuildState,
    /// The last line of its log, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Id of the image it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What the images hold, one line each (harness images).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Bytes of its log so far.
    pub log_bytes: u64,
}

/// `POST /v1/builds` with a JSON body: one of Handler's own images. What is in it is said by the recipes on
/// disk and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BuildRequest {
    /// `toolbox`, or the name of a harness.
    pub target: String,
    /// Whose store (default: `images.toml`'s, else the first that can build).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
}

/// `POST /v1/builds?request=…` with a tar archive as body: what is to be built of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextBuild {
    /// Whose store (default as for [`BuildRequest`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Names it gets; none: it stays untagged.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The recipe inside the context (default: `Containerfile`, else `Dockerfile`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerfile: Option<String>,
    /// Build arguments. They can be seen by other programs while building and stay in the image's history: no
    /// place for secrets.
    #[serde(default)]
    pub args: BTreeMap<String, String>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Take no step from the cache.
    #[serde(default)]
    pub no_cache: bool,
    /// Ask the registry for a newer base image.
    #[serde(default)]
    pub pull: bool,
}

/// `POST /v1/images/pull`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullRequest {
    /// Name with tag or digest.
    pub reference: String,
    /// Whose store (default as for [`BuildRequest`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
}

/// `POST /v1/images/tag`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TagRequest {
    /// The image, by name or id.
    pub reference: String,
    /// Its new name, taken from whatever had it.
    pub name: String,
    /// Whose store (default as for [`BuildRequest`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
}

/// How often harness images are rebuilt by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum UpdateSchedule {
    /// Never.
    #[default]
    Off,
    /// Once a day.
    Daily,
    /// Once a week.
    Weekly,
}

/// `GET /v1/image-updates`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdates {
    /// How often.
    pub schedule: UpdateSchedule,
    /// A round is under way.
    pub running: bool,
    /// RFC 3339; when the last round began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<String>,
    /// RFC 3339; when the next one begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run: Option<String>,
    /// Builds of the last round.
    #[serde(default)]
    pub builds: Vec<BuildId>,
}

/// `PUT /v1/image-updates`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageUpdatesRequest {
    /// How often.
    pub schedule: UpdateSchedule,
}

/// Frames of `GET /v1/builds/{id}/follow` (server-sent events, named by `type`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum BuildFrame {
    /// More of the log.
    Log {
        /// Offset behind it; go on from there.
        offset: u64,
        /// Whole lines, without control characters but line ends.
        text: String,
    },
    /// The build changed; the stream ends when it is over.
    Build {
        /// As it is now.
        build: Box<BuildView>,
    },
}
