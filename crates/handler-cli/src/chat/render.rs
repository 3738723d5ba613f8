//! How updates look on a terminal. All text is the agent's: made safe before it is printed.

use super::ask::Question;
use super::message::SessionFacts;
use crate::out::{Out, printable};
use serde_json::Value;
use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    None,
    Answer,
    Thought,
    Person,
}

/// Keeps what is open on the screen.
pub(super) struct Renderer {
    out: Out,
    block: Block,
    titles: HashMap<String, String>,
    /// The turn under way, or the last one.
    turn: Turn,
}

/// What a turn has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The prompt, if anything.
    Silent,
    /// Something of the agent.
    Heard,
    /// Its end.
    Told,
}

impl Renderer {
    pub(super) fn new(out: Out) -> Self {
        Self {
            out,
            block: Block::None,
            titles: HashMap::new(),
            turn: Turn::Silent,
        }
    }

    /// Ends an open line.
    pub(super) fn end(&mut self) {
        if self.block != Block::None && !self.out.json {
            self.out.line("");
        }
        self.block = Block::None;
    }

    pub(super) fn note(&mut self, text: &str) {
        self.end();
        self.out.note(text);
    }

    /// A prompt was given that the terminal shows already.
    pub(super) fn new_turn(&mut self) {
        self.turn = Turn::Silent;
    }

    pub(super) fn own_prompt(&mut self, text: &str) {
        if self.out.json {
            return;
        }
        self.end();
        self.new_turn();
        self.out
            .line(self.out.bold(&format!("> {}", printable(text))));
    }

    pub(super) fn update(&mut self, update: &Value) {
        if self.out.json {
            self.out.line(update.to_string());
            return;
        }
        let kind = update
            .get("sessionUpdate")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match kind {
            "user_message_chunk" => self.new_turn(),
            "agent_message_chunk" | "tool_call" | "tool_call_update" => self.turn = Turn::Heard,
            _ => {}
        }
        match kind {
            "agent_message_chunk" => self.chunk(Block::Answer, update),
            "agent_thought_chunk" => self.chunk(Block::Thought, update),
            "user_message_chunk" => self.chunk(Block::Person, update),
            "tool_call" => self.tool_call(update),
            "tool_call_update" => self.tool_update(update),
            "plan" => self.plan(update),
            _ => {}
        }
    }

    fn chunk(&mut self, block: Block, update: &Value) {
        let content = update.get("content").cloned().unwrap_or_default();
        let text = match content.get("type").and_then(Value::as_str) {
            Some("text") => content
                .get("text")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            Some(other) => format!("[{other}]"),
            None => return,
        };
        let is_new = self.block != block;
        if is_new {
            self.end();
            self.block = block;
        }
        let text = printable(&text);
        match block {
            Block::Thought => self.out.text(self.out.dim(&text)),
            Block::Person => {
                let mark = if is_new { "> " } else { "" };
                self.out.text(self.out.bold(&format!("{mark}{text}")));
            }
            _ => self.out.text(text),
        }
    }

    fn tool_call(&mut self, update: &Value) {
        let id = field(update, "toolCallId");
        let title = one_line(&field(update, "title"));
        self.end();
        self.out.line(self.out.paint("36", &format!("● {title}")));
        self.titles.insert(id, title);
        self.tool_status(update);
    }

    fn tool_update(&mut self, update: &Value) {
        let id = field(update, "toolCallId");
        let title = one_line(&field(update, "title"));
        let known = self.titles.get(&id).cloned();
        if !title.is_empty() && known.as_deref() != Some(title.as_str()) {
            self.end();
            self.out.line(self.out.paint("36", &format!("● {title}")));
            self.titles.insert(id, title);
        }
        self.tool_status(update);
    }

    fn tool_status(&mut self, update: &Value) {
        let mark = match update.get("status").and_then(Value::as_str) {
            Some("completed") => self.out.paint("32", "✓"),
            Some("failed") => self.out.paint("31", "✗"),
            _ => return,
        };
        self.end();
        let title = self
            .titles
            .get(&field(update, "toolCallId"))
            .cloned()
            .unwrap_or_default();
        self.out.line(format!("  {mark} {}", self.out.dim(&title)));
        for text in texts(update) {
            for line in text.lines().take(12) {
                self.out
                    .line(self.out.dim(&format!("    {}", printable(line))));
            }
        }
    }

    fn plan(&mut self, update: &Value) {
        self.end();
        let entries = update
            .get("entries")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for entry in entries {
            let mark = match entry.get("status").and_then(Value::as_str) {
                Some("completed") => "☑",
                Some("in_progress") => "▶",
                _ => "☐",
            };
            self.out
                .line(format!("  {mark} {}", one_line(&field(&entry, "content"))));
        }
    }

    pub(super) fn question(&mut self, question: &Question, is_answerable: bool, session: &str) {
        if self.out.json {
            return;
        }
        let title = one_line(&question.title);
        self.out.line(self.out.paint("33", &format!("? {title}")));
        for (index, choice) in question.choices.iter().enumerate() {
            self.out
                .line(format!("  {}. {}", index + 1, one_line(&choice.name)));
        }
        if is_answerable {
            self.out.note("type the number of an answer");
        } else {
            self.out.note(format!(
                "waits for an answer: `handler attach {session}` in a terminal"
            ));
        }
    }

    /// The end of a turn, once, when there is something to say about it.
    pub(super) fn turn_end(&mut self, facts: &SessionFacts) {
        self.end();
        let turn = std::mem::replace(&mut self.turn, Turn::Told);
        if self.out.json || turn == Turn::Told {
            return;
        }
        match facts.last_stop_reason.as_deref() {
            Some("end_turn") | None if turn == Turn::Heard => {}
            // Some agents keep their model's refusal to themselves.
            Some("end_turn") | None => self
                .out
                .note("— the agent ended its turn without a word; its model may have refused"),
            Some(other) => self.out.note(format!("— turn ended: {other}")),
        }
    }
}

fn field(value: &Value, key: &str) -> String {
    value
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn one_line(text: &str) -> String {
    let text: String = printable(text).replace('\n', " ");
    text.chars().take(160).collect()
}

/// Text content of a tool call.
fn texts(update: &Value) -> Vec<String> {
    let content = update
        .get("content")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    content
        .iter()
        .filter_map(|block| block.pointer("/content/text").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
}
