//! Claude Code on an account, whose vendor is ours: it works, and its token is nowhere but in the filter.

use super::vendor::{Vendor, world};
use crate::planted::everywhere::{self, Everywhere, Heard};
use crate::search::{ArgvWatch, holds, spellings};
use crate::sessions::stage::LONG;
use crate::sessions::viewer::Viewer;
use crate::support::{Sandbox, project, show, text};
use anyhow::{Context as _, ensure};
use handler_testkit::World;
use handler_types::account::{AccountStatus, AccountView};
use handler_types::agent::{AgentRequest, ModelAccess};
use handler_types::project::CreateProject;
use handler_types::session::{CreateSession, SessionState};

const HOSTS: [&str; 2] = ["api.anthropic.com", "platform.claude.com"];

fn token() -> String {
    format!("sk-ant-oat01-{}", handler_base::random::hex(40))
}

async fn account(world: &World, name: &str) -> anyhow::Result<AccountView> {
    let all = world.client().accounts().await?;
    let found = all.into_iter().find(|account| account.name == name);
    found.context(name.to_owned())
}

fn on(name: &str) -> ModelAccess {
    ModelAccess {
        account: Some(name.to_owned()),
        ..ModelAccess::default()
    }
}

/// A turn, which the vendor must have answered.
async fn turn(viewer: &mut Viewer, vendor: &Vendor, word: &str) -> anyhow::Result<()> {
    let (said, reason) = viewer.turn(&format!("PLAN:text:{word}")).await?;
    ensure!(
        said.contains(word) && reason == "end_turn",
        "{said} {reason}"
    );
    let asked = vendor.model.requests();
    let mut answered = asked.iter().filter(|r| r.body.to_string().contains(word));
    ensure!(answered.next().is_some(), "{asked:#?}");
    Ok(())
}

#[tokio::test]
async fn a_pasted_token_runs_an_agent_and_is_nowhere_but_in_the_filter() -> anyhow::Result<()> {
    let (test, token) = ("a_pasted_token_runs_an_agent", token());
    let Some((mut world, vendor)) = world(test, "claude-code", &HOSTS, &token, &[]).await? else {
        return Ok(());
    };
    let wanted = spellings(&token);
    let watch = ArgvWatch::start(wanted.clone());
    let heard = Heard::start(&world)?;
    let add = [
        "account",
        "add",
        "perso",
        "claude-code",
        "--plan",
        "max",
        "--token",
    ];
    let added = world.cli_with_input(&add, token.as_bytes()).await?;
    ensure!(added.status.success(), "{}", show(&added.stderr));
    let view = account(&world, "perso").await?;
    ensure!(
        view.status == AccountStatus::Ready && view.logged_in_at.is_some(),
        "{view:?}"
    );
    ensure!(view.expires_at > view.logged_in_at, "{view:?}");

    let folder = project(&world, "app")?;
    let made = CreateProject {
        folder: text(&folder)?,
        agents: vec![AgentRequest {
            name: Some("Dev".into()),
            models: vec![on("perso")],
            ..AgentRequest::default()
        }],
        ..CreateProject::default()
    };
    let made = world.client().create_project(&made).await?;
    let agent = &made.agents[0];
    ensure!(agent.problem.is_none(), "{agent:#?}");
    let needs = &agent.models[0].required_hosts;
    ensure!(
        needs.len() == 2 && needs.iter().all(|n| n.by == "account perso"),
        "{needs:?}"
    );
    let request = CreateSession {
        agent_id: Some(agent.id.clone()),
        ..CreateSession::default()
    };
    let view = world.client().create_session(&request).await?;
    ensure!(
        view.account.as_deref() == Some("perso") && view.provider.is_none(),
        "{view:?}"
    );
    let mut viewer = Viewer::attach(&world.client(), view.id.as_str(), 0).await?;
    turn(&mut viewer, &vendor, "Answered").await?;
    let state = world.scratch().folder("data").join("agent-state");
    ensure!(
        state
            .join(agent.id.as_str())
            .join("claude-code@perso")
            .is_dir()
    );
    ensure!(account(&world, "perso").await?.sessions == 1);

    let view = world.client().session(view.id.as_str()).await?;
    let sandbox = Sandbox {
        client: world.client(),
        id: view.sandbox_id.context("a sandbox")?.to_string(),
    };
    let inside = sandbox
        .out("env; cat -- ~/.claude/* ~/.claude/.* 2>/dev/null; true")
        .await?;
    ensure!(
        inside.contains("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-"),
        "{inside}"
    );
    ensure!(
        inside.contains("CLAUDE_CODE_SUBSCRIPTION_TYPE=max"),
        "{inside}"
    );
    ensure!(!holds(inside.as_bytes(), &wanted), "the token is inside");
    let everywhere = Everywhere {
        test,
        world: &world,
        sandbox: &sandbox,
        wanted: &wanted,
        stand_in: &token[..13],
    };
    everywhere.answers(1).await?;
    everywhere
        .processes(crate::planted::filter(&world)?)
        .await?;
    everywhere.folders_inside()?;
    let (_, seen) = watch.finish();
    ensure!(seen.is_empty(), "arguments: {seen:?}");
    heard.has_not(&wanted, "")?;
    logged_out(&world, &view.id.to_string()).await?;
    world.stop_daemon().await?;
    everywhere::files(&world, &wanted)
}

/// Without its login an agent does not start, and says what to do; a session of it cannot go on.
async fn logged_out(world: &World, session: &str) -> anyhow::Result<()> {
    world.client().stop_session(session).await?;
    world.cli_ok(&["account", "logout", "perso"]).await?;
    let view = account(world, "perso").await?;
    ensure!(view.status == AccountStatus::Incomplete, "{view:?}");
    let agents = world.client().agents_of("").await?;
    let problem = agents[0].problem.clone().unwrap_or_default();
    ensure!(problem.contains("handler account token perso"), "{problem}");
    let refused = world.cli(&["attach", session]).await?;
    let told = show(&refused.stderr);
    ensure!(
        !refused.status.success() && told.contains("not logged in"),
        "{told}"
    );
    let view = world.client().session(session).await?;
    ensure!(view.state == SessionState::Stopped, "{view:?}");
    // For the search: the store still has something in it.
    world
        .cli_with_input(&["secret", "set", "left", "--file", "-"], b"something-else")
        .await?;
    Ok(())
}

#[tokio::test]
async fn tokens_kept_elsewhere_run_agents_and_are_in_no_answer_no_file_and_no_sandbox()
-> anyhow::Result<()> {
    let (test, token) = ("tokens_kept_elsewhere", token());
    let env = [("PLANTED_TOKEN", token.as_str())];
    let Some((mut world, vendor)) = world(test, "claude-code", &HOSTS, &token, &env).await? else {
        return Ok(());
    };
    let wanted = spellings(&token);
    let watch = ArgvWatch::start(wanted.clone());
    // Outside of everything that is searched.
    let own = tempfile::tempdir()?;
    let file = text(own.path().join("token"))?;
    std::fs::write(&file, format!("{token}\n"))?;
    let command = format!("cat {file}");
    for (name, flag, place) in [
        ("of-env", "--token-env", "PLANTED_TOKEN"),
        ("of-file", "--token-file", &file),
        ("of-command", "--token-command", &command),
    ] {
        world
            .cli_ok(&["account", "add", name, "claude-code", flag, place])
            .await?;
        let folder = project(&world, name)?;
        let request = CreateSession {
            scope: text(&folder)?,
            account: Some(name.into()),
            ..CreateSession::default()
        };
        let view = world.client().create_session(&request).await?;
        let mut viewer = Viewer::attach(&world.client(), view.id.as_str(), 0).await?;
        turn(
            &mut viewer,
            &vendor,
            &format!("By{}", name.replace('-', "")),
        )
        .await?;
        let view = world.client().session(view.id.as_str()).await?;
        let sandbox = Sandbox {
            client: world.client(),
            id: view.sandbox_id.context("a sandbox")?.to_string(),
        };
        let inside = sandbox
            .out("env; cat -- ~/.claude/* ~/.claude/.* 2>/dev/null; true")
            .await?;
        ensure!(
            !holds(inside.as_bytes(), &wanted),
            "{name}: the token is inside"
        );
        let everywhere = Everywhere {
            test,
            world: &world,
            sandbox: &sandbox,
            wanted: &wanted,
            stand_in: &token[..13],
        };
        everywhere.answers(1).await?;
        everywhere.folders_inside()?;
        world.client().stop_session(view.id.as_str()).await?;
    }
    let (_, seen) = watch.finish();
    ensure!(seen.is_empty(), "arguments: {seen:?}");
    world.assert_clean(LONG).await?;
    // For the search: the store has something in it.
    world
        .cli_with_input(
            &["secret", "set", "other", "--file", "-"],
            b"something-else",
        )
        .await?;
    world.stop_daemon().await?;
    everywhere::files(&world, &wanted)
}
