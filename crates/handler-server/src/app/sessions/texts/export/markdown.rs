//! A session's events as Markdown. What was said is Markdown already; everything else an agent can write is put where
//! it cannot be taken for a heading of the document or for somebody else's words.

use handler_types::session::SessionView;
use serde_json::Value;
use std::fmt::Write as _;

/// Longest output of a tool shown, characters.
const LONGEST: usize = 4000;

/// Whose words come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voice {
    You,
    Agent,
}

/// The part already written ends with a whole line, or within somebody's words.
#[derive(Debug, Default)]
pub(super) struct Markdown {
    voice: Option<Voice>,
    is_open: bool,
}

/// Title and facts.
pub(super) fn head(session: &SessionView) -> String {
    let title = line(session.title.as_deref().unwrap_or("Session"));
    format!(
        "# {title}\n\n- session: `{}`\n- agent: {} with {} ({})\n- folder: `{}`\n- from {} to {}\n",
        session.id,
        session.harness,
        line(&session.model),
        session
            .account
            .as_deref()
            .or(session.provider.as_deref())
            .unwrap_or_default(),
        session.scope.replace('`', "'"),
        session.created_at,
        session.last_activity_at,
    )
}

/// In one line, with nothing that would end it.
fn line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .trim()
        .to_owned()
}

impl Markdown {
    /// What one event adds.
    pub(super) fn take(&mut self, event: &[u8]) -> String {
        let Ok(event) = serde_json::from_slice::<Value>(event) else {
            return String::new();
        };
        match event["kind"].as_str() {
            Some("update") => self.update(&event["update"]),
            Some("turn") if event["phase"] == "end" => self.turn_end(&event),
            Some("permission") if event["phase"] == "resolved" => self.answered(&event),
            _ => String::new(),
        }
    }

    /// What closes the document.
    pub(super) fn end(&mut self) -> String {
        self.close().to_owned()
    }

    fn close(&mut self) -> &'static str {
        if std::mem::take(&mut self.is_open) {
            "\n"
        } else {
            ""
        }
    }

    fn update(&mut self, update: &Value) -> String {
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "user_message_chunk" => self.said(Voice::You, &update["content"]),
            "agent_message_chunk" => self.said(Voice::Agent, &update["content"]),
            "tool_call" => self.tool(update),
            "tool_call_update" if update["status"] == "failed" || update["content"].is_array() => {
                self.output(update)
            }
            _ => String::new(),
        }
    }

    fn said(&mut self, voice: Voice, content: &Value) -> String {
        let text = match content["type"].as_str().unwrap_or_default() {
            "text" => content["text"].as_str().unwrap_or_default().to_owned(),
            "resource_link" => format!("`{}`", line(content["uri"].as_str().unwrap_or_default())),
            other => format!("*({})*", line(other)),
        };
        let mut out = String::new();
        if self.voice != Some(voice) || !self.is_open {
            out.push_str(self.close());
            if self.voice != Some(voice) {
                let name = if voice == Voice::You { "You" } else { "Agent" };
                let _ = write!(out, "\n## {name}\n");
                self.voice = Some(voice);
            }
            out.push('\n');
        }
        self.is_open = true;
        out.push_str(&text);
        out
    }

    fn tool(&mut self, update: &Value) -> String {
        let title = line(update["title"].as_str().unwrap_or("a tool"));
        let mut out = self.close().to_owned();
        let _ = write!(out, "\n> **Tool** {title}\n");
        if update["content"].is_array() {
            out.push_str(&self.output(update));
        }
        out
    }

    fn output(&mut self, update: &Value) -> String {
        let mut out = self.close().to_owned();
        for part in update["content"].as_array().into_iter().flatten() {
            if let Some(text) = part["content"]["text"].as_str() {
                out.push_str(&fenced("", text));
            } else if part["type"] == "diff" {
                let path = line(part["path"].as_str().unwrap_or_default());
                out.push_str(&fenced(&path, part["newText"].as_str().unwrap_or_default()));
            }
        }
        if update["status"] == "failed" {
            out.push_str("\n> failed\n");
        }
        out
    }

    fn turn_end(&mut self, event: &Value) -> String {
        let reason = line(event["stopReason"].as_str().unwrap_or_default());
        let mut out = self.close().to_owned();
        if reason != "end_turn" {
            let _ = write!(out, "\n> The turn ended: {reason}\n");
        }
        out
    }

    fn answered(&mut self, event: &Value) -> String {
        let outcome = line(event["outcome"]["optionId"].as_str().unwrap_or("cancelled"));
        let mut out = self.close().to_owned();
        let _ = write!(out, "\n> Asked, and answered: {outcome}\n");
        out
    }
}

/// A block whose fence is longer than any inside.
fn fenced(about: &str, text: &str) -> String {
    let shown: String = text.chars().take(LONGEST).collect();
    let rest = if shown.len() < text.len() {
        "\n…"
    } else {
        ""
    };
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let about = if about.is_empty() {
        String::new()
    } else {
        format!("\n`{}`:\n", about.replace('`', "'"))
    };
    format!(
        "{about}\n{fence}text\n{}{rest}\n{fence}\n",
        shown.trim_end_matches('\n')
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(events: &[Value]) -> String {
        let mut markdown = Markdown::default();
        let mut out: String = events
            .iter()
            .map(|event| markdown.take(event.to_string().as_bytes()))
            .collect();
        out.push_str(&markdown.end());
        out
    }

    fn chunk(kind: &str, text: &str) -> Value {
        json!({"kind": "update", "update": {"sessionUpdate": kind, "content": {"type": "text", "text": text}}})
    }

    #[test]
    fn a_conversation_reads_as_one() {
        let tool = json!({"kind": "update", "update": {"sessionUpdate": "tool_call", "title": "ls\n# no heading"}});
        let done = json!({"kind": "update", "update": {"sessionUpdate": "tool_call_update", "status": "completed",
            "content": [{"type": "content", "content": {"type": "text", "text": "a ``` b\n"}}]}});
        let text = written(&[
            chunk("user_message_chunk", "please"),
            chunk("agent_message_chunk", "I "),
            chunk("agent_message_chunk", "look."),
            tool,
            done,
            chunk("agent_message_chunk", "Done."),
            json!({"kind": "turn", "phase": "end", "stopReason": "cancelled"}),
            chunk("user_message_chunk", "more"),
        ]);
        assert_eq!(
            text,
            "\n## You\n\nplease\n\n## Agent\n\nI look.\n\n> **Tool** ls # no heading\n\n````text\na ``` b\n````\n\
             \nDone.\n\n> The turn ended: cancelled\n\n## You\n\nmore\n"
        );
    }
}
