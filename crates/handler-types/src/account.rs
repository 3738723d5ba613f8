//! Accounts (`handler.account/v1`, contracts E and D.9): a subscription one harness logs in with. Hand-written TOML,
//! so unknown keys are errors. A token is always a reference, never a literal.

use crate::id::AgentId;
use crate::network::AllowEntry;
use crate::provider::SecretRef;
use serde::{Deserialize, Serialize};

/// The `apiVersion` of an account file.
pub const ACCOUNT_VERSION: &str = "handler.account/v1";

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Account {
    /// [`ACCOUNT_VERSION`].
    pub api_version: String,
    /// A harness with a login.
    pub harness: String,
    /// For people, e.g. the address it was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its subscription's plan, one of its harness's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Whether its harness may use the account's own connectors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connectors: bool,
    /// Where a token login's token is kept; none: not logged in, or a file login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretRef>,
    /// The contexts it may be used in, or `any`; none: only projects without a context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
}

/// `POST /v1/accounts` and `PUT /v1/accounts/{name}` (whole: what is left out gets its default).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccountRequest {
    /// Its name: `[a-z0-9][a-z0-9_-]{0,62}`; no provider's.
    pub name: String,
    /// A harness with a login. Cannot change.
    pub harness: String,
    /// For people, at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its subscription's plan, one of its harness's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Let its harness use the account's own connectors.
    #[serde(default)]
    pub connectors: bool,
    /// The contexts it may be used in, or `any`; none: only projects without a context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
}

/// How an account logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LoginKind {
    /// With a token that the person gets by the vendor's own sign-in.
    Token,
    /// With a credential file that the program's login leaves.
    File,
}

/// Whether something written by hand can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum AccountStatus {
    /// It can.
    Ready,
    /// It is not logged in.
    Incomplete,
    /// Its file is wrong.
    Invalid,
}

/// An account as the API shows it: never with its login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AccountView {
    /// Its name.
    pub name: String,
    /// Its harness; empty while its file cannot be read.
    pub harness: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Whether its own connectors may be used.
    #[serde(default)]
    pub connectors: bool,
    /// The contexts it may be used in, or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
    /// How it logs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginKind>,
    /// Where its token comes from: `secret`, `env`, `file`, `command`; absent: none was given, or a file login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// When its login was given last, RFC 3339; unknown for a token that is kept elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logged_in_at: Option<String>,
    /// When its token ends, RFC 3339, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// What a session on it reaches.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub hosts: Vec<AllowEntry>,
    /// Whether it can be used.
    pub status: AccountStatus,
    /// What is wrong, in words, and what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The agents that list it.
    pub agents: Vec<AgentId>,
    /// Sessions that were started on it and are kept.
    pub sessions: u64,
    /// When one of them was last active, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
}

/// `PUT /v1/accounts/{name}/login`: exactly one.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccountLoginRequest {
    /// The token itself; goes to the secret store at `accounts/<name>/token` and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(write_only))]
    pub token: Option<String>,
    /// Where the person keeps it: `env`, `file` or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<SecretRef>,
    /// The text of the credential file that the program's login left, at most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(write_only))]
    pub file: Option<String>,
}

impl std::fmt::Debug for AccountLoginRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountLoginRequest")
            .field("token_ref", &self.token_ref)
            .finish_non_exhaustive()
    }
}

/// How a harness is logged in, as the API shows it (contract B.1 `login`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LoginHow {
    /// With what.
    pub kind: LoginKind,
    /// What people call the plan it signs in to.
    pub subscription: String,
    /// Address of the vendor's terms.
    pub terms: String,
    /// A token login: what the person runs, e.g. `claude setup-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_command: Option<String>,
    /// A token login: how a token starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_prefix: Option<String>,
    /// A file login: what is run on the person's machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Environment for it; `{dir}` is a new folder for its state.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
    /// A file login: the name of the file that it leaves in `{dir}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_file: Option<String>,
    /// What a session logged in with it reaches.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub hosts: Vec<AllowEntry>,
    /// One line for the person logging in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Plans an account may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<String>,
    /// Whether its accounts have connectors of their own.
    pub connectors: bool,
}
