//! One agent at work: it edits the project folder, holds a stand-in for the key, and meets the filter.

use crate::sessions::log;
use crate::sessions::stage::{LONG, Stage, mentions};
use crate::sessions::viewer::{Viewer, updates};
use anyhow::Context as _;
use handler_client::audit::AuditWish;
use handler_testkit::{HttpOrigin, eventually};
use handler_types::api::ExecRequest;
use handler_types::audit::AuditWhat;
use handler_types::egress::{EgressDecision, EgressEvent};
use handler_types::network::HOST_ALIAS;
use serde_json::json;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[tokio::test]
async fn pi_works_with_a_stand_in_for_the_key_behind_the_filter() -> anyhow::Result<()> {
    works_alone("pi", "HANDLER_MODEL_KEY").await
}

#[tokio::test]
async fn claude_works_with_a_stand_in_for_the_key_behind_the_filter() -> anyhow::Result<()> {
    works_alone("claude-code", "ANTHROPIC_API_KEY").await
}

async fn works_alone(harness: &str, variable: &str) -> anyhow::Result<()> {
    let Some(stage) = Stage::set(&format!("{harness} alone"), &[harness]).await? else {
        return Ok(());
    };
    let origin = HttpOrigin::start().await?;
    let mut viewer = stage.open(&stage.request(harness)).await?;
    assert_eq!(viewer.agent["protocolVersion"], 1);

    writes_a_file(&stage, &mut viewer).await?;
    meets_the_filter(&stage, &mut viewer, &origin, variable).await?;
    holds_a_stand_in(&stage, &viewer, variable).await?;
    refuses_what_is_not_a_clients(&mut viewer).await?;
    key_is_nowhere(&stage)?;

    stage.client().stop_session(&viewer.id).await?;
    let (code, _) = viewer.closed().await?;
    assert_eq!(code, 4002, "stopped by a client");
    assert_eq!(
        log::how(&log::events(&stage.world, &viewer.id)?).as_deref(),
        Some("explicit")
    );
    stage.world.assert_clean(LONG).await?;
    key_is_nowhere(&stage)
}

async fn writes_a_file(stage: &Stage, viewer: &mut Viewer) -> anyhow::Result<()> {
    let path = stage.project.join("a file.txt");
    let prompt = format!("Write it. PLAN:write:{}|by an agent", path.display());
    let (said, reason) = viewer.turn(&prompt).await?;
    assert_eq!(reason, "end_turn");
    assert!(said.contains("is written."), "{said}");
    assert_eq!(stage.read("a file.txt")?.trim_end(), "by an agent");
    let owner = std::fs::metadata(&path)?.uid();
    assert_eq!(
        owner,
        rustix::process::getuid().as_raw(),
        "the caller owns it"
    );
    let done = updates(&viewer.seen, "tool_call_update").filter(|u| u["status"] == "completed");
    assert_eq!(done.count(), 1, "{:#?}", viewer.seen);
    // One request for the call, one with its result.
    assert_eq!(stage.asked("a file.txt").len(), 2);
    Ok(())
}

/// A host that is not listed answers 403; the stand-in goes to the model's host only.
async fn meets_the_filter(
    stage: &Stage,
    viewer: &mut Viewer,
    origin: &HttpOrigin,
    variable: &str,
) -> anyhow::Result<()> {
    let (said, _) = viewer.turn("PLAN:fetch:http://denied.example/page").await?;
    assert!(said.contains("403"), "{said}");
    let (said, _) = viewer
        .turn("PLAN:fetch:https://denied.example/page")
        .await?;
    assert!(said.contains("403"), "{said}");
    let listed = format!("http://{HOST_ALIAS}:{}", origin.port());
    let (said, _) = viewer
        .turn(&format!("PLAN:fetch:{listed}/unlisted"))
        .await?;
    assert!(said.contains("403"), "{said}");
    allow(stage, viewer, origin).await?;
    let (said, _) = viewer.turn(&format!("PLAN:fetch:{listed}/listed")).await?;
    assert!(said.contains("200"), "{said}");
    let (said, _) = viewer
        .turn(&format!("PLAN:leak:{variable}|{listed}/leak"))
        .await?;
    assert!(said.contains("handler_egress_leak"), "{said}");
    let arrived: Vec<String> = origin.requests().into_iter().map(|r| r.path).collect();
    assert_eq!(arrived, ["/listed"], "the leak did not leave");

    let told = |decision: EgressDecision, host: &str| {
        let host = host.to_owned();
        move |e: &EgressEvent| e.decision == decision && e.host == host
    };
    let model = format!("{HOST_ALIAS}:{}", stage.model.port());
    let leaked = format!("{HOST_ALIAS}:{}", origin.port());
    for wanted in [
        told(EgressDecision::Denied, "denied.example:80"),
        told(EgressDecision::Denied, "denied.example:443"),
        told(EgressDecision::Leak, &leaked),
        told(EgressDecision::Injected, &model),
    ] {
        eventually("an event of the filter", LONG, || async {
            let events = egress(stage, viewer).await.ok()?;
            events.into_iter().find(&wanted)
        })
        .await?;
    }
    let events = egress(stage, viewer).await?;
    let leak = events.iter().find(|e| e.decision == EgressDecision::Leak);
    let secret = leak.and_then(|event| event.secret.clone());
    assert!(
        secret.is_some_and(|name| name.contains("scripted")),
        "{leak:?}"
    );
    Ok(())
}

/// Lets the agent reach the origin, while it runs: what it asked for is known by the session, and an entry on the
/// list of its sandbox is one of the session, for later starts too.
async fn allow(stage: &Stage, viewer: &Viewer, origin: &HttpOrigin) -> anyhow::Result<()> {
    let listed = format!("{HOST_ALIAS}:{}", origin.port());
    let client = stage.client();
    eventually("the host to be learnt", LONG, || async {
        let learnt = client.session_learn(&viewer.id).await.ok()?;
        let mut missing = learnt.hosts.iter().filter_map(|host| host.entry.as_ref());
        missing.find(|entry| entry.to_string() == listed)?;
        Some(())
    })
    .await?;
    let inside = sandbox(stage, viewer).await?;
    stage
        .world
        .cli_ok(&["network", "allow", &inside, &listed])
        .await?;
    let shown = stage.world.cli_ok(&["network", "show", &viewer.id]).await?;
    anyhow::ensure!(shown.contains(&listed), "{shown}");
    let about = AuditWish {
        session: Some(viewer.id.clone()),
        host: Some(listed),
        ..AuditWish::default()
    };
    let records = client.audit(&about).await?.records;
    let is_told = records.iter().any(|record| {
        matches!(&record.what, AuditWhat::Policy { change } if change.session.is_some() && change.added.len() == 1)
    });
    anyhow::ensure!(is_told, "{records:#?}");
    Ok(())
}

async fn egress(stage: &Stage, viewer: &Viewer) -> anyhow::Result<Vec<EgressEvent>> {
    Ok(stage
        .client()
        .sandbox_egress(&sandbox(stage, viewer).await?)
        .await?)
}

async fn sandbox(stage: &Stage, viewer: &Viewer) -> anyhow::Result<String> {
    let view = stage.client().session(&viewer.id).await?;
    Ok(view.sandbox_id.context("no sandbox")?.to_string())
}

/// The model saw the key; the agent has something of its form instead.
async fn holds_a_stand_in(stage: &Stage, viewer: &Viewer, variable: &str) -> anyhow::Result<()> {
    let asked = stage.asked("a file.txt");
    assert!(
        asked.iter().all(|r| r.key().as_ref() == Some(&stage.key)),
        "{asked:?}"
    );
    // Whatever else the agent asks for, nobody else's key arrives.
    let refused = stage
        .model
        .requests()
        .into_iter()
        .filter(|r| r.status == 401)
        .count();
    assert_eq!(refused, 0);

    let script = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'";
    let request = ExecRequest {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        ..ExecRequest::default()
    };
    let inside = stage
        .client()
        .exec(&sandbox(stage, viewer).await?, &request)
        .await?;
    let assignment = format!("{variable}=");
    let held = inside
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(&assignment));
    let held = held.context("no stand-in")?;
    assert_eq!(held.len(), stage.key.len());
    assert!(held.starts_with("sk-ant-api03-") && held != stage.key);
    assert!(!inside.stdout.contains(&stage.key), "the key is inside");
    assert!(
        !stage
            .model
            .requests()
            .iter()
            .any(|request| mentions(request, held))
    );

    for process in stage.world.processes() {
        for file in ["environ", "cmdline"] {
            let path = format!("/proc/{}/{file}", process.pid);
            let text = std::fs::read(path).unwrap_or_default();
            assert!(!contains(&text, &stage.key), "{file} of {:?}", process.argv);
        }
    }
    Ok(())
}

/// A client is no way into the agent's setup, nor to files and terminals of anybody.
async fn refuses_what_is_not_a_clients(viewer: &mut Viewer) -> anyhow::Result<()> {
    let session = viewer.conversation.clone();
    for (method, code) in [
        ("fs/read_text_file", -32601),
        ("fs/write_text_file", -32601),
        ("terminal/create", -32601),
        ("authenticate", -32601),
        ("session/new", -32010),
        ("session/resume", -32010),
    ] {
        let params = json!({"sessionId": session, "cwd": "/", "path": "/etc/passwd"});
        let answer = viewer.call(method, params).await?;
        assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
    }
    let elsewhere = json!({"sessionId": session, "cwd": "/etc", "mcpServers": []});
    let answer = viewer.call("session/load", elsewhere).await?;
    assert_eq!(answer["error"]["code"], -32001, "{answer}");
    Ok(())
}

/// Session folder, event log, daemon log, database, sealed secrets, agent's state, sandbox's home.
fn key_is_nowhere(stage: &Stage) -> anyhow::Result<()> {
    let mut files = Vec::new();
    list(stage.world.scratch().path(), &mut files)?;
    assert!(
        files.iter().any(|file| file.ends_with("events.ndjson")),
        "{files:?}"
    );
    assert!(
        files.iter().any(|file| file.ends_with("handler.db")),
        "{files:?}"
    );
    for file in files {
        let content = std::fs::read(&file).unwrap_or_default();
        assert!(
            !contains(&content, &stage.key),
            "the key is in {}",
            file.display()
        );
    }
    Ok(())
}

/// All plain files below a folder; links are not followed.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len())
        .any(|window| window == part.as_bytes())
}
