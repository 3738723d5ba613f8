//! Quick files and environment presets: what people want in many sandboxes, written once.

use crate::sandbox::CreateSandbox;
use serde::{Deserialize, Serialize};

/// A file put into sandboxes when they are made.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuickFile {
    /// Where it goes: absolute, or `~/…` for the sandbox's home.
    pub path: String,
    /// Its text, at most 48 KiB. Absent when it is sensitive: it is then kept sealed and never given out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Permission bits, octal (default `0644`; sensitive: `0600`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Put into every new sandbox.
    #[serde(default)]
    pub default: bool,
    /// Its text is kept sealed. The sandbox it is put into can read it: for real keys use secrets instead.
    #[serde(default)]
    pub sensitive: bool,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl std::fmt::Debug for QuickFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuickFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// A quick file with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QuickFileView {
    /// Its name.
    pub name: String,
    /// The file; absent when its settings are wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<QuickFile>,
    /// What is wrong with its settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// An environment preset: a request for a sandbox with its blanks. What a request says counts before it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Preset {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it says. `name`, `scope` and `preset` cannot be in it.
    #[serde(default)]
    pub sandbox: CreateSandbox,
}

/// A preset with its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PresetView {
    /// Its name.
    pub name: String,
    /// The preset; absent when its file is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// What is wrong with its file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}
