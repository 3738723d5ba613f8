//! What comes over a session's socket, sorted. Unknown messages are left alone.

use super::ask::Question;
use crate::exit::Failure;
use serde_json::Value;

/// One message.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A `session/update`: its `update` object.
    Update(Value),
    /// The session's facts changed.
    State(SessionFacts),
    /// The agent asks.
    Permission(Question),
    /// Another client answered.
    Resolved {
        /// The request's id.
        request: Value,
    },
    /// An answer to a request of ours.
    Answer {
        /// Its id.
        id: Value,
        /// Result or error, whole message.
        result: Value,
    },
    /// A request this client cannot serve.
    Request {
        /// Its id.
        id: Value,
        /// Its method.
        method: String,
    },
    /// Anything else.
    Other,
}

/// What `_handler/session_state` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SessionFacts {
    /// A turn is under way.
    pub(super) busy: bool,
    /// How the last turn ended.
    pub(super) last_stop_reason: Option<String>,
}

impl SessionFacts {
    /// Whether no turn is under way and one has ended.
    #[must_use]
    pub(super) fn has_ended_turn(&self) -> bool {
        !self.busy && self.last_stop_reason.is_some()
    }

    /// 0 when the last turn ended by itself.
    #[must_use]
    pub(super) fn code(&self) -> u8 {
        u8::from(self.last_stop_reason.as_deref() != Some("end_turn"))
    }

    /// From the answer to a prompt.
    ///
    /// # Errors
    /// The agent's error.
    pub(super) fn of_answer(message: &Value) -> Result<Self, Failure> {
        if let Some(error) = message.get("error") {
            let text = error
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or("unknown error");
            let data = error
                .get("data")
                .map(|d| format!(" ({d})"))
                .unwrap_or_default();
            return Err(Failure::Failed(format!(
                "the agent answered an error: {text}{data}"
            )));
        }
        let reason = message
            .pointer("/result/stopReason")
            .and_then(Value::as_str);
        Ok(Self {
            busy: false,
            last_stop_reason: reason.map(str::to_owned),
        })
    }
}

impl Incoming {
    /// Sorts a frame, with the number of its event if it has one; none when it is no JSON object.
    pub(super) fn parse(text: &str) -> Option<(Self, Option<u64>)> {
        let message: Value = serde_json::from_str(text).ok()?;
        let seq = message
            .pointer("/params/_meta/handler.dev~1seq")
            .and_then(Value::as_u64);
        Some((Self::sort(message)?, seq))
    }

    fn sort(message: Value) -> Option<Self> {
        let id = message.get("id").cloned();
        let params = message.get("params").cloned().unwrap_or_default();
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            return Some(Self::Answer {
                id: id?,
                result: message,
            });
        };
        Some(match (method, id) {
            ("session/update", None) => {
                Self::Update(params.get("update").cloned().unwrap_or_default())
            }
            ("_handler/session_state", None) => Self::State(SessionFacts {
                busy: params
                    .get("busy")
                    .and_then(Value::as_bool)
                    .unwrap_or_default(),
                last_stop_reason: params
                    .get("lastStopReason")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            }),
            ("_handler/permission_resolved", None) => Self::Resolved {
                request: params.get("requestId").cloned().unwrap_or_default(),
            },
            ("session/request_permission", Some(id)) => {
                Self::Permission(Question::read(id, &params))
            }
            (method, Some(id)) => Self::Request {
                id,
                method: method.to_owned(),
            },
            _ => Self::Other,
        })
    }
}
