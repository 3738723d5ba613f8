//! Images: root file systems that sandboxes start from, and how they are got, built and kept.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The image a sandbox was made from: resolved once, so that a tag moved afterwards changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImageUse {
    /// What was asked for, e.g. `debian:13`.
    pub reference: String,
    /// The id it resolved to, e.g. `sha256:…`, of the backend's own image store.
    pub id: String,
}

/// A read-only file system of an image shown at a path inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImageMount {
    /// The image, pinned.
    pub image: ImageUse,
    /// Absolute path inside.
    pub target: String,
}

/// What of an image's configuration counts when a sandbox starts from it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImageConfig {
    /// Environment, `PATH` included.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder; empty: none said.
    #[serde(default)]
    pub workdir: String,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// An image as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImageView {
    /// The backend whose store holds it.
    pub backend: String,
    /// Its id in that store, `sha256:…`.
    pub id: String,
    /// Names with tags, e.g. `debian:13`; empty: untagged.
    pub names: Vec<String>,
    /// Bytes on disk, layers shared with others included.
    pub size_bytes: u64,
    /// RFC 3339; when it was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// `linux/amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Its configuration; only when one image is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ImageConfig>,
    /// Ids of sandboxes that use it.
    #[serde(default)]
    pub used_by: Vec<String>,
}
