//! An agent at work in its project: by command line, with its instructions, its network changed under way.

use crate::sessions::Stage;
use crate::sessions::viewer::Viewer;
use crate::support::{LONG, alias};
use anyhow::{Context as _, ensure};
use handler_testkit::{HttpOrigin, eventually};
use handler_types::agent::AgentView;
use handler_types::audit::AuditWhat;
use handler_types::session::{CreateSession, SessionState};
use std::path::Path;
use std::process::Output;

/// Runs `handler` in a folder.
async fn typed(stage: &Stage, folder: &Path, args: &[&str]) -> anyhow::Result<Output> {
    let mut command = tokio::process::Command::from(stage.world.command());
    command.args(args).current_dir(folder);
    Ok(tokio::time::timeout(LONG, command.output()).await??)
}

/// The same; it must end well. Gives what it printed.
async fn ok(stage: &Stage, folder: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = typed(stage, folder, args).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{args:?}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The same; it must be refused with this code and name this.
async fn refused(stage: &Stage, args: &[&str], code: i32, named: &str) -> anyhow::Result<()> {
    let output = typed(stage, &stage.project, args).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(code), "{args:?}: {said}");
    ensure!(said.contains(named), "{args:?}: no {named} in {said}");
    Ok(())
}

async fn with_agent(stage: &Stage) -> anyhow::Result<AgentView> {
    ok(stage, &stage.project, &["project", "add"]).await?;
    let add = [
        "agent",
        "add",
        "Dev",
        "--instructions",
        "Mind the gap.",
        "--idle-timeout",
        "600",
    ];
    ok(stage, &stage.project, &add).await?;
    Ok(stage.client().agent("my project/dev").await?)
}

#[tokio::test]
async fn a_task_in_a_projects_folder_goes_to_its_agent_as_the_agent_is_set_up() -> anyhow::Result<()>
{
    let Some(stage) = Stage::set("an agent's task", &["pi"]).await? else {
        return Ok(());
    };
    let agent = with_agent(&stage).await?;
    ensure!(agent.default && agent.problem.is_none(), "{agent:#?}");
    let host = alias(stage.model.port());
    let shown = ok(&stage, &stage.project, &["agent", "show", "dev"]).await?;
    ensure!(
        shown.contains(&format!("needs {host}")) && shown.contains("provider scripted"),
        "{shown}"
    );

    let inner = stage.project.join("inner");
    std::fs::create_dir(&inner)?;
    let task = format!(
        "Write it. PLAN:write:{}|by Dev",
        stage.project.join("a.txt").display()
    );
    ok(&stage, &inner, &["run", &task]).await?;
    ensure!(stage.read("a.txt")?.trim_end() == "by Dev");
    let asked = stage.asked("a.txt");
    ensure!(!asked.is_empty());
    ensure!(
        asked
            .iter()
            .all(|r| r.body.to_string().contains("Mind the gap.\\n\\nWrite it.")),
        "{asked:#?}"
    );
    let of_project = ok(&stage, &inner, &["session", "list", "--json"]).await?;
    let sessions: serde_json::Value = serde_json::from_str(&of_project)?;
    ensure!(sessions[0]["agentId"] == agent.id.as_str(), "{sessions}");
    ensure!(sessions[0]["projectId"] == agent.project_id.clone().context("project")?.as_str());
    let title = sessions[0]["title"].as_str().unwrap_or_default();
    ensure!(title.starts_with("Write it."), "{title}");

    options(&stage, &agent).await?;
    stage.client().delete_agent(agent.id.as_str()).await?;
    stage.world.assert_clean(LONG).await
}

/// What differs from the agent's settings is refused or saved.
async fn options(stage: &Stage, agent: &AgentView) -> anyhow::Result<()> {
    let otherwise = ["run", "PLAN:text:never", "--allow", "a.example:443"];
    refused(stage, &otherwise, 2, "--save").await?;
    refused(
        stage,
        &["run", "PLAN:text:never", "--model", "no"],
        2,
        "its models",
    )
    .await?;
    let outside = [
        "run",
        "PLAN:text:never",
        "--no-agent",
        "--permissions",
        "ask",
    ];
    refused(stage, &outside, 2, "bypass").await?;
    ensure!(stage.asked("never").is_empty());
    let saved = [
        "run",
        "PLAN:text:saved",
        "--allow",
        "a.example:443",
        "--save",
    ];
    ok(stage, &stage.project, &saved).await?;
    let now = stage.client().agent(agent.id.as_str()).await?;
    let listed = serde_json::to_value(&now.network)?;
    ensure!(
        listed["allow"] == serde_json::json!(["a.example:443"]),
        "{listed}"
    );
    let request = CreateSession {
        agent_id: Some(agent.id.clone()),
        network: Some(handler_types::network::NetworkPolicy::Open),
        ..CreateSession::default()
    };
    let error = stage.client().create_session(&request).await.err();
    let problem = error.as_ref().and_then(|error| error.problem());
    ensure!(
        problem.is_some_and(|p| p.status == 409 && p.detail.contains("network")),
        "{error:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_agents_list_changes_in_its_running_session_and_it_takes_them_along_when_it_goes()
-> anyhow::Result<()> {
    let Some(stage) = Stage::set("an agent's network", &["pi"]).await? else {
        return Ok(());
    };
    let origin = HttpOrigin::start().await?;
    let host = alias(origin.port());
    let agent = with_agent(&stage).await?;
    let request = CreateSession {
        agent_id: Some(agent.id.clone()),
        ..CreateSession::default()
    };
    let mut viewer = stage.open(&request).await?;
    let fetch = format!("PLAN:fetch:http://{host}/page");
    let asks = async |viewer: &mut Viewer| Ok::<_, anyhow::Error>(viewer.turn(&fetch).await?.0);
    ensure!(asks(&mut viewer).await?.contains("403"));
    ok(&stage, &stage.project, &["network", "allow", "Dev", &host]).await?;
    ensure!(asks(&mut viewer).await?.contains("200"));
    let shown = ok(&stage, &stage.project, &["network", "show", &viewer.id]).await?;
    ensure!(shown.contains(&host), "{shown}");
    ok(&stage, &stage.project, &["network", "block", "Dev", &host]).await?;
    ensure!(asks(&mut viewer).await?.contains("403"));
    let records = stage.client().audit(&Default::default()).await?.records;
    let told = |record: &&handler_types::audit::AuditRecord| matches!(&record.what, AuditWhat::Policy { change } if change.agent.as_ref() == Some(&agent.id));
    ensure!(records.iter().filter(told).count() == 2, "{records:#?}");
    events(&stage, &agent, &viewer.id, &host).await?;

    removed(&stage, &agent, &viewer.id).await?;
    stage.world.assert_clean(LONG).await
}

/// What its sandboxes asked for is told of the agent, and its list is switched.
async fn events(stage: &Stage, agent: &AgentView, session: &str, host: &str) -> anyhow::Result<()> {
    let told = stage.client().agent_egress(agent.id.as_str()).await?;
    let of_host: Vec<&str> = told
        .iter()
        .filter(|event| event.host == host && event.connection == session)
        .map(|event| event.decision.as_str())
        .collect();
    ensure!(
        of_host.first() == Some(&"denied") && of_host.contains(&"allowed"),
        "{told:#?}"
    );
    ensure!(
        told.iter()
            .any(|event| event.decision.as_str() == "injected" && event.secret.is_some())
    );
    let shown = ok(stage, &stage.project, &["agent", "network", "Dev"]).await?;
    ensure!(shown.contains(host) && shown.contains("denied"), "{shown}");
    let said = ok(
        stage,
        &stage.project,
        &["agent", "network", "Dev", "log-only"],
    )
    .await?;
    ensure!(said.contains("log-only"), "{said}");
    ok(
        stage,
        &stage.project,
        &["agent", "network", "Dev", "enforce"],
    )
    .await?;
    Ok(())
}

/// The session stops, stays readable with its folder, and cannot go on.
async fn removed(stage: &Stage, agent: &AgentView, session: &str) -> anyhow::Result<()> {
    ok(stage, &stage.project, &["agent", "rm", "Dev"]).await?;
    let view = stage.reaches(session, SessionState::Stopped).await?;
    ensure!(view.agent_id.as_ref() == Some(&agent.id) && view.sandbox_id.is_none());
    let folder = stage
        .world
        .scratch()
        .folder("state")
        .join("sessions")
        .join(session);
    ensure!(folder.join("events.ndjson").exists(), "its history stays");
    let state = stage.world.scratch().folder("data").join("agent-state");
    ensure!(!state.join(agent.id.as_str()).exists());
    let why = eventually("a refusal to go on", LONG, || async {
        let output = typed(stage, &stage.project, &["attach", session])
            .await
            .ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then_some(said)
    })
    .await?;
    ensure!(why.contains("its agent was removed"), "{why}");
    let gone = stage.client().agent(agent.id.as_str()).await.err();
    ensure!(gone.is_some_and(|e| e.problem().is_some_and(|p| p.title == "agent not found")));
    Ok(())
}
