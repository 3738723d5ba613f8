//! Questions of the agent: held until the first valid answer, a cancel, or the end of the turn.

use super::input::Answer;
use super::state::{LiveState, send};
use super::{Effect, ViewerId, record};
use crate::acp::{Envelope, RawId, RawObject, build, codes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Questions that may wait at once.
pub(crate) const MAX_PENDING: usize = 64;
/// Their size together, bytes.
pub(crate) const MAX_PENDING_BYTES: usize = 16 * 1024 * 1024;

/// What kind of question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PendingKind {
    /// `session/request_permission`.
    Permission,
    /// `elicitation/create`.
    Elicitation,
    /// `_…`.
    Extension,
}

/// A question of the agent that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// The agent's id.
    pub id: RawId,
    /// What kind.
    pub kind: PendingKind,
    /// The whole request as viewers get it.
    pub request: RawObject,
    /// The tool call it is about.
    pub tool_call_id: Option<String>,
    /// What is asked.
    pub title: String,
    /// What can be answered.
    pub options: Vec<Value>,
}

/// A question as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPermission {
    /// Id to answer it with.
    pub request_id: String,
    /// What kind.
    pub kind: PendingKind,
    /// The tool call it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// What is asked.
    pub title: String,
    /// The options: `optionId`, `name`, `kind`.
    pub options: Vec<Value>,
}

impl Pending {
    /// As the API shows it.
    #[must_use]
    pub(crate) fn view(&self) -> PendingPermission {
        PendingPermission {
            request_id: self.id.display(),
            kind: self.kind,
            tool_call_id: self.tool_call_id.clone(),
            title: self.title.clone(),
            options: self.options.clone(),
        }
    }

    fn size(&self) -> usize {
        self.request.to_bytes().len()
    }

    fn is_question(&self) -> bool {
        self.kind != PendingKind::Extension
    }

    /// Whether an answer is one the agent offered.
    fn accepts(&self, answer: &Answer) -> bool {
        let Answer::Result(result) = answer else {
            return self.kind == PendingKind::Extension;
        };
        let Ok(result) = serde_json::from_str::<Value>(result.get()) else {
            return false;
        };
        match self.kind {
            PendingKind::Extension => true,
            PendingKind::Elicitation => {
                matches!(
                    result["action"].as_str(),
                    Some("accept" | "decline" | "cancel")
                )
            }
            PendingKind::Permission => match result["outcome"]["outcome"].as_str() {
                Some("cancelled") => true,
                Some("selected") => {
                    let chosen = &result["outcome"]["optionId"];
                    chosen.is_string()
                        && self
                            .options
                            .iter()
                            .any(|option| option["optionId"] == *chosen)
                }
                _ => false,
            },
        }
    }

    /// The answer that means "cancelled".
    #[must_use]
    pub(crate) fn cancelled(&self) -> Value {
        match self.kind {
            PendingKind::Elicitation => json!({"action": "cancel"}),
            _ => json!({"outcome": {"outcome": "cancelled"}}),
        }
    }
}

impl LiveState {
    /// Whether an answer fits a question that waits.
    #[must_use]
    pub(crate) fn accepts_answer(&self, id: &RawId, answer: &Answer) -> bool {
        self.pending
            .iter()
            .any(|pending| pending.id == *id && pending.accepts(answer))
    }

    /// Whether an extension request of the agent waits.
    #[must_use]
    pub(crate) fn has_extension_request(&self) -> bool {
        self.pending.iter().any(|pending| !pending.is_question())
    }

    /// Questions that wait for a person.
    pub(crate) fn questions(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().filter(|pending| pending.is_question())
    }

    pub(super) fn ask(
        &mut self,
        message: &Envelope,
        id: &RawId,
        kind: PendingKind,
        offset: u64,
        out: &mut Vec<Effect>,
    ) {
        let mut params = message.params();
        let session: Option<String> = params.read("sessionId");
        if params.get("sessionId").is_some() && session != self.agent_session {
            let error = build::error(Some(id), codes::INVALID_PARAMS, "unknown session", None);
            out.push(send(error));
            return self.drop_message("a request for another session", out);
        }
        if self.pending.iter().any(|pending| pending.id == *id) {
            return self.drop_message("a request whose id is already in use", out);
        }
        let kept: usize = self.pending.iter().map(Pending::size).sum();
        let is_too_much = kept + message.object.to_bytes().len() > MAX_PENDING_BYTES;
        if is_too_much || self.pending.len() >= MAX_PENDING {
            let error = build::error(Some(id), codes::INTERNAL, "too many open requests", None);
            out.push(send(error));
            return self.drop_message("one open request too many", out);
        }
        self.towards_clients(&mut params);
        let mut request = message.object.clone();
        if message.object.get("params").is_some() {
            request.put("params", &params);
        }
        let pending = self.pending_from(id, kind, request, &params);
        if pending.is_question() {
            out.push(Effect::Record(record::permission_request(&pending, offset)));
        }
        let is_cancelled = self.turn.as_ref().is_some_and(|turn| turn.is_cancelled);
        if is_cancelled {
            // The turn is being cancelled: an agent that still asks must not wait for people.
            return self.settle(&pending, "cancel", Some(offset), out);
        }
        out.push(Effect::Show {
            frame: pending.request.to_bytes(),
            except: None,
        });
        self.pending.push(pending);
        out.push(Effect::Changed);
    }

    fn pending_from(
        &self,
        id: &RawId,
        kind: PendingKind,
        request: RawObject,
        params: &RawObject,
    ) -> Pending {
        let call: Value = params.read("toolCall").unwrap_or(Value::Null);
        let tool_call_id = call["toolCallId"]
            .as_str()
            .map(ToOwned::to_owned)
            .or_else(|| params.read("toolCallId"));
        let title = call["title"]
            .as_str()
            .map(ToOwned::to_owned)
            .or_else(|| {
                tool_call_id
                    .as_ref()
                    .and_then(|call| self.tool_titles.get(call).cloned())
            })
            .or_else(|| params.read("message"))
            .unwrap_or_else(|| "Permission".to_owned());
        Pending {
            id: id.clone(),
            kind,
            request,
            tool_call_id,
            title: title.chars().take(1000).collect(),
            options: params.read("options").unwrap_or_default(),
        }
    }

    pub(super) fn answer_pending(
        &mut self,
        id: &RawId,
        answer: &Answer,
        by: &str,
        viewer: Option<ViewerId>,
        out: &mut Vec<Effect>,
    ) {
        if !self.accepts_answer(id, answer) {
            return self.drop_message(
                "an answer to no open question, or not one of its options",
                out,
            );
        }
        let Some(at) = self.pending.iter().position(|pending| pending.id == *id) else {
            return;
        };
        let pending = self.pending.remove(at);
        let mut response = RawObject::default();
        response.put("jsonrpc", "2.0");
        response.set("id", id.to_raw());
        let outcome = match answer {
            Answer::Result(result) => {
                response.set("result", result.clone());
                outcome_of(&serde_json::from_str(result.get()).unwrap_or_default())
            }
            Answer::Error(error) => {
                response.set("error", error.clone());
                Value::Null
            }
        };
        out.push(send(response.to_bytes()));
        self.note_settled(&pending, &outcome, by, None, viewer, out);
        out.push(Effect::Changed);
    }

    /// Answers one question with "cancelled".
    fn settle(&mut self, pending: &Pending, by: &str, offset: Option<u64>, out: &mut Vec<Effect>) {
        let cancelled = pending.cancelled();
        out.push(send(if pending.is_question() {
            build::result(&pending.id, &cancelled)
        } else {
            build::error(Some(&pending.id), codes::CANCELLED, "cancelled", None)
        }));
        self.note_settled(pending, &outcome_of(&cancelled), by, offset, None, out);
    }

    fn note_settled(
        &mut self,
        pending: &Pending,
        outcome: &Value,
        by: &str,
        offset: Option<u64>,
        viewer: Option<ViewerId>,
        out: &mut Vec<Effect>,
    ) {
        if pending.is_question() {
            let settled = record::permission_resolved(pending, outcome, by, offset);
            out.push(Effect::Record(settled));
        }
        let id: Value = serde_json::from_str(pending.id.to_raw().get()).unwrap_or_default();
        let params =
            json!({"requestId": id, "toolCallId": pending.tool_call_id, "outcome": outcome});
        out.push(Effect::Show {
            frame: build::notification("_handler/permission_resolved", Some(&params)),
            except: viewer,
        });
    }

    pub(super) fn settle_all(&mut self, by: &str, offset: Option<u64>, out: &mut Vec<Effect>) {
        for pending in std::mem::take(&mut self.pending) {
            self.settle(&pending, by, offset, out);
        }
    }

    pub(super) fn withdraw(&mut self, message: &Envelope, offset: u64, out: &mut Vec<Effect>) {
        let id = message.params().get("requestId").and_then(RawId::from_raw);
        let at = self
            .pending
            .iter()
            .position(|pending| Some(&pending.id) == id.as_ref());
        if let Some(at) = at {
            let pending = self.pending.remove(at);
            self.settle(&pending, "agent", Some(offset), out);
            out.push(Effect::Changed);
        }
    }

    pub(super) fn refuse_extensions(&mut self, out: &mut Vec<Effect>) {
        let (refused, kept) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|p| !p.is_question());
        self.pending = kept;
        let refused: Vec<Pending> = refused;
        for pending in refused {
            let error = build::error(
                Some(&pending.id),
                codes::METHOD_NOT_FOUND,
                "no client is attached that could answer",
                None,
            );
            out.push(send(error));
        }
    }
}

/// What is told and logged about an answer: never the content of a form.
fn outcome_of(result: &Value) -> Value {
    match &result["outcome"] {
        Value::Null => json!({"action": result["action"]}),
        outcome => json!({"outcome": outcome["outcome"], "optionId": outcome["optionId"]})
            .as_object()
            .map(|map| {
                map.iter()
                    .filter(|(_, v)| !v.is_null())
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect()
            })
            .map_or(Value::Null, Value::Object),
    }
}
