//! Lines of the agent: the verdict of the policy carried out.

use super::input::Answer;
use super::state::{EarlyUpdate, Expect, LiveState, Phase, send};
use super::{Asker, Effect, PendingKind, UpdateEffect};
use crate::acp::{Envelope, Kind, RawId, RawObject, build};
use crate::policy::from_agent::{AgentVerdict, decide};
use serde_json::{Value, json};

/// Updates kept that come before the session has its id.
const MAX_EARLY: usize = 256;
/// Their size together, bytes.
const MAX_EARLY_BYTES: usize = 1024 * 1024;
/// Longest cost report kept, bytes.
const MAX_COST: usize = 1000;
/// Longest id of a mode, model or tool call that is kept, bytes.
const MAX_ID: usize = 512;
/// Largest list of config options kept, bytes.
const MAX_OPTIONS: usize = 1024 * 1024;
/// Tool calls whose title is kept.
const MAX_TITLES: usize = 256;

impl LiveState {
    /// Takes one line; `offset` is the agent's output after it.
    pub(crate) fn on_line(&mut self, line: &[u8], offset: u64, out: &mut Vec<Effect>) {
        if line.iter().all(u8::is_ascii_whitespace) || self.phase == Phase::Ended {
            return;
        }
        let message = match Envelope::parse(line) {
            Ok(message) => message,
            Err(error) => return self.drop_message(error.to_string(), out),
        };
        let id = match &message.kind {
            Kind::Request { id, .. } => Some(id.clone()),
            _ => None,
        };
        match (decide(&message), id) {
            (AgentVerdict::Answer, _) => self.on_answer(&message, offset, out),
            (AgentVerdict::Update, _) => self.on_update(&message, offset, out),
            (AgentVerdict::Show, _) => self.show(&message, out),
            (AgentVerdict::Withdraw, _) => self.withdraw(&message, offset, out),
            (AgentVerdict::Permission, Some(id)) => {
                self.ask(&message, &id, PendingKind::Permission, offset, out);
            }
            (AgentVerdict::Elicitation, Some(id)) => {
                self.ask(&message, &id, PendingKind::Elicitation, offset, out);
            }
            (AgentVerdict::Extension, Some(id)) => {
                self.extensions += 1;
                self.ask(&message, &id, PendingKind::Extension, offset, out);
            }
            (AgentVerdict::Refuse(refusal), Some(id)) => {
                let policy = refusal.policy.as_deref();
                out.push(send(build::error(
                    Some(&id),
                    refusal.code,
                    &refusal.message,
                    policy,
                )));
            }
            (AgentVerdict::Drop(why), _) => self.drop_message(why, out),
            (_, None) => self.drop_message("a request without an id", out),
        }
    }

    fn show(&mut self, message: &Envelope, out: &mut Vec<Effect>) {
        self.extensions += 1;
        let mut object = message.object.clone();
        if object.get("params").is_some() {
            let mut params = message.params();
            self.towards_clients(&mut params);
            object.put("params", &params);
        }
        out.push(Effect::Show {
            frame: object.to_bytes(),
            except: None,
        });
    }

    fn on_update(&mut self, message: &Envelope, offset: u64, out: &mut Vec<Effect>) {
        let params = message.params();
        let session: Option<String> = params.read("sessionId");
        if self.agent_session.is_none() && self.phase == Phase::Starting {
            let size = |params: &RawObject| params.to_bytes().len();
            let kept: usize = self.early.iter().map(|early| size(&early.params)).sum();
            if self.early.len() >= MAX_EARLY || kept + size(&params) > MAX_EARLY_BYTES {
                return self.drop_message("too many updates before the session's id", out);
            }
            self.early.push(EarlyUpdate { params, offset });
            return;
        }
        if session.is_none() || session != self.agent_session {
            return self.drop_message("an update of another session", out);
        }
        self.take_update(params, offset, out);
    }

    pub(super) fn take_update(&mut self, params: RawObject, offset: u64, out: &mut Vec<Effect>) {
        if params.read::<String>("sessionId") != self.agent_session {
            return self.drop_message("an update of another session", out);
        }
        let Some(update) = params
            .read::<Value>("update")
            .filter(|u| u["sessionUpdate"].is_string())
        else {
            return self.drop_message("an update that cannot be read", out);
        };
        let is_changed = self.fold(&update);
        if self.is_replaying {
            return;
        }
        let is_user = update["sessionUpdate"] == "user_message_chunk";
        let is_logged = !(is_user && self.is_busy());
        // Everybody attached already has the daemon's own record of the prompt.
        if !is_logged && self.is_echo(&update) {
            return;
        }
        out.push(Effect::Update(UpdateEffect {
            update,
            params: Some(params),
            is_logged,
            offset: is_logged.then_some(offset),
            except: None,
        }));
        if is_changed {
            out.push(Effect::Changed);
        }
    }

    /// Takes in what an update says about the session itself; true when viewers of the state care.
    fn fold(&mut self, update: &Value) -> bool {
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "session_info_update" => {
                if let Some(title) = update["title"].as_str().filter(|t| !t.trim().is_empty()) {
                    self.title = Some(title.trim().chars().take(200).collect());
                    self.is_title_given = true;
                    return true;
                }
            }
            "usage_update" => {
                let cost = &update["cost"];
                let mut usage =
                    json!({"used": update["used"].as_u64(), "size": update["size"].as_u64()});
                if !cost.is_null() && cost.to_string().len() <= MAX_COST {
                    usage["cost"] = cost.clone();
                }
                self.usage = Some(usage);
            }
            "current_mode_update" => {
                if let Some(mode) = update["currentModeId"].as_str() {
                    crate::policy::defaults::set_mode(&mut self.opened, mode);
                }
            }
            "config_option_update" if update["configOptions"].is_array() => {
                self.keep_options(&update["configOptions"]);
            }
            "tool_call" | "tool_call_update" => {
                if let (Some(id), Some(title)) =
                    (update["toolCallId"].as_str(), update["title"].as_str())
                    && id.len() <= MAX_ID
                    && (self.tool_titles.len() < MAX_TITLES || self.tool_titles.contains_key(id))
                {
                    let title = title.chars().take(1000).collect();
                    self.tool_titles.insert(id.to_owned(), title);
                }
            }
            _ => {}
        }
        false
    }

    pub(super) fn keep_options(&mut self, options: &Value) {
        if !self.opened.is_object() {
            self.opened = json!({});
        }
        if options.to_string().len() > MAX_OPTIONS {
            return;
        }
        self.opened["configOptions"] = options.clone();
    }

    fn on_answer(&mut self, message: &Envelope, offset: u64, out: &mut Vec<Effect>) {
        let Kind::Response { id, .. } = &message.kind else {
            return;
        };
        let Some(waiting) = id.as_number().and_then(|id| self.outstanding.remove(&id)) else {
            return self.drop_message("an answer to no request", out);
        };
        let answer = answer_of(message);
        let asker = waiting.asker;
        match waiting.expect {
            Expect::Initialize => self.on_initialized(answer, out),
            Expect::Open => self.on_opened(answer, offset, out),
            Expect::Default(step) => self.on_default(&step, answer, offset, out),
            Expect::Prompt => self.on_prompt_answer(message, asker, answer, offset, out),
            expect => {
                if let Ok(result) = answer {
                    self.note_setting(&expect, &result, asker.as_ref(), offset, out);
                }
                self.reply(message, asker, out);
            }
        }
    }

    /// A mode or option that one viewer changed is shown to the others, unless the agent did so itself.
    fn note_setting(
        &mut self,
        expect: &Expect,
        result: &Value,
        asker: Option<&Asker>,
        offset: u64,
        out: &mut Vec<Effect>,
    ) {
        let before = self.opened.clone();
        let update = match expect {
            Expect::Mode(mode) => {
                crate::policy::defaults::set_mode(&mut self.opened, mode);
                json!({"sessionUpdate": "current_mode_update", "currentModeId": mode})
            }
            Expect::Option if result["configOptions"].is_array() => {
                self.keep_options(&result["configOptions"]);
                json!({"sessionUpdate": "config_option_update", "configOptions": result["configOptions"]})
            }
            Expect::Model(model) if self.opened["models"].is_object() => {
                self.opened["models"]["currentModelId"] = json!(model);
                return;
            }
            _ => return,
        };
        if self.opened != before {
            out.push(Effect::Update(UpdateEffect {
                update,
                params: None,
                is_logged: true,
                offset: Some(offset),
                except: asker.map(|asker| asker.viewer),
            }));
        }
    }

    /// Gives the agent's answer to the viewer that waits, under the viewer's own id.
    pub(super) fn reply(&self, message: &Envelope, asker: Option<Asker>, out: &mut Vec<Effect>) {
        if let Some(asker) = asker {
            let mut object = message.object.clone();
            object.set("id", asker.id.to_raw());
            out.push(Effect::Reply {
                viewer: asker.viewer,
                frame: object.to_bytes(),
            });
        }
    }

    pub(super) fn forward(
        &mut self,
        method: &str,
        params: Option<RawObject>,
        asker: Option<Asker>,
        out: &mut Vec<Effect>,
    ) {
        if self.phase != Phase::Ready {
            return self.drop_message("a request that came at the wrong time", out);
        }
        let read = |key: &str| {
            let value = params.as_ref().and_then(|p| p.read::<String>(key));
            value.filter(|value| value.len() <= MAX_ID)
        };
        let expect = match method {
            "session/set_mode" => read("modeId").map(Expect::Mode),
            "session/set_config_option" => Some(Expect::Option),
            "session/set_model" => read("modelId").map(Expect::Model),
            _ => None,
        };
        if method.starts_with('_') {
            self.extensions += 1;
        }
        let params = params.map(|mut params| {
            self.towards_agent(&mut params);
            params
        });
        self.request(
            method,
            params.as_ref(),
            expect.unwrap_or(Expect::Other),
            asker,
            out,
        );
    }

    pub(super) fn notify(
        &mut self,
        method: &str,
        params: Option<RawObject>,
        out: &mut Vec<Effect>,
    ) {
        if self.phase != Phase::Ready {
            return self.drop_message("a notification that came at the wrong time", out);
        }
        self.extensions += 1;
        let params = params.map(|mut params| {
            self.towards_agent(&mut params);
            params
        });
        out.push(send(build::notification(method, params.as_ref())));
    }
}

/// The result or the error of a response; one that cannot be read counts as null.
fn answer_of(message: &Envelope) -> Result<Value, Value> {
    match &message.kind {
        Kind::Response { is_error: true, .. } => {
            Err(message.object.read("error").unwrap_or_default())
        }
        _ => Ok(message.object.read("result").unwrap_or_default()),
    }
}

impl Answer {
    /// The answer a viewer gave, with the id of the question.
    #[must_use]
    pub(crate) fn of(message: &Envelope) -> Option<(RawId, Self)> {
        let Kind::Response { id, is_error } = &message.kind else {
            return None;
        };
        let raw = message
            .object
            .get(if *is_error { "error" } else { "result" })?
            .to_owned();
        Some((
            id.clone(),
            if *is_error {
                Self::Error(raw)
            } else {
                Self::Result(raw)
            },
        ))
    }
}
