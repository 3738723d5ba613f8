//! What the session knows. Serialized whole to `live.json`, so that the next daemon goes on from it.

use super::opening::{Opening, StartFailure};
use super::{Asker, Pending};
use crate::acp::RawObject;
use crate::acp::build;
use crate::policy::DefaultStep;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Requests to the agent that may be unanswered at once.
pub(crate) const MAX_OUTSTANDING: usize = 256;

/// How far the session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// The agent is being set up.
    Starting,
    /// It can be used.
    Ready,
    /// It stopped, or was never started.
    #[default]
    Ended,
}

/// A turn under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// The daemon's id of the `session/prompt`.
    pub request: u64,
    /// When it started, milliseconds since the epoch.
    pub started_ms: i64,
    /// The beginning of the prompt's text, to know its echo.
    pub prompt: String,
    /// The text was longer than what is kept.
    pub is_cut: bool,
    /// It was cancelled.
    pub is_cancelled: bool,
    /// It was cancelled because it took too long.
    pub is_timed_out: bool,
}

/// What an answer of the agent is for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Expect {
    /// `initialize`.
    Initialize,
    /// `session/new` or `session/load`.
    Open,
    /// A step of the session's defaults.
    Default(DefaultStep),
    /// `session/prompt`.
    Prompt,
    /// `session/set_mode`.
    Mode(String),
    /// `session/set_config_option`.
    Option,
    /// `session/set_model`.
    Model(String),
    /// Anything else.
    Other,
}

/// A request to the agent that is unanswered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outstanding {
    /// What it was.
    pub expect: Expect,
    /// Who waits; nobody after a restart of the daemon.
    #[serde(skip)]
    pub asker: Option<Asker>,
}

/// A line that came before the session had its id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EarlyUpdate {
    /// Its parameters.
    pub params: RawObject,
    /// Offset after it.
    pub offset: u64,
}

/// The state of a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LiveState {
    /// How far it is.
    pub phase: Phase,
    /// How it was opened.
    pub opening: Opening,
    /// Next id of a request to the agent.
    pub next_id: u64,
    /// The conversation's id for clients.
    pub client_session: Option<String>,
    /// The conversation's id for the agent.
    pub agent_session: Option<String>,
    /// The `initialize` result.
    pub init: Value,
    /// The `session/new` or `session/load` result without its id, kept current.
    pub opened: Value,
    /// The agent repeats a history that the log already has.
    pub is_replaying: bool,
    /// Updates that came before the session had its id.
    pub early: Vec<EarlyUpdate>,
    /// The turn under way.
    pub turn: Option<Turn>,
    /// There was a turn.
    pub had_turn: bool,
    /// Requests of the agent that wait.
    pub pending: Vec<Pending>,
    /// Requests to the agent that wait.
    pub outstanding: BTreeMap<u64, Outstanding>,
    /// Titles of the turn's tool calls.
    pub tool_titles: BTreeMap<String, String>,
    /// From the agent, else from the first prompt.
    pub title: Option<String>,
    /// The title is the agent's.
    pub is_title_given: bool,
    /// The last `usage_update`.
    pub usage: Option<Value>,
    /// How the last turn ended.
    pub last_stop_reason: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// Why it never became ready.
    pub failure: Option<StartFailure>,
    /// Messages that were not passed on.
    pub dropped: u64,
    /// Extension messages seen.
    pub extensions: u64,
}

impl LiveState {
    /// A turn is under way.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether the agent can load an earlier conversation.
    #[must_use]
    pub(crate) fn can_load(&self) -> bool {
        self.init["agentCapabilities"]["loadSession"] == Value::Bool(true)
    }

    /// The conversation's id for clients, or an empty text before there is one.
    #[must_use]
    pub(crate) fn session(&self) -> &str {
        self.client_session.as_deref().unwrap_or_default()
    }

    /// Sends a request and notes what its answer is for.
    pub(super) fn request<P: Serialize + ?Sized>(
        &mut self,
        method: &str,
        params: Option<&P>,
        expect: Expect,
        asker: Option<Asker>,
        out: &mut Vec<super::Effect>,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.outstanding.insert(id, Outstanding { expect, asker });
        out.push(send(build::request(id, method, params)));
        id
    }

    /// Names the conversation the agent's way in a client's parameters.
    pub(super) fn towards_agent(&self, params: &mut RawObject) {
        if params.get("sessionId").is_some()
            && let Some(session) = &self.agent_session
        {
            params.put("sessionId", session);
        }
    }

    /// Names the conversation the clients' way in the agent's parameters.
    pub(super) fn towards_clients(&self, params: &mut RawObject) {
        if let (Some(agent), Some(client)) = (&self.agent_session, &self.client_session)
            && agent != client
            && params.read::<String>("sessionId").as_ref() == Some(agent)
        {
            params.put("sessionId", client);
        }
    }

    pub(super) fn drop_message(&mut self, why: impl Into<String>, out: &mut Vec<super::Effect>) {
        self.dropped += 1;
        out.push(super::Effect::Dropped(why.into()));
    }
}

/// A line for the agent. A client may spread a message over several lines; line ends can only stand
/// between tokens, so a space does as well.
pub(super) fn send(mut message: Vec<u8>) -> super::Effect {
    for byte in &mut message {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    message.push(b'\n');
    super::Effect::Send(message)
}

/// What the log tells of a time that the state does not know.
impl LiveState {
    /// A turn began.
    pub(crate) fn note_turn_open(&mut self) {
        self.had_turn = true;
        self.turn.get_or_insert_with(|| Turn {
            request: 0,
            started_ms: 0,
            prompt: String::new(),
            is_cut: true,
            is_cancelled: false,
            is_timed_out: false,
        });
    }

    /// A turn ended.
    pub(crate) fn note_turn_over(&mut self, reason: Option<&str>) {
        if let Some(turn) = self.turn.take() {
            self.outstanding.remove(&turn.request);
        }
        self.last_stop_reason = reason.map(ToOwned::to_owned);
    }

    /// A question was settled.
    pub(crate) fn note_settled_question(&mut self, id: &Value) {
        let id = id.as_str().unwrap_or_default();
        self.pending.retain(|pending| !pending.id.is_text(id));
    }

    /// The session stopped.
    pub(crate) fn note_ended(&mut self) {
        self.phase = Phase::Ended;
        self.turn = None;
        self.pending.clear();
        self.outstanding.clear();
    }
}
