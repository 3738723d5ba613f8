//! What goes where: the policy's verdicts carried out on one connection.
//!
//! Invariants: a conversation is used only after its defaults are set (P7); the client gets each answer once, and
//! only to what it asked; the agent likewise; what is passed on is written anew from what was inspected.

use super::setting::Setting;
use crate::acp::{Envelope, EnvelopeError, Kind, RawId, RawObject, build, codes};
use crate::policy::plain::{PlainContext, PlainVerdict, decide};
use crate::policy::{AgentVerdict, Refusal, capabilities, from_agent, instructions};
use handler_types::harness::SessionDefaults;
use handler_types::network::NetworkPolicy;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Requests of either side that may wait for an answer at once.
const MOST_WAITING: usize = 1000;
/// Conversations open at once.
const MOST_SESSIONS: usize = 1000;
/// Longest name of a conversation, bytes.
const MAX_SESSION_ID: usize = 512;
/// Ids of the relay's own requests begin like this.
const OWN: &str = "handler-set-";

/// What a connection is set up with.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    /// The agent's folder (P2).
    pub scope: String,
    /// Set in every conversation (P7); its MCP servers are added to each (P8).
    pub defaults: SessionDefaults,
    /// Put before the first prompt of each new conversation (P9).
    pub instructions: Option<String>,
}

/// A message on its way, as JSON text without a line's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passed {
    /// To the client.
    Client(Vec<u8>),
    /// To the agent.
    Agent(Vec<u8>),
}

/// What a client waits for.
#[derive(Debug)]
enum Asked {
    Initialize,
    Open {
        /// The conversation it names; none: the answer does.
        session: Option<String>,
        is_new: bool,
    },
    Other,
}

/// One connection.
#[derive(Debug)]
pub struct Relay {
    config: RelayConfig,
    /// What the client asked the agent.
    asked: HashMap<RawId, Asked>,
    /// What the agent asked the client.
    asking: HashSet<RawId>,
    /// Conversations being set up, by the id of the relay's own request.
    settings: HashMap<RawId, Setting>,
    next: u64,
    /// Conversations that were handed out.
    open: HashSet<String>,
    /// Those of them whose first prompt is still to come.
    fresh: HashSet<String>,
}

impl Relay {
    /// A connection on which nothing was said yet.
    #[must_use]
    pub fn new(config: RelayConfig) -> Self {
        Self {
            config,
            asked: HashMap::new(),
            asking: HashSet::new(),
            settings: HashMap::new(),
            next: 0,
            open: HashSet::new(),
            fresh: HashSet::new(),
        }
    }

    /// Takes one message of the client; `network` is what the sandbox may reach now (P3).
    pub fn client(&mut self, frame: &[u8], network: &NetworkPolicy) -> Option<Passed> {
        let message = match Envelope::parse(frame) {
            Ok(message) => message,
            Err(error) => return Some(not_a_message(&error)),
        };
        let context = PlainContext {
            scope: &self.config.scope,
            network,
            servers: &self.config.defaults.mcp_servers,
        };
        let verdict = decide(&message, &context);
        match message.kind.clone() {
            Kind::Response { id, .. } => self.asking.remove(&id).then(|| agent(&message.object)),
            Kind::Notification { method } => self.notified(&message, &method, &verdict),
            Kind::Request { id, method } => {
                let done = self.requested(&id, &method, message, verdict);
                Some(done.unwrap_or_else(|refusal| refused(&id, &refusal)))
            }
        }
    }

    fn notified(&self, message: &Envelope, method: &str, verdict: &PlainVerdict) -> Option<Passed> {
        match verdict {
            PlainVerdict::Forward { session } if self.may_use(session.as_deref()) => {
                // P6: an extension passes, and it can be seen that it did.
                tracing::debug!(method, "a client's notification is passed on");
                Some(agent(&message.object))
            }
            other => {
                tracing::debug!(method, ?other, "a client's notification was dropped");
                None
            }
        }
    }

    fn requested(
        &mut self,
        id: &RawId,
        method: &str,
        mut message: Envelope,
        verdict: PlainVerdict,
    ) -> Result<Passed, Refusal> {
        self.check_id(id)?;
        let asked = match verdict {
            PlainVerdict::Refuse(refusal) => return Err(refusal),
            PlainVerdict::Initialize(params) => {
                message.object.put("params", &params);
                Asked::Initialize
            }
            PlainVerdict::Open(params) => {
                message.object.put("params", &params);
                self.opening(method, &params)?
            }
            PlainVerdict::Prompt(session) => {
                self.check_open(Some(&session))?;
                if self.fresh.remove(&session) {
                    self.instruct(&mut message)?;
                }
                Asked::Other
            }
            PlainVerdict::Forward { session } => {
                self.check_open(session.as_deref())?;
                if let (true, Some(session)) = (method == "session/close", &session) {
                    self.forget(session);
                }
                Asked::Other
            }
            PlainVerdict::Kept => {
                if let Some(session) = message.params().read::<String>("sessionId") {
                    self.forget(&session);
                }
                Asked::Other
            }
            PlainVerdict::Answer | PlainVerdict::Drop(_) => {
                return Err(Refusal::new(codes::INVALID_REQUEST, "not a request"));
            }
        };
        if method.starts_with('_') {
            tracing::debug!(method, "a client's extension is passed on");
        }
        self.asked.insert(id.clone(), asked);
        Ok(agent(&message.object))
    }

    fn check_id(&self, id: &RawId) -> Result<(), Refusal> {
        let refuse = |message: &str| Err(Refusal::new(codes::INVALID_REQUEST, message));
        if id.display().starts_with(OWN) {
            return refuse("ids that begin with `handler-set-` are the endpoint's own");
        }
        let is_held = self.settings.values().any(|setting| setting.client == *id);
        if is_held || self.asked.contains_key(id) {
            return refuse("a request with this id waits for its answer");
        }
        if self.asked.len() + self.settings.len() >= MOST_WAITING {
            return Err(Refusal::new(
                codes::INTERNAL,
                "too many requests wait for an answer",
            ));
        }
        Ok(())
    }

    /// What an opening request will be answered as; a conversation that is opened again is not used meanwhile.
    fn opening(&mut self, method: &str, params: &RawObject) -> Result<Asked, Refusal> {
        if self.open.len() >= MOST_SESSIONS {
            return Err(Refusal::new(codes::INTERNAL, "too many open conversations"));
        }
        let session = match method {
            "session/load" | "session/resume" => {
                let named: Option<String> = params.read("sessionId");
                let named = named
                    .filter(|id| is_name(id))
                    .ok_or_else(|| Refusal::new(codes::INVALID_PARAMS, "sessionId is missing"))?;
                self.forget(&named);
                Some(named)
            }
            _ => None,
        };
        Ok(Asked::Open {
            session,
            is_new: method == "session/new",
        })
    }

    /// P9, for a first prompt.
    fn instruct(&self, message: &mut Envelope) -> Result<(), Refusal> {
        let Some(text) = &self.config.instructions else {
            return Ok(());
        };
        let mut params = message.params();
        let blocks: Vec<Value> = params.read("prompt").ok_or_else(|| {
            Refusal::new(
                codes::INVALID_PARAMS,
                "prompt must be a list of content blocks",
            )
        })?;
        params.put("prompt", &instructions::before(text, blocks));
        message.object.put("params", &params);
        Ok(())
    }

    fn may_use(&self, session: Option<&str>) -> bool {
        session.is_none_or(|session| self.open.contains(session))
    }

    fn check_open(&self, session: Option<&str>) -> Result<(), Refusal> {
        if self.may_use(session) {
            return Ok(());
        }
        Err(Refusal::new(
            codes::INVALID_PARAMS,
            "this conversation is not open on this connection: session/new or session/load first",
        ))
    }

    fn forget(&mut self, session: &str) {
        self.open.remove(session);
        self.fresh.remove(session);
    }

    /// Takes one line of the agent.
    pub fn agent(&mut self, line: &[u8]) -> Option<Passed> {
        let message = match Envelope::parse(line) {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!(%error, "a line of the agent is no message");
                return None;
            }
        };
        match (from_agent::decide(&message), message.kind.clone()) {
            (AgentVerdict::Answer, Kind::Response { id, is_error }) => {
                self.answered(&id, is_error, message.object)
            }
            (AgentVerdict::Refuse(refusal), Kind::Request { id, .. }) => {
                Some(to_agent(refused(&id, &refusal)))
            }
            (AgentVerdict::Drop(why), _) => {
                tracing::debug!(why, "a message of the agent was dropped");
                None
            }
            (_, Kind::Request { id, .. }) if self.asking.len() >= MOST_WAITING => {
                let refusal = Refusal::new(codes::INTERNAL, "too many requests wait for an answer");
                Some(to_agent(refused(&id, &refusal)))
            }
            (verdict, kind) => {
                if let Kind::Request { id, .. } = kind {
                    self.asking.insert(id);
                }
                if verdict == AgentVerdict::Extension {
                    tracing::debug!("an extension of the agent is passed on");
                }
                Some(client(&message.object))
            }
        }
    }

    fn answered(&mut self, id: &RawId, is_error: bool, answer: RawObject) -> Option<Passed> {
        if let Some(setting) = self.settings.remove(id) {
            return Some(self.set(setting, is_error, &answer));
        }
        match self.asked.remove(id)? {
            Asked::Initialize if !is_error => Some(initialized(id, answer)),
            Asked::Open { session, is_new } if !is_error => {
                Some(self.opened(id, session, is_new, &answer))
            }
            _ => Some(client(&answer)),
        }
    }

    /// The agent has opened a conversation: its defaults come first.
    fn opened(
        &mut self,
        id: &RawId,
        session: Option<String>,
        is_new: bool,
        answer: &RawObject,
    ) -> Passed {
        let result = answer.object("result").unwrap_or_default();
        let session = session.or_else(|| result.read("sessionId"));
        let Some(session) = session.filter(|id| is_name(id)) else {
            let refusal = Refusal::new(codes::INTERNAL, "the agent's answer names no conversation");
            return refused(id, &refusal);
        };
        match Setting::begin(&self.config.defaults, id.clone(), session, is_new, result) {
            Ok(setting) => self.go_on(setting),
            Err(refusal) => refused(id, &refusal),
        }
    }

    fn set(&mut self, mut setting: Setting, is_error: bool, answer: &RawObject) -> Passed {
        let said = if is_error {
            Err(error_text(answer))
        } else {
            Ok(answer.read("result").unwrap_or_default())
        };
        match setting.set(said) {
            Ok(()) => self.go_on(setting),
            Err(refusal) => refused(&setting.client, &refusal),
        }
    }

    fn go_on(&mut self, setting: Setting) -> Passed {
        if let Some((method, params)) = setting.next() {
            let id = RawId::of_text(&format!("{OWN}{}", self.next));
            self.next += 1;
            let request = build::request_as(&id, method, &params);
            self.settings.insert(id, setting);
            return Passed::Agent(request);
        }
        self.open.insert(setting.session.clone());
        if setting.is_new {
            self.fresh.insert(setting.session.clone());
        }
        let client = setting.client.clone();
        Passed::Client(build::result(&client, &setting.result()))
    }
}

fn is_name(session: &str) -> bool {
    !session.is_empty() && session.len() <= MAX_SESSION_ID
}

fn client(object: &RawObject) -> Passed {
    Passed::Client(object.to_bytes())
}

fn agent(object: &RawObject) -> Passed {
    Passed::Agent(object.to_bytes())
}

fn refused(id: &RawId, refusal: &Refusal) -> Passed {
    let policy = refusal.policy.as_deref();
    Passed::Client(build::error(
        Some(id),
        refusal.code,
        &refusal.message,
        policy,
    ))
}

/// An answer that is the agent's to hear.
fn to_agent(passed: Passed) -> Passed {
    match passed {
        Passed::Client(bytes) | Passed::Agent(bytes) => Passed::Agent(bytes),
    }
}

fn not_a_message(error: &EnvelopeError) -> Passed {
    let code = match error {
        EnvelopeError::NotJson(_) => codes::PARSE_ERROR,
        EnvelopeError::NotAMessage(_) => codes::INVALID_REQUEST,
    };
    Passed::Client(build::error(None, code, &error.to_string(), None))
}

/// The agent's answer to `initialize`: what this endpoint refuses is not offered.
fn initialized(id: &RawId, mut answer: RawObject) -> Passed {
    let mut result = answer.object("result").unwrap_or_default();
    if result.read::<u64>("protocolVersion") != Some(1) {
        let refusal = Refusal::new(
            codes::INTERNAL,
            "the agent does not speak protocol version 1",
        );
        return refused(id, &refusal);
    }
    capabilities::for_plain(&mut result);
    answer.put("result", &result);
    client(&answer)
}

/// What an error says, bounded.
fn error_text(answer: &RawObject) -> String {
    let error = answer.object("error").unwrap_or_default();
    let text: Option<String> = error.read("message");
    let text = text.unwrap_or_else(|| "an error without a message".to_owned());
    text.chars().take(2000).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
