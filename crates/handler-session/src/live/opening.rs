//! Setting the agent up: `initialize`, `session/new` or `session/load`, then the defaults (P7).

use super::state::{Expect, LiveState, Phase};
use super::{Effect, record};
use crate::policy::capabilities::{ClientInfo, initialize_params};
use crate::policy::{DefaultStep, defaults};
use handler_types::harness::SessionDefaults;
use handler_types::session::StopHow;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Largest `initialize` or `session/new` result accepted, bytes: it is part of every snapshot.
const MAX_RESULT: usize = 4 * 1024 * 1024;
/// Longest session id accepted from an agent, bytes.
const MAX_SESSION_ID: usize = 512;

/// Which conversation the agent opens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum OpenKind {
    /// A new one.
    #[default]
    New,
    /// An earlier one.
    Load {
        /// Its id for clients.
        client_session: String,
        /// Its id for the agent.
        agent_session: String,
        /// It had a turn; without one the agent may have kept nothing, so a new one stands in for it.
        had_turn: bool,
        /// The log has no updates: the history the agent repeats becomes the log.
        is_history_wanted: bool,
    },
}

/// How a session is opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// Which conversation.
    pub kind: OpenKind,
    /// The folder.
    pub scope: String,
    /// What is set afterwards.
    pub defaults: SessionDefaults,
    /// Put before the conversation's first prompt (P9).
    #[serde(default)]
    pub instructions: Option<String>,
    /// Who the daemon says it is.
    pub client_info: ClientInfo,
    /// Defaults not yet set, last first.
    #[serde(default)]
    pub steps: Vec<DefaultStep>,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            kind: OpenKind::New,
            scope: String::new(),
            defaults: SessionDefaults::default(),
            instructions: None,
            client_info: ClientInfo {
                name: "handler".to_owned(),
                title: "Handler".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            steps: Vec::new(),
        }
    }
}

/// What kind of failure a start was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartFailureKind {
    /// The agent answered with an error, or with something unusable.
    Agent,
    /// The agent does not advertise `loadSession`.
    CannotResume,
    /// The session's defaults could not be applied (P7, -32004).
    Policy,
    /// It took too long.
    Timeout,
    /// The agent ended, or was stopped.
    Ended,
}

/// Why a session never became ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailure {
    /// What kind.
    pub kind: StartFailureKind,
    /// For people.
    pub message: String,
}

impl LiveState {
    pub(super) fn open(&mut self, opening: Opening, out: &mut Vec<Effect>) {
        self.phase = Phase::Starting;
        self.next_id = self.next_id.max(1);
        if let OpenKind::Load { client_session, .. } = &opening.kind {
            self.client_session = Some(client_session.clone());
        }
        let params = initialize_params(&opening.client_info);
        self.opening = opening;
        self.request("initialize", Some(&params), Expect::Initialize, None, out);
    }

    pub(super) fn on_initialized(&mut self, answer: Result<Value, Value>, out: &mut Vec<Effect>) {
        let result = match answer {
            Ok(result) => result,
            Err(error) => return self.refused("initialize", &error, out),
        };
        if result["protocolVersion"] != json!(1) {
            let message = format!(
                "the agent speaks protocol version {}, not 1",
                shown(&result["protocolVersion"])
            );
            return self.fail(StartFailureKind::Agent, message, out);
        }
        if result.to_string().len() > MAX_RESULT {
            let message = "the agent's answer to initialize is too big".to_owned();
            return self.fail(StartFailureKind::Agent, message, out);
        }
        self.init = result;
        let scope = self.opening.scope.clone();
        // P8: every session gets the servers of its agent.
        let servers = &self.opening.defaults.mcp_servers;
        let mut params = json!({"cwd": scope, "mcpServers": servers});
        let method = match &self.opening.kind {
            OpenKind::Load {
                agent_session,
                had_turn: true,
                is_history_wanted,
                ..
            } => {
                if !self.can_load() {
                    let message = "this agent cannot resume sessions".to_owned();
                    return self.fail(StartFailureKind::CannotResume, message, out);
                }
                params["sessionId"] = json!(agent_session);
                self.agent_session = Some(agent_session.clone());
                self.is_replaying = !is_history_wanted;
                "session/load"
            }
            OpenKind::New | OpenKind::Load { .. } => "session/new",
        };
        self.request(method, Some(&params), Expect::Open, None, out);
    }

    pub(super) fn on_opened(
        &mut self,
        answer: Result<Value, Value>,
        offset: u64,
        out: &mut Vec<Effect>,
    ) {
        let is_load = self.agent_session.is_some();
        let method = if is_load {
            "session/load"
        } else {
            "session/new"
        };
        let mut result = match answer {
            Ok(result) if result.is_object() => result,
            Ok(_) => json!({}),
            Err(error) => return self.refused(method, &error, out),
        };
        self.is_replaying = false;
        if !is_load {
            let Some(id) = result["sessionId"]
                .as_str()
                .filter(|id| !id.is_empty() && id.len() <= MAX_SESSION_ID)
            else {
                let message = "the agent's answer to session/new names no session".to_owned();
                return self.fail(StartFailureKind::Agent, message, out);
            };
            self.agent_session = Some(id.to_owned());
            self.client_session.get_or_insert_with(|| id.to_owned());
        }
        if let Some(map) = result.as_object_mut() {
            map.shift_remove("sessionId");
        }
        if result.to_string().len() > MAX_RESULT {
            let message = format!("the agent's answer to {method} is too big");
            return self.fail(StartFailureKind::Agent, message, out);
        }
        self.opened = result;
        for early in std::mem::take(&mut self.early) {
            self.take_update(early.params, early.offset, out);
        }
        match defaults::plan(&self.opening.defaults, &self.opened) {
            Err(refusal) => self.fail(StartFailureKind::Policy, refusal.message, out),
            Ok(mut steps) => {
                steps.reverse();
                self.opening.steps = steps;
                self.next_default(offset, out);
            }
        }
    }

    fn next_default(&mut self, offset: u64, out: &mut Vec<Effect>) {
        let Some(step) = self.opening.steps.pop() else {
            self.phase = Phase::Ready;
            out.push(Effect::Record(record::started(Some(offset))));
            out.push(Effect::Ready);
            out.push(Effect::Changed);
            return;
        };
        let session = self.agent_session.clone().unwrap_or_default();
        let (method, params) = defaults::request(&step, &session);
        self.request(method, Some(&params), Expect::Default(step), None, out);
    }

    pub(super) fn on_default(
        &mut self,
        step: &DefaultStep,
        answer: Result<Value, Value>,
        offset: u64,
        out: &mut Vec<Effect>,
    ) {
        let applied = match answer {
            Ok(result) => {
                defaults::apply(step, &result, &mut self.opened).map_err(|refusal| refusal.message)
            }
            Err(error) => Err(format!(
                "the agent refused {}: {}",
                defaults::request(step, "").0,
                error_text(&error)
            )),
        };
        match applied {
            Ok(()) => self.next_default(offset, out),
            Err(message) => self.fail(StartFailureKind::Policy, message, out),
        }
    }

    fn refused(&mut self, method: &str, error: &Value, out: &mut Vec<Effect>) {
        let message = format!("the agent refused {method}: {}", error_text(error));
        self.fail(StartFailureKind::Agent, message, out);
    }

    pub(super) fn start_timed_out(&mut self, message: String, out: &mut Vec<Effect>) {
        if self.phase == Phase::Starting {
            self.fail(StartFailureKind::Timeout, message, out);
        }
    }

    fn fail(&mut self, kind: StartFailureKind, message: String, out: &mut Vec<Effect>) {
        self.failure = Some(StartFailure {
            kind,
            message: message.clone(),
        });
        self.end(StopHow::Error, &message, true, out);
    }
}

/// The message of a JSON-RPC error, shortened.
pub(super) fn error_text(error: &Value) -> String {
    let text = match (error["message"].as_str(), &error["data"]) {
        (Some(message), Value::Null) => message.to_owned(),
        (Some(message), data) => format!("{message} ({})", shown(data)),
        (None, _) => shown(error),
    };
    text.chars().take(2000).collect()
}

fn shown(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned);
    text.chars().take(500).collect()
}
