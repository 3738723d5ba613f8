//! What cannot be saved: everything that is wrong at once, risks by name, and nothing half-made.

use crate::sessions::Stage;
use crate::support::{alias, text};
use anyhow::{Context as _, ensure};
use handler_testkit::World;
use handler_types::Problem;
use handler_types::agent::{AgentRequest, ModelAccess};
use handler_types::project::{CreateProject, ProjectSettings};
use serde_json::json;

fn agent(name: &str) -> AgentRequest {
    AgentRequest {
        name: Some(name.into()),
        models: vec![ModelAccess {
            harness: Some("pi".into()),
            account: None,
            provider: Some("scripted".into()),
            model: None,
        }],
        ..AgentRequest::default()
    }
}

async fn refusal(stage: &Stage, asked: AgentRequest) -> anyhow::Result<Problem> {
    let made = stage.client().create_agent(&asked).await;
    let error = made.err().context("it was made")?;
    Ok(error.problem().context("no problem")?.clone())
}

#[tokio::test]
async fn everything_wrong_with_an_agent_is_told_at_once_and_nothing_is_made() -> anyhow::Result<()>
{
    let stage = Stage::with(World::start().await?).await?;
    let client = stage.client();
    let wrong: AgentRequest = serde_json::from_value(json!({
        "models": [
            {"provider": "nobody"},
            {"provider": "scripted", "model": "no-such"},
            {"provider": "scripted", "harness": "claude-code"},
            {"provider": "scripted", "harness": "claude-code"},
        ],
        "permissions": "bypass",
        "folders": [{"source": "/etc", "target": "relative"}],
        "secrets": {"A B": {"secret": "x", "hosts": []}},
        "limits": {"memoryMib": 1},
        "backend": "mainframe",
    }))?;
    let problem = refusal(&stage, wrong.clone()).await?;
    ensure!(
        problem.status == 400 && problem.title == "model access unusable",
        "{problem:?}"
    );
    for named in [
        "models[0]: there is no provider `nobody`",
        "models[1]:",
        "models[3]: it is there twice",
        "folders[0]: the target",
        "folders[0]: /etc",
        "no name of a variable",
        "name at least one host",
        "memoryMib",
        "mainframe",
    ] {
        let found = problem.reasons.iter().any(|text| text.contains(named));
        ensure!(found, "{named}: {:#?}", problem.reasons);
    }
    let asks = AgentRequest {
        permissions: handler_types::harness::PermissionMode::Ask,
        ..agent("Dev")
    };
    ensure!(refusal(&stage, asks).await?.title == "permission mode not offered");
    // A project comes with all its agents or not at all.
    let folder = text(&stage.project)?;
    let project = CreateProject {
        folder: folder.clone(),
        agents: vec![agent("Dev"), wrong],
        ..CreateProject::default()
    };
    let error = client
        .create_project(&project)
        .await
        .err()
        .context("made")?;
    ensure!(error.to_string().contains("agents[1]"), "{error}");
    let twice = CreateProject {
        agents: vec![agent("Dev"), agent("dev")],
        ..project.clone()
    };
    let error = client.create_project(&twice).await.err().context("made")?;
    ensure!(
        error
            .problem()
            .is_some_and(|p| p.title == "agent names must differ")
    );
    ensure!(client.projects("").await?.is_empty() && client.agents_of("").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_gives_an_agent_more_is_confirmed_by_name() -> anyhow::Result<()> {
    let stage = Stage::with(World::start().await?).await?;
    let client = stage.client();
    let open = AgentRequest {
        network: handler_types::network::NetworkPolicy::Open,
        ..agent("Wide")
    };
    let problem = refusal(&stage, open.clone()).await?;
    ensure!(
        problem.status == 409 && problem.title == "risks not confirmed",
        "{problem:?}"
    );
    ensure!(problem.reasons.len() == 1 && problem.reasons[0].contains("every public host"));
    let confirmed = AgentRequest {
        confirm_risks: true,
        ..open.clone()
    };
    let made = client.create_agent(&confirmed).await?;
    // It has it now: saving it again, or with less, needs no word.
    client.put_agent(made.id.as_str(), &open).await?;
    client.put_agent(made.id.as_str(), &agent("Narrow")).await?;
    let again = client.put_agent(made.id.as_str(), &open).await;
    ensure!(again.is_err(), "it was narrowed");
    // The flag that widens is the confirmation, and what it gives is said.
    let set = stage
        .world
        .cli(&["agent", "set", "Narrow", "--network", "open"])
        .await?;
    let said = String::from_utf8_lossy(&set.stderr).into_owned();
    ensure!(
        set.status.success() && said.contains("every public host"),
        "{said}"
    );
    let copy = stage
        .world
        .cli(&["agent", "copy", "Narrow", "Other"])
        .await?;
    ensure!(copy.status.code() == Some(3), "{copy:?}");
    stage
        .world
        .cli_ok(&["agent", "copy", "Narrow", "Other", "--confirm-risks"])
        .await?;
    let copied = client.agent("other").await?;
    ensure!(
        copied.id != made.id && copied.network == handler_types::network::NetworkPolicy::Open,
        "{copied:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_projects_folder_and_default_are_its_own_and_hosts_say_what_needs_them()
-> anyhow::Result<()> {
    let stage = Stage::with(World::start().await?).await?;
    let client = stage.client();
    let folder = text(&stage.project)?;
    let project = CreateProject {
        folder: folder.clone(),
        agents: vec![agent("Dev"), agent("Review")],
        ..CreateProject::default()
    };
    let made = client.create_project(&project).await?;
    ensure!(
        made.name == "my project" && made.agents.len() == 2,
        "{made:#?}"
    );
    ensure!(made.default_agent.as_ref() == Some(&made.agents[0].id));
    let error = client
        .create_project(&project)
        .await
        .err()
        .context("made twice")?;
    ensure!(
        error
            .problem()
            .is_some_and(|p| p.title == "folder already used")
    );
    let other = client.create_agent(&agent("Outside")).await?;
    let settings = ProjectSettings {
        folder,
        default_agent: Some(other.id),
        ..ProjectSettings::default()
    };
    let error = client
        .put_project("my project", &settings)
        .await
        .err()
        .context("changed")?;
    ensure!(error.problem().is_some_and(|p| p.title == "unknown agent"));
    let moved = AgentRequest {
        project_id: Some(made.id.clone()),
        ..agent("Outside")
    };
    let error = client
        .put_agent("Outside", &moved)
        .await
        .err()
        .context("moved")?;
    ensure!(
        error
            .problem()
            .is_some_and(|p| p.title == "home cannot change")
    );

    let needs: Vec<String> = made.agents[0].models[0]
        .required_hosts
        .iter()
        .map(|needed| format!("{} by {}", needed.host, needed.by))
        .collect();
    let host = alias(stage.model.port());
    ensure!(
        needs == [format!("{host} by provider scripted")],
        "{needs:?}"
    );
    client.delete_provider("scripted").await?;
    let now = client.project("my project").await?;
    let why = now.agents[0].problem.as_deref().unwrap_or_default();
    ensure!(why.contains("handler provider add"), "{why}");
    stage.world.cli_ok(&["project", "rm", "my project"]).await?;
    ensure!(
        client.agents_of("").await?.len() == 1,
        "only the one outside is left"
    );
    ensure!(stage.project.is_dir());
    Ok(())
}
