//! Sessions looked back at: found by their words, summed up, renamed and put away.

use crate::session::SessionView;
use serde::{Deserialize, Serialize};

/// `PATCH /v1/sessions/{id}`: what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeSession {
    /// A title of the person's own, 1–200 characters; empty: the agent's again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Put away: left out of lists unless asked for. A session that runs is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
}

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// It is the session's title.
    Title,
    /// The person.
    User,
    /// The agent.
    Agent,
}

/// A message that a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionHit {
    /// Its session.
    pub session: SessionView,
    /// Its first event; attach with `afterSeq` one less to see it. 0 for a title.
    pub seq: u64,
    /// Who said it.
    pub role: MessageRole,
    /// What stands round the find; each found word between U+0002 and U+0003.
    pub snippet: String,
}

/// Money as an agent counts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// In units of the currency.
    pub amount: f64,
    /// Three letters.
    pub currency: String,
}

/// What some turns used, as their agents told it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct UsageSumView {
    /// A day (`YYYY-MM-DD`, UTC), a session's id, a folder, a name: as asked for.
    pub key: String,
    /// Turns that ended.
    pub turns: u64,
    /// Tokens sent to the model.
    pub input_tokens: u64,
    /// Tokens the model made.
    pub output_tokens: u64,
    /// Tokens read from or written to a cache.
    pub cached_tokens: u64,
    /// Absent where no agent told a cost. Different currencies are different sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// What sums are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SumBy {
    /// Each day.
    #[default]
    Day,
    /// Each session.
    Session,
    /// Each project folder.
    Scope,
    /// Each agent program.
    Harness,
    /// Each account; an empty key: sessions on providers.
    Account,
    /// Each provider; an empty key: sessions on accounts.
    Provider,
    /// Each model.
    Model,
    /// Each agent; an empty key: sessions without one.
    Agent,
}
