//! Knowledge folders (contract D.5): what an agent may read and nothing else.

use crate::sessions::Stage;
use crate::support::{LONG, text};
use anyhow::{Context as _, ensure};
use handler_client::ClientError;
use handler_types::agent::AgentRequest;
use handler_types::knowledge::{KnowledgeFolderRequest, KnowledgeSource, SetKnowledgeRootRequest};
use handler_types::project::CreateProject;
use handler_types::session::{CreateSession, SessionState};
use std::os::unix::fs::symlink;
use std::path::Path;

/// A root with notes, and a way out of it.
fn notes(root: &Path, outside: &Path) -> anyhow::Result<()> {
    for folder in ["rust/async", "go", "deep/go", ".private", "_drafts"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    std::fs::write(root.join("rust/index.md"), "# Rust\nOwn it.\n")?;
    std::fs::write(root.join("go/a.md"), "gopher\n")?;
    std::fs::create_dir_all(outside)?;
    symlink(outside, root.join("out"))?;
    Ok(())
}

fn titled<T>(answer: Result<T, ClientError>, status: u16, title: &str) -> anyhow::Result<String> {
    let error = answer.err().context("it was not refused")?;
    let problem = error.problem().context("no problem")?;
    ensure!(
        (problem.status, problem.title.as_str()) == (status, title),
        "{problem:?}"
    );
    Ok(problem.detail.clone())
}

fn agent(stage: &Stage, knowledge: &[&str]) -> AgentRequest {
    let mut agent: AgentRequest = serde_json::from_value(serde_json::json!({
        "name": "Dev", "models": [{"provider": "scripted", "harness": "pi"}],
    }))
    .unwrap_or_default();
    agent.knowledge = knowledge.iter().map(|&folder| folder.to_owned()).collect();
    agent.scope = text(&stage.project).ok();
    agent
}

#[tokio::test]
async fn an_agent_reads_the_folders_it_was_given_and_writes_none() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("knowledge folders", &["pi"]).await? else {
        return Ok(());
    };
    let client = stage.client();
    let root = stage.world.scratch().folder("home").join("knowledge");
    notes(&root, &stage.world.work().join("outside"))?;

    let asked = agent(&stage, &["rust/", "go", "./rust"]);
    let made = client.create_agent(&asked).await?;
    ensure!(made.knowledge == ["go", "rust"], "{made:#?}");
    let request = CreateSession {
        agent_id: Some(made.id.clone()),
        ..CreateSession::default()
    };
    let mut viewer = stage.open(&request).await?;
    let look = "cat /knowledge/*/*.md > seen.txt; ls -A /knowledge >> seen.txt; \
        (touch /knowledge/rust/x && echo wrote) >> seen.txt 2>&1; echo end >> seen.txt";
    viewer.turn(&format!("PLAN:shell:{look}")).await?;
    let seen = stage.read("seen.txt")?;
    ensure!(seen.ends_with("end\n"), "{seen}");
    ensure!(
        seen.contains("Own it.") && seen.contains("gopher"),
        "{seen}"
    );
    ensure!(seen.contains("\ngo\nrust\n"), "{seen}");
    ensure!(!seen.contains("wrote") && !root.join("rust/x").exists());
    client.stop_session(&viewer.id).await?;
    stage.reaches(&viewer.id, SessionState::Stopped).await?;

    // K3: looked at again by each start.
    std::fs::rename(root.join("go"), root.join("moved"))?;
    let shown = client.agent(made.id.as_str()).await?;
    ensure!(
        shown
            .problem
            .is_some_and(|p| p.contains("go does not exist"))
    );
    let again = stage.client().create_session(&request).await;
    let why = titled(again, 400, "knowledge unusable")?;
    ensure!(why.contains("go does not exist"), "{why}");

    // Folders stay relative: they follow another root.
    let other = stage.world.work().join("notes");
    notes(&other, &stage.world.work().join("outside"))?;
    let to = SetKnowledgeRootRequest {
        root: Some(text(&other)?),
        create: false,
    };
    client.set_knowledge_root(&to).await?;
    let now = client.agent(made.id.as_str()).await?;
    ensure!(now.problem.is_none(), "{now:#?}");
    client.delete_agent(made.id.as_str()).await?;
    stage.world.assert_clean(LONG).await
}

#[tokio::test]
async fn what_may_not_be_read_is_refused_under_the_contracts_titles() -> anyhow::Result<()> {
    let stage = Stage::with(handler_testkit::World::start().await?).await?;
    let client = stage.client();
    let listing = client.knowledge().await?;
    ensure!(listing.source == KnowledgeSource::Default && !listing.exists);
    let root = stage.world.work().join("notes");
    let to = |create| SetKnowledgeRootRequest {
        root: text(&root).ok(),
        create,
    };
    const UNUSABLE: &str = "knowledge unusable";
    titled(client.set_knowledge_root(&to(false)).await, 400, UNUSABLE)?;
    let listing = client.set_knowledge_root(&to(true)).await?;
    ensure!(listing.exists && listing.folders.is_empty(), "{listing:?}");
    notes(&root, &stage.world.work().join("outside"))?;
    let listing = client.knowledge().await?;
    ensure!(
        listing.folders == ["deep", "deep/go", "go", "rust", "rust/async"],
        "{listing:?}"
    );
    for wrong in [
        &["out"][..],
        &[".private"],
        &["none"],
        &["/etc"],
        &["go", "deep/go"],
        &["rust", "rust/async"],
    ] {
        titled(
            client.create_agent(&agent(&stage, wrong)).await,
            400,
            UNUSABLE,
        )?;
    }
    let project = CreateProject {
        folder: text(&stage.project)?,
        agents: vec![AgentRequest {
            scope: None,
            ..agent(&stage, &["out"])
        }],
        ..CreateProject::default()
    };
    titled(client.create_project(&project).await, 400, UNUSABLE)?;
    let view = client.browse_knowledge("rust").await?;
    ensure!(view.index.as_deref() == Some("index.md") && view.folders == ["async"]);
    ensure!(client.knowledge_note("go/a.md").await?.text == "gopher\n");
    for path in ["out", ".private", "../x", "go/none.md"] {
        titled(client.browse_knowledge(path).await, 400, UNUSABLE)?;
        titled(client.knowledge_note(path).await, 400, UNUSABLE)?;
    }
    let new = |path: &str| KnowledgeFolderRequest { path: path.into() };
    ensure!(client.make_knowledge_folder(&new("go/new")).await?.path == "go/new");
    let twice = client.make_knowledge_folder(&new("go/new")).await;
    titled(twice, 409, "knowledge conflict")?;
    for path in ["_x", "go/.x", "out/x", "none/x"] {
        titled(
            client.make_knowledge_folder(&new(path)).await,
            400,
            UNUSABLE,
        )?;
    }
    let typed = |args: &[&str]| {
        let mut command = stage.world.command();
        command.args(args).output()
    };
    let said = typed(&["knowledge", "list"])?;
    ensure!(
        String::from_utf8(said.stdout)?
            .lines()
            .any(|line| line == "go/new")
    );
    let said = typed(&["knowledge", "root", "--default", "--json"])?;
    ensure!(String::from_utf8(said.stdout)?.contains("\"default\""));
    Ok(())
}

#[tokio::test]
async fn the_environments_root_cannot_be_changed() -> anyhow::Result<()> {
    let world = handler_testkit::World::builder()
        .env("HANDLER_KNOWLEDGE_DIR", "/nowhere/knowledge")
        .start()
        .await?;
    let client = world.client();
    let listing = client.knowledge().await?;
    ensure!(
        listing.source == KnowledgeSource::Env && !listing.exists,
        "{listing:?}"
    );
    let to = SetKnowledgeRootRequest::default();
    titled(
        client.set_knowledge_root(&to).await,
        409,
        "knowledge conflict",
    )?;
    Ok(())
}
