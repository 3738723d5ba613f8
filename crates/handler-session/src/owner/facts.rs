//! What the API and viewers see of the state.

use super::Owner;
use crate::acp::build;
use crate::live::{Phase, StartFailure};
use handler_types::session::SessionState;
use serde_json::{Value, json};

/// The session as seen from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionFacts {
    /// Its state.
    pub state: SessionState,
    /// A turn is under way.
    pub busy: bool,
    /// When it started, milliseconds since the epoch.
    pub turn_started_ms: Option<i64>,
    /// Questions that wait for an answer.
    pub pending_permissions: u32,
    /// Viewers attached.
    pub attached: u32,
    /// From the agent, else from the first prompt; secrets taken out.
    pub title: Option<String>,
    /// The title is the agent's own.
    pub is_title_given: bool,
    /// The conversation's id for clients.
    pub acp_session_id: Option<String>,
    /// How the last turn ended.
    pub last_stop_reason: Option<String>,
    /// The agent can load the conversation again.
    pub can_resume: bool,
    /// There was a turn.
    pub had_turn: bool,
    /// Number of the last event; follows with up to a tenth of a second's delay.
    pub last_seq: u64,
    /// What went wrong; secrets taken out. Also set while it runs, when the session should be stopped.
    pub error: Option<String>,
    /// Context use and cost as the agent reported them last: `used`, `size`, `cost`.
    pub usage: Option<Value>,
    /// Since when nobody is attached, no turn is under way and nothing waits, milliseconds since the epoch.
    pub idle_since_ms: Option<i64>,
    /// Why it never became ready.
    pub failure: Option<StartFailure>,
    /// Messages that were not passed on.
    pub dropped_messages: u64,
    /// Extension messages seen.
    pub extension_messages: u64,
}

impl Default for SessionFacts {
    fn default() -> Self {
        Self {
            state: SessionState::Starting,
            busy: false,
            turn_started_ms: None,
            pending_permissions: 0,
            attached: 0,
            title: None,
            is_title_given: false,
            acp_session_id: None,
            last_stop_reason: None,
            can_resume: false,
            had_turn: false,
            last_seq: 0,
            error: None,
            usage: None,
            idle_since_ms: None,
            failure: None,
            dropped_messages: 0,
            extension_messages: 0,
        }
    }
}

impl Owner {
    fn facts_now(&mut self) -> SessionFacts {
        let is_ready = self.state.phase == Phase::Ready && !self.is_catching_up;
        let attached = self.roster.count();
        let is_idle =
            is_ready && attached == 0 && !self.state.is_busy() && self.state.pending.is_empty();
        self.idle_since = match (is_idle, self.idle_since) {
            (true, Some(since)) => Some(since),
            (true, None) => Some(handler_base::clock::now_ms()),
            (false, _) => None,
        };
        let clean = |text: &String| self.disk.redactor().redact(text).into_owned();
        let failure = self.state.failure.as_ref().map(|failure| StartFailure {
            kind: failure.kind,
            message: clean(&failure.message),
        });
        SessionFacts {
            state: session_state(
                self.state.phase,
                is_ready,
                self.state.client_session.is_some(),
            ),
            busy: self.state.is_busy(),
            turn_started_ms: self.state.turn.as_ref().map(|turn| turn.started_ms),
            pending_permissions: count(self.state.questions().count()),
            attached: count(attached),
            title: self.state.title.as_ref().map(clean),
            is_title_given: self.state.is_title_given,
            acp_session_id: self.state.client_session.clone(),
            last_stop_reason: self.state.last_stop_reason.clone(),
            can_resume: self.state.can_load(),
            had_turn: self.state.had_turn,
            last_seq: self.disk.seq(),
            error: self
                .state
                .error
                .as_ref()
                .or(self.broken.as_ref())
                .map(clean),
            usage: self.state.usage.clone(),
            idle_since_ms: self.idle_since,
            failure,
            dropped_messages: self.state.dropped,
            extension_messages: self.state.extensions,
        }
    }

    /// Tells everybody what changed.
    pub(super) fn publish(&mut self) {
        let facts = self.facts_now();
        let frame = session_state_frame(&facts);
        self.facts.send_if_modified(|old| {
            let is_changed = *old != facts;
            *old = facts;
            is_changed
        });
        if frame != self.last_state_frame {
            self.last_state_frame.clone_from(&frame);
            self.roster.show(&frame.into(), None);
        }
    }
}

/// `_handler/session_state` for viewers.
pub(super) fn session_state_frame(facts: &SessionFacts) -> Vec<u8> {
    let turn_started_at = facts.turn_started_ms.map(handler_base::clock::rfc3339);
    let mut params = json!({
        "state": facts.state,
        "busy": facts.busy,
        "pendingPermissions": facts.pending_permissions,
        "attached": facts.attached,
    });
    if let Some(at) = turn_started_at {
        params["turnStartedAt"] = json!(at);
    }
    if let Some(reason) = &facts.last_stop_reason {
        params["lastStopReason"] = json!(reason);
    }
    build::notification("_handler/session_state", Some(&params))
}

fn session_state(phase: Phase, is_ready: bool, has_session: bool) -> SessionState {
    match phase {
        Phase::Ready if is_ready => SessionState::Running,
        Phase::Starting | Phase::Ready => SessionState::Starting,
        Phase::Ended if has_session => SessionState::Stopped,
        Phase::Ended => SessionState::Failed,
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
