//! Providers (`handler.provider/v1`, contract E): where model calls go. Hand-written TOML, so unknown
//! keys are errors. A key is always a reference, never a literal.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The `apiVersion` of a provider file.
pub const PROVIDER_VERSION: &str = "handler.provider/v1";

/// A protocol a model server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenaiChat,
    /// OpenAI Responses.
    Responses,
    /// Gemini `generateContent`.
    Gemini,
}

/// A provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provider {
    /// [`PROVIDER_VERSION`].
    pub api_version: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// At least one: the URL to give a harness that speaks the protocol.
    pub endpoints: BTreeMap<Protocol, String>,
    /// None for a local server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<SecretRef>,
    /// At least one, with unique ids.
    pub models: Vec<ProviderModel>,
    /// Config files for some harness: harness → its config file slot → where its content comes from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: ProviderFilesOf,
    /// The contexts it may be used in, or `any`; none: only projects without a context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
}

/// Harness → config file slot → where its content comes from.
pub type ProviderFilesOf = BTreeMap<String, BTreeMap<String, FileSource>>;

/// Where the content of a whole config file comes from; exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum FileSource {
    /// A host file, at most 1 MiB.
    File(String),
    /// A variable of the daemon's environment.
    Env(String),
    /// Written here.
    Content(String),
}

/// A model of a provider.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderModel {
    /// What the server calls it.
    pub id: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tokens of conversation it can hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Most tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Whether it thinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<bool>,
    /// Whether it takes images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// Where a secret value is kept; exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum SecretRef {
    /// A path in Handler's store, e.g. `providers/openrouter/apiKey`.
    Secret(String),
    /// A variable of the daemon's environment.
    Env(String),
    /// First line of a host file, trimmed.
    File(String),
    /// Standard output of a command, trimmed.
    Command(Vec<String>),
}

impl SecretRef {
    /// The word for the kind of source.
    #[must_use]
    pub fn source(&self) -> &'static str {
        match self {
            Self::Secret(_) => "secret",
            Self::Env(_) => "env",
            Self::File(_) => "file",
            Self::Command(_) => "command",
        }
    }
}
