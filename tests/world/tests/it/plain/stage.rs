//! A world with an agent whose program is a script, and a client of its ACP endpoint.

use crate::sessions::stage::LONG;
use crate::sessions::{Stage, viewer::said};
use anyhow::{Context as _, bail, ensure};
use handler_client::{Client, Socket, SocketMessage};
use handler_testkit::{World, eventually};
use handler_types::agent::{AgentRequest, AgentView, ModelAccess};
use handler_types::harness::PermissionMode;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;

/// The program.
const PROGRAM: &str = include_str!("program.py");
/// The agent program it stands in for.
pub(crate) const HARNESS: &str = "claude-code";

/// A world with an agent.
pub(crate) struct Plain {
    pub(crate) stage: Stage,
    pub(crate) agent: AgentView,
}

impl Plain {
    /// All of it; none when this machine has no sandboxes, said loudly.
    pub(crate) async fn set(test: &str) -> anyhow::Result<Option<Self>> {
        let Some(world) = Stage::bare(test).await? else {
            return Ok(None);
        };
        install(&world)?;
        let stage = Stage::with(world).await?;
        let agent = stage.client().create_agent(&request(&stage)).await?;
        Ok(Some(Self { stage, agent }))
    }

    /// Its endpoint, with this query.
    pub(crate) fn path(&self, query: &str) -> String {
        format!("/v1/agents/{}/acp{query}", self.agent.id)
    }

    /// A connection, past `initialize` and `session/new`.
    pub(crate) async fn open(&self) -> anyhow::Result<Talk> {
        let mut talk = self.connect("").await?;
        let opened = talk.call("session/new", self.folder()).await?;
        ensure!(
            opened["result"]["sessionId"] == SESSION,
            "session/new: {opened}"
        );
        Ok(talk)
    }

    /// A connection, past `initialize`.
    pub(crate) async fn connect(&self, query: &str) -> anyhow::Result<Talk> {
        let mut talk = Talk::connect(&self.stage.client(), &self.path(query)).await?;
        let hello = json!({"protocolVersion": 1, "clientCapabilities": {"terminal": true,
            "fs": {"readTextFile": true, "writeTextFile": true}, "elicitation": {"form": {}}}});
        talk.hello = talk.call("initialize", hello).await?;
        Ok(talk)
    }

    /// Parameters that open a conversation in the agent's folder.
    pub(crate) fn folder(&self) -> Value {
        json!({"cwd": &self.stage.project, "mcpServers": []})
    }

    /// Waits until no sandbox is left.
    pub(crate) async fn no_sandbox(&self) -> anyhow::Result<()> {
        let gone = || async {
            let page = self.stage.client().sandboxes("", 10).await.ok()?;
            page.items.is_empty().then_some(())
        };
        eventually("no sandbox", LONG, gone).await
    }
}

/// Puts the program where an installed one would be.
fn install(world: &World) -> anyhow::Result<()> {
    let descriptor = handler_harness::descriptor(HARNESS).context("a descriptor")?;
    let plan = handler_harness::install_plan(descriptor, &format!("/handler/harness/{HARNESS}"))
        .context("a plan")?;
    let prefix = crate::harness::shared::in_world(world, HARNESS).join(plan.digest);
    // Every one of its programs is run by the Node.js it brings.
    let program = prefix.join("node_modules/.bin/node");
    std::fs::create_dir_all(program.parent().context("a folder")?)?;
    std::fs::write(&program, PROGRAM)?;
    let is_executable = std::fs::Permissions::from_mode(0o755);
    Ok(std::fs::set_permissions(&program, is_executable)?)
}

pub(crate) fn request(stage: &Stage) -> AgentRequest {
    AgentRequest {
        name: Some("Dev".into()),
        models: vec![ModelAccess {
            harness: Some(HARNESS.into()),
            account: None,
            provider: Some("scripted".into()),
            model: None,
        }],
        scope: Some(stage.project.to_string_lossy().into_owned()),
        permissions: PermissionMode::Ask,
        instructions: Some("Mind the gap.".into()),
        ..AgentRequest::default()
    }
}

/// The program's name for a conversation.
pub(crate) const SESSION: &str = "conversation-1";

/// A client of the endpoint; it keeps all it hears.
pub(crate) struct Talk {
    pub(crate) socket: Socket,
    next: u64,
    pub(crate) hello: Value,
    pub(crate) seen: Vec<Value>,
}

impl Talk {
    pub(crate) async fn connect(client: &Client, path: &str) -> anyhow::Result<Self> {
        Ok(Self {
            socket: client.socket(path, "acp.v1").await?,
            next: 0,
            hello: Value::Null,
            seen: Vec::new(),
        })
    }

    /// The next message.
    pub(crate) async fn hear(&mut self) -> anyhow::Result<Value> {
        match self.next().await? {
            SocketMessage::Text(text) => {
                let message: Value = serde_json::from_str(&text)?;
                self.seen.push(message.clone());
                Ok(message)
            }
            other => bail!("{other:?} after {:?}", self.seen.last()),
        }
    }

    async fn next(&mut self) -> anyhow::Result<SocketMessage> {
        let heard = tokio::time::timeout(LONG, self.socket.next()).await;
        heard.with_context(|| format!("silence after {:?}", self.seen.last()))
    }

    /// How it is closed: code and reason.
    pub(crate) async fn closed(&mut self) -> anyhow::Result<(u16, String)> {
        loop {
            match self.next().await? {
                SocketMessage::Closed { code, reason } => return Ok((code, reason)),
                SocketMessage::Text(_) | SocketMessage::Binary(_) => {}
            }
        }
    }

    pub(crate) async fn send(&mut self, message: Value) -> anyhow::Result<()> {
        Ok(self.socket.send_text(message.to_string()).await?)
    }

    /// Sends a request and waits for its answer, result or error.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        let id = self.ask(method, params).await?;
        loop {
            let message = self.hear().await?;
            if message.get("method").is_none() && message["id"] == json!(id) {
                return Ok(message);
            }
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> anyhow::Result<u64> {
        let id = self.next;
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        Ok(id)
    }

    /// Sends a prompt without waiting.
    pub(crate) async fn prompt(&mut self, text: &str) -> anyhow::Result<u64> {
        let prompt = json!([{"type": "text", "text": text}]);
        self.ask(
            "session/prompt",
            json!({"sessionId": SESSION, "prompt": prompt}),
        )
        .await
    }

    /// A whole turn: what the program said.
    pub(crate) async fn turn(&mut self, text: &str) -> anyhow::Result<String> {
        let from = self.seen.len();
        let id = self.prompt(text).await?;
        loop {
            let message = self.hear().await?;
            if message.get("method").is_none() && message["id"] == json!(id) {
                ensure!(message["result"]["stopReason"] == "end_turn", "{message}");
                return Ok(said(&self.seen[from..]));
            }
        }
    }
}
