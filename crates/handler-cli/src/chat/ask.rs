//! A permission request as a numbered question.

use serde_json::Value;

/// One answer on offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// What is sent back.
    pub(super) id: String,
    /// What is shown.
    pub(super) name: String,
    /// `allow_once`, `allow_always`, `reject_once`, `reject_always`.
    pub(super) kind: String,
}

/// The request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    /// Its request id, as sent.
    pub(super) id: Value,
    /// What the agent wants to do.
    pub(super) title: String,
    /// The answers, as offered.
    pub(super) choices: Vec<Choice>,
}

impl Question {
    /// Reads a `session/request_permission`.
    #[must_use]
    pub(super) fn read(id: Value, params: &Value) -> Self {
        let text = |value: &Value, key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let call = params.get("toolCall").cloned().unwrap_or_default();
        let mut title = text(&call, "title");
        if title.is_empty() {
            title = format!("tool call {}", text(&call, "toolCallId"));
        }
        let options = params
            .get("options")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let choices = options
            .iter()
            .map(|o| Choice {
                id: text(o, "optionId"),
                name: text(o, "name"),
                kind: text(o, "kind"),
            })
            .collect();
        Self { id, title, choices }
    }

    /// The option meant by what was typed: its number, or `y` / `n` for the first of its kind.
    #[must_use]
    pub(super) fn choose(&self, typed: &str) -> Option<&str> {
        let by_kind = |kind: &str| self.choices.iter().find(|c| c.kind.starts_with(kind));
        let choice = match typed.to_ascii_lowercase().as_str() {
            "y" | "yes" => by_kind("allow_once").or_else(|| by_kind("allow")),
            "n" | "no" => by_kind("reject"),
            number => number
                .parse::<usize>()
                .ok()
                .and_then(|n| self.choices.get(n.checked_sub(1)?)),
        };
        choice.map(|c| c.id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_chosen_by_number_or_kind() {
        let question = Question::read(
            json!(0),
            &json!({"toolCall": {"toolCallId": "c", "title": "Write a file"}, "options": [
                {"optionId": "once", "name": "Allow", "kind": "allow_once"},
                {"optionId": "no", "name": "Reject", "kind": "reject_once"}]}),
        );
        assert_eq!(question.choose("1"), Some("once"));
        assert_eq!(question.choose("Y"), Some("once"));
        assert_eq!(question.choose("n"), Some("no"));
        assert_eq!(question.choose("0"), None);
        assert_eq!(question.choose("3"), None);
        assert_eq!(question.choose(""), None);
    }
}
