//! A small ACP client over a session's WebSocket: it keeps all it hears, in order.

use crate::sessions::stage::LONG;
use anyhow::{Context as _, bail, ensure};
use handler_client::{Client, Socket, SocketMessage};
use serde_json::{Value, json};

/// One attached client.
pub(crate) struct Viewer {
    socket: Socket,
    next_id: u64,
    /// The session's id for the API.
    pub(crate) id: String,
    /// The conversation's id.
    pub(crate) conversation: String,
    /// The project folder.
    pub(crate) scope: String,
    /// The answer to `initialize`.
    pub(crate) agent: Value,
    /// The conversation's options, as it was opened.
    pub(crate) options: Value,
    /// Everything heard so far.
    pub(crate) seen: Vec<Value>,
}

impl Viewer {
    /// Attaches, replays what came after `after`, and is live then.
    pub(crate) async fn attach(client: &Client, id: &str, after: u64) -> anyhow::Result<Self> {
        let path = format!("/v1/sessions/{id}/acp");
        let mut viewer = Self {
            socket: client.socket(&path, "acp.v1").await?,
            next_id: 0,
            id: id.to_owned(),
            conversation: String::new(),
            scope: String::new(),
            agent: Value::Null,
            options: Value::Null,
            seen: Vec::new(),
        };
        let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
        let hello = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        viewer.agent = viewer.call("initialize", hello).await?["result"].take();
        let view = client.session(id).await?;
        viewer.conversation = view.acp_session_id.context("no conversation")?;
        viewer.scope = view.scope;
        let load = json!({"sessionId": viewer.conversation, "cwd": viewer.scope,
            "mcpServers": [], "_meta": {"handler.dev/afterSeq": after}});
        let loaded = viewer.call("session/load", load).await?;
        ensure!(loaded.get("result").is_some(), "load: {loaded}");
        viewer.options = loaded["result"]["configOptions"].clone();
        viewer.until("the state", state).await?;
        Ok(viewer)
    }

    /// Next message.
    ///
    /// # Errors
    /// When the session closes the connection, or nothing comes for a long time.
    async fn hear(&mut self) -> anyhow::Result<Value> {
        let heard = tokio::time::timeout(LONG, self.socket.next()).await;
        match heard.with_context(|| format!("silence; the last was {:?}", self.seen.last()))? {
            SocketMessage::Text(text) => {
                let message: Value = serde_json::from_str(&text)?;
                self.seen.push(message.clone());
                Ok(message)
            }
            SocketMessage::Binary(_) => bail!("a binary frame"),
            SocketMessage::Closed { code, reason } => Err(Closed { code, reason }.into()),
        }
    }

    /// Next message that is wanted; those before it are kept too.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let from = self.seen.len();
        loop {
            let message = match self.hear().await {
                Ok(message) => message,
                Err(error) => {
                    let seen = &self.seen[from..];
                    return Err(error.context(format!("waiting for {what} after {seen:#?}")));
                }
            };
            if wanted(&message) {
                return Ok(message);
            }
        }
    }

    /// Waits for the close: code and reason.
    pub(crate) async fn closed(&mut self) -> anyhow::Result<(u16, String)> {
        loop {
            if let Err(error) = self.hear().await {
                let closed: Closed = error.downcast()?;
                return Ok((closed.code, closed.reason));
            }
        }
    }

    /// Sends a message.
    pub(crate) async fn send(&mut self, message: Value) -> anyhow::Result<()> {
        Ok(self.socket.send_text(message.to_string()).await?)
    }

    /// Sends a request; gives its id.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        Ok(id)
    }

    /// The answer to a request, result or error.
    pub(crate) async fn answer_to(&mut self, id: u64) -> anyhow::Result<Value> {
        let is_it = |m: &Value| m.get("method").is_none() && m["id"] == json!(id);
        self.until("an answer", is_it).await
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        let id = self.request(method, params).await?;
        self.answer_to(id).await
    }

    /// Sends a prompt; gives its request's id.
    pub(crate) async fn prompt(&mut self, text: &str) -> anyhow::Result<u64> {
        let prompt = json!([{"type": "text", "text": text}]);
        let params = json!({"sessionId": self.conversation, "prompt": prompt});
        self.request("session/prompt", params).await
    }

    /// How the turn of a prompt sent here ends.
    pub(crate) async fn stop_reason(&mut self, prompt: u64) -> anyhow::Result<String> {
        let answer = self.answer_to(prompt).await?;
        let reason = answer["result"]["stopReason"].as_str();
        Ok(reason.with_context(|| answer.to_string())?.to_owned())
    }

    /// A whole turn: what the agent said, and how it ended.
    pub(crate) async fn turn(&mut self, text: &str) -> anyhow::Result<(String, String)> {
        let from = self.seen.len();
        let prompt = self.prompt(text).await?;
        let reason = self.stop_reason(prompt).await?;
        Ok((said(&self.seen[from..]), reason))
    }

    /// Cancels the turn.
    pub(crate) async fn cancel(&mut self) -> anyhow::Result<()> {
        let params = json!({"sessionId": self.conversation});
        self.send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}))
            .await
    }

    /// Waits until the agent asks for permission.
    pub(crate) async fn question(&mut self) -> anyhow::Result<Value> {
        self.until("a question", is_question).await
    }

    /// Answers a question with the first option of a kind.
    pub(crate) async fn choose(&mut self, question: &Value, kind: &str) -> anyhow::Result<()> {
        let options = question["params"]["options"].as_array();
        let option = options
            .and_then(|options| options.iter().find(|option| option["kind"] == kind))
            .with_context(|| format!("no {kind} in {question}"))?;
        let outcome = json!({"outcome": "selected", "optionId": option["optionId"]});
        let result = json!({"outcome": outcome});
        self.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": result}))
            .await
    }

    /// Waits until the agent has said so much of a slow answer.
    pub(crate) async fn words(&mut self, count: usize) -> anyhow::Result<()> {
        let last = format!("word{count} ");
        let from = self.seen.len();
        while !said(&self.seen[from..]).contains(&last) {
            self.hear().await.context(last.clone())?;
        }
        Ok(())
    }

    /// Waits until no turn is under way, as the daemon tells it.
    pub(crate) async fn idle(&mut self) -> anyhow::Result<()> {
        let newest = self.seen.iter().rfind(|m| state(m));
        if newest.is_some_and(is_idle) {
            return Ok(());
        }
        self.until("the end of the turn", is_idle).await.map(|_| ())
    }

    /// The number of the last event heard.
    pub(crate) fn last_number(&self) -> u64 {
        numbers(&self.seen).last().copied().unwrap_or(0)
    }
}

/// The session closed the connection.
#[derive(Debug)]
struct Closed {
    code: u16,
    reason: String,
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "closed with {}: {}", self.code, self.reason)
    }
}

impl std::error::Error for Closed {}

fn state(message: &Value) -> bool {
    message["method"] == "_handler/session_state"
}

fn is_idle(message: &Value) -> bool {
    state(message) && message["params"]["busy"] == false
}

/// Whether a message asks for permission.
pub(crate) fn is_question(message: &Value) -> bool {
    message["method"] == "session/request_permission"
}

/// The updates of one kind.
pub(crate) fn updates<'m>(
    messages: &'m [Value],
    kind: &str,
) -> impl DoubleEndedIterator<Item = &'m Value> {
    messages
        .iter()
        .filter(|m| m["method"] == "session/update")
        .map(|m| &m["params"]["update"])
        .filter(move |update| update["sessionUpdate"] == kind)
}

/// What the agent said, all chunks joined.
pub(crate) fn said(messages: &[Value]) -> String {
    updates(messages, "agent_message_chunk")
        .filter_map(|update| update["content"]["text"].as_str())
        .collect()
}

/// Numbers of the events among the messages.
pub(crate) fn numbers(messages: &[Value]) -> Vec<u64> {
    messages
        .iter()
        .filter_map(|m| m["params"]["_meta"]["handler.dev/seq"].as_u64())
        .collect()
}

/// What the model says on `PLAN:slow:<count>`.
pub(crate) fn slow_words(count: usize) -> String {
    let words = (1..=count).map(|nth| format!("word{nth}"));
    words.collect::<Vec<_>>().join(" ")
}
