//! An agent with the manners seen in the wild: a notification before the session exists, ids that start
//! at 0, file requests that were never offered, questions that block a cancel.

use super::{Agent, AgentOut};
use serde_json::{Value, json};

/// Answers by the text of the prompt: `hello`, `echo`, `ask`, `ask-hang`, `fs`, `ext`, `hang`, `deaf`,
/// `fail`, `exit`, `many <n>`, `leak <text>`, anything else.
#[derive(Debug, Clone)]
pub struct BasicAgent {
    /// Its name for the conversation.
    pub session: String,
    /// Advertises `loadSession`.
    pub can_load: bool,
    /// Modes offered; empty: no `modes`.
    pub modes: Vec<String>,
    /// Updates repeated on `session/load`.
    pub history: Vec<Value>,
    /// Where it is in its turn.
    pub turn: AgentTurn,
}

/// Where a [`BasicAgent`] is in its turn.
#[derive(Debug, Clone, Default)]
pub struct AgentTurn {
    next_id: u64,
    prompt: Option<Value>,
    waiting: Option<(u64, &'static str)>,
}

impl Default for BasicAgent {
    fn default() -> Self {
        Self {
            session: "agent-1".to_owned(),
            can_load: true,
            modes: vec!["default".to_owned(), "auto".to_owned()],
            history: Vec::new(),
            turn: AgentTurn::default(),
        }
    }
}

impl BasicAgent {
    fn update(&self, out: &mut AgentOut, update: Value) {
        out.send(&json!({"jsonrpc": "2.0", "method": "session/update",
            "params": {"sessionId": self.session, "update": update}}));
    }

    fn say(&self, out: &mut AgentOut, text: &str) {
        self.update(
            out,
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}),
        );
    }

    fn end(&mut self, out: &mut AgentOut, reason: &str) {
        if let Some(id) = self.turn.prompt.take() {
            out.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": reason, "usage": null}}));
        }
    }

    fn request(&mut self, out: &mut AgentOut, method: &str, mut params: Value, tag: &'static str) {
        params["sessionId"] = json!(self.session);
        out.send(
            &json!({"jsonrpc": "2.0", "id": self.turn.next_id, "method": method, "params": params}),
        );
        self.turn.waiting = Some((self.turn.next_id, tag));
        self.turn.next_id += 1;
    }

    fn opened(&self) -> Value {
        let mut opened = json!({"configOptions": [{"id": "model", "category": "model", "type": "select",
            "currentValue": "small", "options": [{"value": "small", "name": "S"}, {"value": "big", "name": "B"}]}]});
        if !self.modes.is_empty() {
            let offered: Vec<Value> = self
                .modes
                .iter()
                .map(|id| json!({"id": id, "name": id}))
                .collect();
            opened["modes"] = json!({"currentModeId": self.modes[self.modes.len() - 1], "availableModes": offered});
        }
        opened
    }

    fn setup(&self, method: &str, line: &Value, out: &mut AgentOut) -> Option<Value> {
        Some(match method {
            "initialize" => {
                json!({"protocolVersion": 1, "agentInfo": {"name": "basic", "version": "1"},
                "authMethods": [], "agentCapabilities": {"loadSession": self.can_load,
                    "promptCapabilities": {"image": true}, "_meta": {"x": 1.50}}})
            }
            "session/new" => {
                out.send(
                    &json!({"jsonrpc": "2.0", "method": "_auth/status_update", "params": {"a": 1}}),
                );
                self.update(
                    out,
                    json!({"sessionUpdate": "available_commands_update", "availableCommands": []}),
                );
                let mut opened = self.opened();
                opened["sessionId"] = json!(self.session);
                opened
            }
            "session/load" => {
                for update in &self.history {
                    self.update(out, update.clone());
                }
                self.opened()
            }
            "session/set_mode" => json!({}),
            "session/set_config_option" => {
                let mut options = self.opened()["configOptions"].clone();
                options[0]["currentValue"] = line["params"]["value"].clone();
                json!({"configOptions": options})
            }
            _ => return None,
        })
    }

    fn on_prompt(&mut self, line: &Value, out: &mut AgentOut) {
        self.turn.prompt = Some(line["id"].clone());
        let text = line["params"]["prompt"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "ask" | "ask-hang" => {
                self.update(
                    out,
                    json!({"sessionUpdate": "tool_call", "toolCallId": "t1",
                    "title": "Write out.txt", "kind": "edit", "status": "pending"}),
                );
                let tag = if word == "ask" { "ask" } else { "ask-hang" };
                self.request(
                    out,
                    "session/request_permission",
                    json!({"toolCall": {"toolCallId": "t1"},
                    "options": [{"optionId": "once", "name": "Yes", "kind": "allow_once"},
                        {"optionId": "no", "name": "No", "kind": "reject_once"}]}),
                    tag,
                );
            }
            "fs" => self.request(out, "fs/read_text_file", json!({"path": "/p/x"}), "fs"),
            "ext" => self.request(out, "_vendor/question", json!({}), "ext"),
            "hang" | "deaf" => {
                self.say(out, "working");
                if word == "deaf" {
                    self.turn.prompt = None;
                }
            }
            "fail" => {
                let id = self.turn.prompt.take();
                out.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": 400, "message": "model error"}}));
            }
            "exit" => {
                out.err("boom\n");
                out.exit(3);
            }
            "many" => {
                for n in 0..rest.parse().unwrap_or(0) {
                    self.say(out, &format!("chunk {n}"));
                }
                self.end(out, "end_turn");
            }
            _ => {
                if word == "echo" {
                    self.update(
                        out,
                        json!({"sessionUpdate": "user_message_chunk",
                        "content": {"type": "text", "text": text}}),
                    );
                }
                self.say(out, &format!("you said {text}"));
                self.end(out, "end_turn");
            }
        }
    }

    fn on_answer(&mut self, line: &Value, out: &mut AgentOut) {
        let Some((id, tag)) = self.turn.waiting else {
            return;
        };
        if line["id"] != json!(id) {
            return;
        }
        self.turn.waiting = None;
        let outcome = &line["result"]["outcome"];
        let told = match tag {
            "fs" | "ext" => line["error"]["code"].to_string(),
            _ => outcome["optionId"]
                .as_str()
                .unwrap_or("cancelled")
                .to_owned(),
        };
        self.update(
            out,
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed"}),
        );
        self.say(out, &format!("answer {told}"));
        let reason = if outcome["outcome"] == "cancelled" {
            "cancelled"
        } else {
            "end_turn"
        };
        self.end(out, reason);
    }
}

impl Agent for BasicAgent {
    fn on_line(&mut self, line: &Value, out: &mut AgentOut) {
        let Some(method) = line["method"].as_str() else {
            return self.on_answer(line, out);
        };
        if let Some(result) = self.setup(method, line, out) {
            return out.send(&json!({"jsonrpc": "2.0", "id": line["id"], "result": result}));
        }
        match method {
            "session/prompt" => self.on_prompt(line, out),
            // With an open question the turn ends only once that is answered.
            "session/cancel" if self.turn.waiting.is_none() => self.end(out, "cancelled"),
            "session/cancel" => {}
            _ if line.get("id").is_some() => {
                out.send(
                    &json!({"jsonrpc": "2.0", "id": line["id"], "result": {"method": method}}),
                );
            }
            _ => {}
        }
    }
}
