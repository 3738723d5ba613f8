//! A short ACP conversation with an agent program: requests and their answers, nothing kept. For checks only;
//! sessions of people go through `handler-session`.

use crate::app::agent::GuestAgent;
use bytes::Bytes;
use handler_session::io::{AgentIo as _, AgentOutput};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Longest line of an agent, bytes.
const MAX_LINE: usize = 8 * 1024 * 1024;
/// Last lines of its error stream that are told when it ends.
const TAIL: usize = 5;

/// The conversation.
pub(super) struct Conversation {
    agent: GuestAgent,
    sent: u64,
    buffer: Vec<u8>,
    errors: VecDeque<String>,
    next_id: u64,
}

impl Conversation {
    pub(super) fn new(agent: GuestAgent) -> Self {
        Self {
            sent: agent.received(),
            agent,
            buffer: Vec::new(),
            errors: VecDeque::new(),
            next_id: 1,
        }
    }

    /// Asks and waits for the answer. What the agent asks meanwhile is refused.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        loop {
            let message = self.receive(method).await?;
            if message["id"] != json!(id) || message.get("method").is_some() {
                self.refuse(&message).await?;
                continue;
            }
            if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
                let text = error["message"].as_str().unwrap_or("an error");
                let text: String = text.chars().take(500).collect();
                return Err(format!("it refuses {method}: {text}"));
            }
            return Ok(message["result"].clone());
        }
    }

    async fn refuse(&mut self, message: &Value) -> Result<(), String> {
        if message.get("method").is_none() || message.get("id").is_none_or(Value::is_null) {
            return Ok(());
        }
        let error = json!({"code": -32601, "message": "not offered by this check"});
        self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}))
            .await
    }

    async fn send(&mut self, message: &Value) -> Result<(), String> {
        let line = Bytes::from(format!("{message}\n"));
        let written = self.agent.write(self.sent, line.clone()).await;
        written.map_err(|error| error.to_string())?;
        self.sent += line.len() as u64;
        Ok(())
    }

    async fn receive(&mut self, method: &str) -> Result<Value, String> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                // What is no message is the program's own noise.
                if let Ok(message) = serde_json::from_slice::<Value>(&line) {
                    return Ok(message);
                }
            }
            if self.buffer.len() > MAX_LINE {
                return Err("it answers with a line of more than 8 MiB".to_owned());
            }
            match self.agent.next().await {
                AgentOutput::Stdout { end, bytes } => {
                    self.buffer.extend_from_slice(&bytes);
                    self.agent.ack(end);
                }
                AgentOutput::Stderr { end, bytes } => {
                    self.note(&bytes);
                    self.agent.ack(end);
                }
                AgentOutput::Exited { code } => {
                    let said: Vec<&str> = self.errors.iter().map(String::as_str).collect();
                    return Err(format!(
                        "it ends with {code} before it answers {method}: {}",
                        said.join(" | ")
                    ));
                }
                AgentOutput::Lost { reason } => return Err(format!("it was lost: {reason}")),
            }
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        for line in String::from_utf8_lossy(bytes).lines() {
            if self.errors.len() == TAIL {
                self.errors.pop_front();
            }
            self.errors.push_back(line.chars().take(300).collect());
        }
    }
}

/// Ids of the modes an opened session offers.
pub(super) fn modes(opened: &Value) -> Vec<String> {
    let listed = opened["modes"]["availableModes"]
        .as_array()
        .into_iter()
        .flatten();
    let ids = listed.filter_map(|mode| mode["id"].as_str());
    let options = opened["configOptions"].as_array().into_iter().flatten();
    let as_option = options
        .filter(|option| option["category"] == "mode" || option["id"] == "mode")
        .flat_map(|option| option["options"].as_array().into_iter().flatten())
        .filter_map(|value| value["value"].as_str());
    ids.chain(as_option).map(str::to_owned).collect()
}

/// Whether an opened session offers an option.
pub(super) fn has_option(opened: &Value, id: &str) -> bool {
    let options = opened["configOptions"].as_array().into_iter().flatten();
    options
        .filter_map(|option| option["id"].as_str())
        .any(|known| known == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_options_are_found_wherever_the_agent_tells_them() {
        let opened = json!({
            "modes": {"availableModes": [{"id": "default"}]},
            "configOptions": [
                {"id": "m", "category": "mode", "options": [{"value": "plan"}]},
                {"id": "model", "options": [{"value": "x"}]},
            ],
        });
        assert_eq!(modes(&opened), ["default", "plan"]);
        assert!(has_option(&opened, "model") && !has_option(&opened, "effort"));
        assert!(modes(&json!({})).is_empty() && !has_option(&json!(null), "model"));
    }
}
