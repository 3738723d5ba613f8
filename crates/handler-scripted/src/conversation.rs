//! A request's history reduced to what a plan needs, whatever protocol it came in.
//!
//! Invariant: [`Conversation::results`] holds only results that came *after* the newest human
//! text, so their number is the step of the plan.

use serde_json::Value;

use crate::tools::Tool;

/// Characters of one tool result that are kept: enough to quote, never the whole file.
const RESULT_LIMIT: usize = 2_000;

/// Why a well-formed JSON body is still not a request of its protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadConversationError {
    #[error("the body must be a JSON object")]
    NotAnObject,
    #[error("`{0}` is missing or of the wrong type")]
    Field(&'static str),
}

/// What a tool gave back.
#[derive(Debug)]
pub(crate) struct ToolResult {
    /// Its text, cut to a bounded length.
    pub(crate) text: String,
    /// Whether the harness marked it as failed or refused; not every protocol can.
    pub(crate) failed: bool,
}

/// What the newest human text was and what has happened since.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Model name to repeat in the answer.
    pub(crate) model: String,
    /// Whether the caller wants server-sent events.
    pub(crate) stream: bool,
    /// The newest text a person wrote.
    pub(crate) human: String,
    /// The tool results since, oldest first.
    pub(crate) results: Vec<ToolResult>,
    /// Tools the harness offers.
    pub(crate) tools: Vec<Tool>,
    /// Present when the answer must be JSON; the schema, or null when none was given.
    pub(crate) json: Option<Value>,
    /// Whether the caller accepts a thinking block.
    pub(crate) thinking: bool,
    /// Whether a stream ends with a usage report (OpenAI Chat only sends it on request).
    pub(crate) stream_usage: bool,
}

impl Conversation {
    /// Starts from the fields all protocols but Gemini have in common.
    pub(crate) fn from_common(body: &Value) -> Result<Self, ReadConversationError> {
        let object = body.as_object().ok_or(ReadConversationError::NotAnObject)?;
        let model = object
            .get("model")
            .and_then(Value::as_str)
            .unwrap_or("scripted");
        Ok(Self {
            model: model.chars().take(200).collect(),
            stream: object
                .get("stream")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            ..Self::default()
        })
    }

    /// Takes in one text block of a user message. `beside_result` says that the same message
    /// carries tool results; harnesses put reminders there, so such a block only counts as
    /// human when it names a plan.
    pub(crate) fn user_text(&mut self, text: &str, beside_result: bool) {
        let text = without_injections(text);
        if text.is_empty() || (beside_result && !text.contains("PLAN:")) {
            return;
        }
        self.human = text;
        self.results.clear();
    }

    /// Takes in one tool result.
    pub(crate) fn tool_result(&mut self, text: &str, failed: bool) {
        let text = text.chars().take(RESULT_LIMIT).collect();
        self.results.push(ToolResult { text, failed });
    }
}

/// Removes what harnesses wrap around or put beside human text: `<system-reminder>` blocks, a
/// block that is one element from end to end (`<environment_context>…`), interruption notes.
fn without_injections(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("<system-reminder>") {
        kept.push_str(before);
        rest = after
            .split_once("</system-reminder>")
            .map_or("", |(_, tail)| tail);
    }
    kept.push_str(rest);
    let kept = kept.trim();
    if is_one_element(kept) || kept.starts_with("[Request interrupted") {
        return String::new();
    }
    kept.to_owned()
}

fn is_one_element(text: &str) -> bool {
    let Some(after) = text.strip_prefix('<') else {
        return false;
    };
    let length = after.find(|c: char| !(c.is_alphanumeric() || "_-".contains(c)));
    let name = &after[..length.unwrap_or(after.len())];
    !name.is_empty() && text.ends_with(&format!("</{name}>"))
}

/// The text in a string, in a `{text}` block, or in a list of either, joined by line breaks.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().map(text_of).filter(|text| !text.is_empty());
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Object(block) => block.get("text").map(text_of).unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_human_text_starts_the_steps_again() {
        let mut talk = Conversation::default();
        talk.user_text("PLAN:write", false);
        talk.tool_result("ok", false);
        talk.user_text("<system-reminder>be nice</system-reminder>", false);
        talk.user_text(
            "<environment_context>\n<cwd>/w</cwd>\n</environment_context>",
            false,
        );
        talk.user_text("a picture", true);
        assert_eq!((talk.human.as_str(), talk.results.len()), ("PLAN:write", 1));
        talk.user_text("[Request interrupted by user]", false);
        talk.user_text("<system-reminder>x</system-reminder>\nhello", false);
        assert_eq!((talk.human.as_str(), talk.results.len()), ("hello", 0));
        talk.user_text("PLAN:ask", true);
        assert_eq!(talk.human, "PLAN:ask");
    }

    #[test]
    fn human_text_that_merely_contains_markup_stays_human() {
        for text in ["<b>PLAN:x</b> please", "< 3", "<", "a < b > c", "<é>x</e>"] {
            assert_eq!(without_injections(text), text);
        }
        assert_eq!(without_injections("hi <system-reminder>cut off"), "hi");
    }

    #[test]
    fn long_results_are_cut() {
        let mut talk = Conversation::default();
        talk.tool_result(&"é".repeat(RESULT_LIMIT * 2), false);
        assert_eq!(talk.results[0].text.chars().count(), RESULT_LIMIT);
    }
}
