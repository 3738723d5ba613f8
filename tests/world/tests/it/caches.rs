//! Caches (contract D.8, A.9): a project's agents find what was kept, others do not, and clearing waits for sandboxes.

use crate::sessions::Stage;
use crate::support::{LONG, text};
use anyhow::{Context as _, ensure};
use handler_client::ClientError;
use handler_types::agent::{AgentRequest, AgentView};
use handler_types::cache::CachesRequest;
use handler_types::project::{CachesChoice, CreateProject, ProjectSettings, ProjectView};
use handler_types::session::{CreateSession, SessionState};
use std::path::Path;

fn titled<T>(answer: Result<T, ClientError>, status: u16, title: &str) -> anyhow::Result<String> {
    let error = answer.err().context("it was not refused")?;
    let problem = error.problem().context("no problem")?;
    ensure!(
        (problem.status, problem.title.as_str()) == (status, title),
        "{problem:?}"
    );
    Ok(problem.detail.clone())
}

fn agent() -> AgentRequest {
    serde_json::from_value(serde_json::json!({
        "name": "Dev", "models": [{"provider": "scripted", "harness": "pi"}],
    }))
    .unwrap_or_default()
}

async fn project(
    stage: &Stage,
    folder: &Path,
    caches: CachesChoice,
) -> anyhow::Result<ProjectView> {
    std::fs::create_dir_all(folder)?;
    let request = CreateProject {
        folder: text(folder)?,
        caches,
        agents: vec![agent()],
        ..CreateProject::default()
    };
    Ok(stage.client().create_project(&request).await?)
}

/// Runs a command line as the project's agent does; what it printed. The session goes on.
async fn runs(stage: &Stage, agent: &AgentView, script: &str) -> anyhow::Result<(String, String)> {
    let request = CreateSession {
        agent_id: Some(agent.id.clone()),
        ..CreateSession::default()
    };
    let mut viewer = stage.open(&request).await?;
    viewer
        .turn(&format!(
            "PLAN:shell:({script}) > out.txt 2>&1; echo end >> out.txt"
        ))
        .await?;
    let folder = agent.scope.clone().context("no folder")?;
    let said = std::fs::read_to_string(Path::new(&folder).join("out.txt"))?;
    ensure!(said.ends_with("end\n"), "{said}");
    Ok((said, viewer.id.clone()))
}

async fn stops(stage: &Stage, session: &str) -> anyhow::Result<()> {
    stage.client().stop_session(session).await?;
    stage.reaches(session, SessionState::Stopped).await?;
    Ok(())
}

const WRITE: &str = "echo kept > ~/.npm/x; mkdir -p ~/.cache/closed; echo kept > ~/.cache/closed/y; \
    ln -s /etc/passwd ~/.npm/link; chmod 0 ~/.cache/closed";

#[tokio::test]
async fn a_projects_agents_share_its_caches_and_clearing_is_refused_while_a_sandbox_has_them()
-> anyhow::Result<()> {
    let Some(stage) = Stage::set("caches", &["pi"]).await? else {
        return Ok(());
    };
    let client = stage.client();
    let own = project(&stage, &stage.project, CachesChoice::Project).await?;
    let (_, first) = runs(&stage, &own.agents[0], WRITE).await?;
    let in_use = client.clear_project_cache(own.id.as_str(), "npm").await;
    let why = titled(in_use, 409, "cache in use")?;
    ensure!(why.contains(&first), "{why}");
    let in_use = client.clear_project_caches(own.id.as_str()).await;
    titled(in_use, 409, "cache in use")?;
    stops(&stage, &first).await?;

    // Another session of it finds what was kept; another project's, and one without, do not.
    let look = "cat ~/.npm/x";
    let (said, second) = runs(&stage, &own.agents[0], look).await?;
    ensure!(said.starts_with("kept\n"), "{said}");
    stops(&stage, &second).await?;
    for (name, caches) in [("other", CachesChoice::Global), ("none", CachesChoice::Off)] {
        let other = project(&stage, &stage.world.work().join(name), caches).await?;
        let (said, session) = runs(&stage, &other.agents[0], look).await?;
        ensure!(said.contains("No such file"), "{name}: {said}");
        stops(&stage, &session).await?;
    }

    let info = client.caches().await?;
    let kept = info
        .own
        .iter()
        .find(|own_caches| own_caches.project_id == own.id);
    let kept = kept.context("its caches")?;
    ensure!(
        kept.caches.iter().any(|name| name == "npm") && kept.removed.is_empty(),
        "{kept:?}"
    );
    ensure!(
        info.global.projects.len() == 1 && info.off.len() == 1,
        "{info:#?}"
    );
    let sizes = client.cache_sizes().await?;
    let size = sizes
        .own
        .get(own.id.as_str())
        .and_then(|of| of.get("cache"));
    ensure!(size.is_some_and(|size| *size >= 8192), "{sizes:?}");
    client.clear_project_cache(own.id.as_str(), "cache").await?;
    let folder = Path::new(&kept.folder);
    ensure!(std::fs::read_dir(folder.join("cache"))?.next().is_none());
    ensure!(folder.join("npm/x").exists(), "only the one that was named");
    client.clear_project_caches(own.id.as_str()).await?;
    ensure!(std::fs::read_dir(folder.join("npm"))?.next().is_none());

    client.delete_project(own.id.as_str()).await?;
    ensure!(!folder.exists(), "they go with the project");
    stage.world.assert_clean(LONG).await
}

#[tokio::test]
async fn caches_are_declared_where_they_can_be_and_shared_ones_cleared_by_name()
-> anyhow::Result<()> {
    let stage = Stage::with(handler_testkit::World::start().await?).await?;
    let client = stage.client();
    let toolbox = stage
        .world
        .scratch()
        .folder("config")
        .join("toolbox/toolbox.toml");
    let before = std::fs::read_to_string(&toolbox)?;
    let names = |info: &handler_types::cache::CachesInfo| -> Vec<String> {
        info.caches.iter().map(|cache| cache.name.clone()).collect()
    };
    let info = client.caches().await?;
    ensure!(
        names(&info) == ["cache", "cargo", "npm", "podman"],
        "{info:?}"
    );
    let asked = |name: &str, target: &str| -> anyhow::Result<CachesRequest> {
        let caches = serde_json::json!({ name: {"target": target}, "npm": {"target": "~/.npm"} });
        Ok(serde_json::from_value(
            serde_json::json!({ "caches": caches }),
        )?)
    };
    for (name, target) in [
        ("a", "~"),
        ("a", "/"),
        ("a", "/etc"),
        ("a", "~/../x"),
        ("a", "~/.npm"),
        ("A", "~/a"),
        ("a", "~/.claude"),
    ] {
        let refused = client.set_caches(&asked(name, target)?).await;
        titled(refused, 400, "caches refused")?;
    }
    ensure!(std::fs::read_to_string(&toolbox)? == before, "as it was");

    let shared = stage.world.scratch().folder("cache");
    std::fs::create_dir_all(shared.join("cargo/registry"))?;
    let info = client.set_caches(&asked("go", "~/go/pkg")?).await?;
    ensure!(
        names(&info) == ["go", "npm"] && info.global.removed == ["cargo"],
        "{info:?}"
    );
    ensure!(
        std::fs::read_to_string(&toolbox)?.starts_with('#'),
        "comments stay"
    );
    ensure!(client.cache_sizes().await?.global.contains_key("cargo"));
    titled(client.clear_cache("none").await, 404, "cache not found")?;
    titled(
        client.clear_cache(".host-npm").await,
        404,
        "cache not found",
    )?;
    titled(
        client.clear_project_caches("none").await,
        404,
        "project not found",
    )?;
    client.clear_cache("go").await?;
    client.clear_cache("cargo").await?;
    ensure!(!shared.join("cargo").exists(), "nobody declares it");
    client.clear_caches().await?;

    let folder = stage.project.clone();
    let typed = |args: &[&str]| {
        let mut command = stage.world.command();
        command.args(args).current_dir(&folder).output()
    };
    for args in [
        &["project", "add", "--caches", "global"][..],
        &["cache", "set", "pip", "~/.cache/pip", "--about", "wheels"],
        &["cache", "set", "go", "--off"],
        &["cache", "clear"],
        &["cache", "clear", "pip", "--project", "my project"],
    ] {
        let output = typed(args)?;
        ensure!(output.status.success(), "{args:?}: {output:?}");
    }
    let listed = String::from_utf8(typed(&["cache", "list", "--sizes"])?.stdout)?;
    ensure!(
        listed.contains("wheels") && !listed.contains("go/pkg"),
        "{listed}"
    );
    let own = client.project("my project").await?;
    ensure!(own.caches == CachesChoice::Global);
    let settings = ProjectSettings {
        folder: own.folder,
        caches: CachesChoice::Off,
        ..ProjectSettings::default()
    };
    client.put_project(own.id.as_str(), &settings).await?;
    ensure!(client.caches().await?.off.len() == 1);
    Ok(())
}
