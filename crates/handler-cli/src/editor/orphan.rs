//! Prompts whose connection to the daemon was lost while their turn went on: the session's state answers them.

use serde_json::Value;

/// How ACP says that a turn ended.
const REASONS: [&str; 5] = [
    "end_turn",
    "max_tokens",
    "max_turn_requests",
    "refusal",
    "cancelled",
];

/// Prompts of the editor without an answer.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    /// Sent on the connection that stands.
    sent: Vec<Value>,
    /// Sent on one that is gone.
    orphans: Vec<Value>,
}

impl Prompts {
    pub(super) fn sent(&mut self, id: Value) {
        self.sent.push(id);
    }

    /// An answer came.
    pub(super) fn answered(&mut self, id: &Value) {
        self.sent.retain(|prompt| prompt != id);
    }

    /// The connection is gone; its answers come to nobody.
    pub(super) fn lost(&mut self) {
        self.orphans.append(&mut self.sent);
    }

    /// Those that a `_handler/session_state` or `_handler/turn_ended` of the new connection ends, with how.
    pub(super) fn ended(&mut self, method: &str, params: &Value) -> Option<(Vec<Value>, String)> {
        let reason = match method {
            "_handler/turn_ended" => params.get("stopReason"),
            "_handler/session_state" if params.get("busy") == Some(&Value::Bool(false)) => {
                params.get("lastStopReason")
            }
            _ => return None,
        };
        if self.orphans.is_empty() {
            return None;
        }
        let reason = reason.and_then(Value::as_str).unwrap_or_default();
        let reason = if REASONS.contains(&reason) {
            reason
        } else {
            "cancelled"
        };
        Some((std::mem::take(&mut self.orphans), reason.to_owned()))
    }

    /// All of them, when there will be no answer.
    pub(super) fn give_up(&mut self) -> Vec<Value> {
        self.lost();
        std::mem::take(&mut self.orphans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_prompt_of_a_lost_connection_ends_with_the_sessions_turn_once() {
        let state = "_handler/session_state";
        let mut prompts = Prompts::default();
        prompts.sent(json!(1));
        let idle = json!({"busy": false, "lastStopReason": "end_turn"});
        assert_eq!(prompts.ended(state, &idle), None, "its answer will come");
        prompts.lost();
        assert_eq!(prompts.ended(state, &json!({"busy": true})), None);
        assert_eq!(
            prompts.ended(state, &idle),
            Some((vec![json!(1)], "end_turn".into()))
        );
        assert_eq!(prompts.ended(state, &idle), None);
        prompts.sent(json!(2));
        prompts.answered(&json!(2));
        prompts.sent(json!(3));
        prompts.lost();
        let ended = prompts.ended(
            "_handler/turn_ended",
            &json!({"stopReason": "daemon_restarted"}),
        );
        assert_eq!(
            ended,
            Some((vec![json!(3)], "cancelled".into())),
            "a word that ACP lacks"
        );
        prompts.sent(json!(4));
        assert_eq!(prompts.give_up(), [json!(4)]);
    }
}
