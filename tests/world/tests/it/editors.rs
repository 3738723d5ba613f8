//! Editors: a client of the public ACP library at the other end of `handler acp`.

use crate::plain::stage::Plain;
use crate::sessions::{LONG, Stage};
use anyhow::{Context as _, ensure};
use handler_testkit::{World, skip};
use handler_types::agent::AgentRequest;
use handler_types::project::CreateProject;
use handler_types::session::SessionState;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The library and its version.
const LIBRARY: &str = "@agentclientprotocol/sdk@2.4.0";

/// An editor that runs.
struct Editor {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Editor {
    /// Starts it in a folder that has the library.
    fn start(stage: &Stage, library: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let program = World::program().context("no program")?;
        let mut process = Command::new("node")
            .arg(library.join("client.mjs"))
            .arg(program)
            .arg("acp")
            .args(args)
            .env_clear()
            .envs(stage.world.scratch().environment())
            .current_dir(library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().context("standard input")?;
        let output = process.stdout.take().context("standard output")?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    async fn say(&mut self, method: &str, params: Value, answer: &str) -> anyhow::Result<()> {
        let line = json!({"method": method, "params": params, "answer": answer});
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    async fn hear(&mut self) -> anyhow::Result<Value> {
        let line = tokio::time::timeout(LONG, self.output.next_line()).await??;
        Ok(serde_json::from_str(&line.context("the editor ended")?)?)
    }

    /// One request and what came of it: `result` or `error`, with the updates and questions meanwhile.
    async fn ask(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.say(method, params, "").await?;
        self.hear().await
    }

    /// Closes it; `handler acp` must end by itself, with 0.
    async fn end(mut self) -> anyhow::Result<()> {
        drop(self.input);
        let status = tokio::time::timeout(LONG, self.process.wait()).await??;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

/// The library in a folder of its own; none when this machine cannot get it, said loudly.
async fn library(test: &str) -> anyhow::Result<Option<tempfile::TempDir>> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("package.json"), r#"{"private":true}"#)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/editors/client.mjs");
    std::fs::copy(source, folder.path().join("client.mjs"))?;
    let installed = Command::new("npm")
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            LIBRARY,
        ])
        .current_dir(folder.path())
        .output()
        .await?;
    if installed.status.success() {
        return Ok(Some(folder));
    }
    let why = String::from_utf8_lossy(&installed.stderr);
    skip(test, &format!("{LIBRARY} cannot be had: {why}"));
    Ok(None)
}

fn text(updates: &Value) -> String {
    let chunk = |update: &Value| {
        let update = &update["update"];
        (update["sessionUpdate"] == "agent_message_chunk")
            .then(|| update["content"]["text"].as_str().map(str::to_owned))?
    };
    updates
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(chunk)
        .collect()
}

fn prompt(session: &Value, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

#[tokio::test]
async fn an_editor_works_with_an_agent_and_finds_it_again() -> anyhow::Result<()> {
    let test = "an editor works with an agent";
    let Some(mut stage) = Stage::set(test, &["claude-code"]).await? else {
        return Ok(());
    };
    let Some(library) = library(test).await? else {
        return Ok(());
    };
    let args = ["--harness", "claude-code", "--permissions", "ask"];
    let mut editor = Editor::start(&stage, library.path(), &args)?;
    let hello = json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": true}}});
    let answer = editor.ask("initialize", hello.clone()).await?;
    assert_eq!(
        answer["result"]["agentCapabilities"]["loadSession"], true,
        "{answer}"
    );
    let folder = json!({"cwd": &stage.project, "mcpServers": []});
    let answer = editor.ask("session/new", folder.clone()).await?;
    let session = answer["result"]["sessionId"].clone();
    let id = session.as_str().context("a session's id")?.to_owned();
    assert_eq!(
        stage.client().session(&id).await?.state,
        SessionState::Running
    );
    assert!(answer["result"]["modes"].is_object(), "{answer}");

    asked_and_answered(&stage, &mut editor, &session).await?;
    refused_clearly(&mut editor, &stage).await?;
    editor.end().await?;
    assert_eq!(
        stage.client().session(&id).await?.attached,
        0,
        "it goes on alone"
    );

    // Another window, another day: the daemon has been killed meanwhile.
    stage.world.kill9()?;
    stage.world.start_daemon().await?;
    let mut editor = Editor::start(&stage, library.path(), &args)?;
    editor.ask("initialize", hello).await?;
    let answer = editor
        .ask("session/list", json!({"cwd": &stage.project}))
        .await?;
    assert_eq!(
        answer["result"]["sessions"][0]["sessionId"], session,
        "{answer}"
    );
    let load = json!({"sessionId": session, "cwd": &stage.project, "mcpServers": []});
    let answer = editor.ask("session/load", load).await?;
    assert!(
        text(&answer["updates"]).contains("one two"),
        "the history: {answer}"
    );
    let answer = editor
        .ask("session/prompt", prompt(&session, "PLAN:text:three four"))
        .await?;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(text(&answer["updates"]).contains("three four"), "{answer}");
    editor
        .ask("session/close", json!({"sessionId": session}))
        .await?;
    stage.reaches(&id, SessionState::Stopped).await?;
    // A stopped session starts again for a prompt.
    let answer = editor
        .ask("session/prompt", prompt(&session, "PLAN:text:five six"))
        .await?;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    editor
        .ask("session/delete", json!({"sessionId": session}))
        .await?;
    assert!(stage.client().session(&id).await.is_err(), "it is removed");
    editor.end().await
}

#[tokio::test]
async fn in_a_project_an_editor_works_with_its_agent_and_options_are_never_ignored()
-> anyhow::Result<()> {
    let test = "an editor in a project";
    let Some(plain) = Plain::set(test).await? else {
        return Ok(());
    };
    let Some(library) = library(test).await? else {
        return Ok(());
    };
    let (stage, client) = (&plain.stage, plain.stage.client());
    let folder = stage.project.to_string_lossy().into_owned();
    client.delete_agent(plain.agent.id.as_str()).await?;
    let agents = ["Dev", "Other"].map(|name| AgentRequest {
        name: Some(name.into()),
        scope: None,
        ..crate::plain::stage::request(stage)
    });
    let project = CreateProject {
        folder: folder.clone(),
        agents: agents.into(),
        ..CreateProject::default()
    };
    let project = client.create_project(&project).await?;
    let id = |name: &str| {
        let mut agents = project.agents.iter();
        let agent = agents.find(|agent| agent.name.as_deref() == Some(name));
        agent.map(|agent| agent.id.clone())
    };
    for (args, agent, refused) in [
        (&[][..], id("Dev"), None),
        (&["my project/Other"], id("Other"), None),
        (&["scripted"], id("Dev"), None),
        (&["--no-agent", "--permissions", "ask"], None, None),
        (&["--network", "open"], None, Some("network")),
        (&["--model", "huge"], None, Some("its models")),
    ] {
        let mut editor = Editor::start(stage, library.path(), args)?;
        editor
            .ask("initialize", json!({"protocolVersion": 1}))
            .await?;
        let open = json!({"cwd": folder, "mcpServers": []});
        let answer = editor.ask("session/new", open).await?;
        if let Some(named) = refused {
            let said = answer["error"]["message"].as_str().unwrap_or_default();
            ensure!(
                said.contains(named) && said.contains("--save"),
                "{args:?}: {answer}"
            );
            editor.end().await?;
            continue;
        }
        let session = answer["result"]["sessionId"].as_str();
        let session = session.with_context(|| format!("{args:?}: {answer}"))?;
        let view = client.session(session).await?;
        ensure!(view.agent_id == agent, "{args:?}: {view:#?}");
        client.delete_session(session).await?;
        editor.end().await?;
    }
    Ok(())
}

async fn asked_and_answered(
    stage: &Stage,
    editor: &mut Editor,
    session: &Value,
) -> anyhow::Result<()> {
    let answer = editor
        .ask("session/prompt", prompt(session, "PLAN:text:one two"))
        .await?;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(text(&answer["updates"]).contains("one two"), "{answer}");
    assert!(
        answer["updates"]
            .as_array()
            .is_some_and(|all| all.iter().all(|one| one["sessionId"] == *session)),
        "one name for the conversation: {answer}"
    );
    let file = |name: &str| stage.project.join(name).display().to_string();
    for (choice, name, is_written) in [
        ("allow_once", "yes.txt", true),
        ("reject_once", "no.txt", false),
    ] {
        let task = format!("PLAN:write:{}|from the editor", file(name));
        editor
            .say("session/prompt", prompt(session, &task), choice)
            .await?;
        let answer = editor.hear().await?;
        assert_eq!(
            answer["questions"].as_array().map(Vec::len),
            Some(1),
            "{answer}"
        );
        assert_eq!(stage.read(name).is_ok(), is_written, "{answer}");
    }
    Ok(())
}

async fn refused_clearly(editor: &mut Editor, stage: &Stage) -> anyhow::Result<()> {
    let unknown = editor
        .ask("session/prompt", prompt(&json!("s_nothing"), "x"))
        .await?;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let outside = json!({"cwd": "/etc", "mcpServers": []});
    let outside = editor.ask("session/new", outside).await?;
    let said = outside["error"]["message"].as_str().unwrap_or_default();
    assert!(
        said.contains("choose a folder"),
        "it says what to do: {outside}"
    );
    let two = json!({"cwd": &stage.project, "mcpServers": [], "additionalDirectories": ["/etc"]});
    let two = editor.ask("session/new", two).await?;
    assert_eq!(two["error"]["code"], -32602, "{two}");
    Ok(())
}
