//! What is kept of a session besides its log: settings, and the last facts its owner told.

use super::choose::Choice;
use crate::app::agents::Use;
use crate::http::problem::{ApiError, ApiResult};
use handler_base::clock::rfc3339;
use handler_session::SessionFacts;
use handler_store::Redactor;
use handler_store::rows::SessionRow;
use handler_types::ProblemCode;
use handler_types::agent::Through;
use handler_types::harness::PermissionMode;
use handler_types::network::NetworkPolicy;
use handler_types::session::{CreateSession, SessionState, SessionView};
use handler_types::{ProjectId, SandboxId};
use serde::{Deserialize, Serialize};

/// The document of a session's row.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionDoc {
    /// The account its model calls go through; none: the row's provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<String>,
    /// Empty: the program's own choice (on an account only).
    pub(super) model: String,
    /// The project of its agent.
    #[serde(default)]
    pub(super) project: Option<ProjectId>,
    /// What stands before its first prompt.
    #[serde(default)]
    pub(super) instructions: Option<String>,
    pub(super) permissions: PermissionMode,
    pub(super) network: NetworkPolicy,
    /// The backend whose harness image it runs in; none: native, from the installed prefix.
    #[serde(default)]
    pub(super) backend: Option<String>,
    /// Knowledge folders of a session without an agent.
    #[serde(default)]
    pub(super) knowledge: Vec<String>,
    pub(super) turn_timeout_secs: u64,
    #[serde(default)]
    pub(super) idle_timeout_secs: Option<u64>,
    #[serde(default)]
    pub(super) sandbox: Option<SandboxId>,
    /// Stands for a title until there is one: the beginning of the first prompt.
    #[serde(default)]
    pub(super) first_line: Option<String>,
    #[serde(default)]
    pub(super) title: Option<String>,
    /// The person's, which goes before the agent's.
    #[serde(default)]
    pub(super) own_title: Option<String>,
    /// Put away by the person.
    #[serde(default)]
    pub(super) archived: bool,
    /// Context use and cost as the agent told them last.
    #[serde(default)]
    pub(super) usage: Option<serde_json::Value>,
    #[serde(default)]
    pub(super) acp_session_id: Option<String>,
    #[serde(default)]
    pub(super) can_resume: bool,
    #[serde(default)]
    pub(super) had_turn: bool,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) harness_version: Option<String>,
    #[serde(default)]
    pub(super) last_stop_reason: Option<String>,
    #[serde(default)]
    pub(super) last_seq: u64,
}

impl SessionDoc {
    pub(super) fn new(request: &CreateSession, choice: &Choice, agent: Option<&Use>) -> Self {
        Self {
            account: choice.account.clone(),
            model: choice.model.clone(),
            project: agent.and_then(|agent| agent.project.clone()),
            instructions: agent.and_then(|agent| agent.instructions.clone()),
            permissions: choice.permissions,
            network: request.network.clone().unwrap_or_default(),
            backend: choice.backend.clone(),
            knowledge: request.knowledge.clone(),
            turn_timeout_secs: request
                .turn_timeout_secs
                .unwrap_or(3600)
                .clamp(1, 7 * 24 * 3600),
            idle_timeout_secs: request.idle_timeout_secs,
            sandbox: None,
            first_line: request.prompt.as_deref().map(first_line),
            title: None,
            own_title: request.title.clone(),
            archived: false,
            usage: None,
            acp_session_id: None,
            can_resume: false,
            had_turn: false,
            error: None,
            harness_version: match &choice.backend {
                None => handler_harness::version_line(choice.descriptor),
                Some(_) => choice.version.clone(),
            },
            last_stop_reason: None,
            last_seq: 0,
        }
    }

    /// Takes out what must not be written down.
    pub(super) fn redact(&mut self, redactor: &Redactor) {
        for text in [&mut self.title, &mut self.own_title, &mut self.first_line]
            .into_iter()
            .flatten()
        {
            *text = redactor.redact(text).into_owned();
        }
    }

    pub(super) fn read(row: &SessionRow) -> ApiResult<Self> {
        serde_json::from_value(row.document.clone()).map_err(|e| {
            ApiError::new(
                ProblemCode::Internal,
                format!("session {} cannot be read: {e}", row.id),
            )
        })
    }

    /// What its model calls go through.
    pub(super) fn through<'a>(&'a self, row: &'a SessionRow) -> Through<'a> {
        match &self.account {
            Some(account) => Through::Account(account),
            None => Through::Provider(&row.provider),
        }
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Takes over what the owner says; whether anything changed that is worth keeping.
    pub(super) fn take(&mut self, facts: &SessionFacts) -> bool {
        let before = self.to_json();
        if facts.title.is_some() && (facts.is_title_given || self.title.is_none()) {
            self.title.clone_from(&facts.title);
        }
        if facts.acp_session_id.is_some() {
            self.acp_session_id.clone_from(&facts.acp_session_id);
        }
        if facts.usage.is_some() {
            self.usage.clone_from(&facts.usage);
        }
        self.can_resume |= facts.can_resume;
        self.had_turn |= facts.had_turn;
        self.last_stop_reason.clone_from(&facts.last_stop_reason);
        self.last_seq = self.last_seq.max(facts.last_seq);
        self.error = facts
            .failure
            .as_ref()
            .map(|f| f.message.clone())
            .or(facts.error.clone());
        before != self.to_json()
    }
}

/// A session as shown.
pub(super) fn view(row: &SessionRow, facts: Option<&SessionFacts>) -> ApiResult<SessionView> {
    let mut doc = SessionDoc::read(row)?;
    let mut state = row.state;
    if let Some(facts) = facts {
        doc.take(facts);
        state = facts.state;
    }
    let is_live = matches!(state, SessionState::Starting | SessionState::Running);
    Ok(SessionView {
        id: row.id.clone(),
        agent_id: row.agent.clone(),
        project_id: doc.project,
        harness: row.harness.clone(),
        provider: Some(row.provider.clone()).filter(|_| doc.account.is_none()),
        account: doc.account,
        model: doc.model,
        scope: row.scope.clone(),
        permissions: doc.permissions,
        network: doc.network,
        backend: doc.backend.unwrap_or_else(|| "native".to_owned()),
        sandbox_id: doc.sandbox.filter(|_| is_live),
        acp_session_id: doc.acp_session_id,
        title: doc.own_title.or(doc.title).or(doc.first_line),
        archived: doc.archived,
        usage: doc.usage,
        state,
        busy: facts.is_some_and(|f| f.busy),
        pending_permissions: facts.map_or(0, |f| f.pending_permissions),
        attached: facts.map_or(0, |f| f.attached),
        can_resume: doc.can_resume,
        error: doc.error,
        harness_version: doc.harness_version,
        last_stop_reason: doc.last_stop_reason,
        last_seq: doc.last_seq,
        created_at: rfc3339(row.created_ms),
        last_activity_at: rfc3339(row.updated_ms),
    })
}

/// The first line of a prompt, shortened.
fn first_line(prompt: &str) -> String {
    prompt
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(80)
        .collect()
}
