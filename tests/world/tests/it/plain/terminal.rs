//! D.16: the program's own terminal on a person's: sized, typed on, its code passed on, its sandbox gone with it.

use super::stage::{HARNESS, Plain};
use crate::sessions::stage::LONG;
use anyhow::{Context as _, ensure};
use handler_client::Client;
use handler_testkit::eventually;
use handler_types::agent::ModelAccess;
use handler_types::agent_terminal::{TerminalStart, TerminalStarted};

#[tokio::test]
async fn a_programs_own_terminal_is_a_persons_own() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("an agent's terminal").await? else {
        return Ok(());
    };
    let world = &plain.stage.world;
    let args = ["terminal", "Dev", "--", "--resume", "it"];
    let mut tty = world.on_tty(&args, (91, 31))?;
    // The kind of terminal, its size, the agent's instructions, the person's arguments.
    tty.until("terminal xterm-256color 91x31").await?;
    tty.until("--append-system-prompt Mind the gap. --resume it")
        .await?;
    tty.until("--permission-mode default").await?;
    tty.type_in("hello\r")?;
    tty.until("you said hello").await?;
    tty.resize((77, 22))?;
    tty.until("resized 77 22").await?;
    tty.type_in("\u{3}")?;
    tty.until("interrupted").await?;
    tty.type_in("exit 9\r")?;
    ensure!(tty.ended().await? == 9, "the program's own code");
    // One that is over before anybody could attach: its words and its code are heard all the same.
    let mut tty = world.on_tty(&["terminal", "Dev", "--", "--at-once", "5"], (80, 24))?;
    ensure!(tty.ended().await? == 5, "{}", tty.text());
    ensure!(tty.text().contains("--at-once 5"), "{}", tty.text());
    plain.no_sandbox().await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn a_terminal_goes_on_when_the_daemon_is_killed_and_closes_with_its_window()
-> anyhow::Result<()> {
    let Some(mut plain) = Plain::set("a terminal and its daemon").await? else {
        return Ok(());
    };
    let tty = plain.stage.world.on_tty(&["terminal", "Dev"], (80, 24))?;
    tty.until("terminal xterm-256color 80x24").await?;
    plain.stage.world.kill9()?;
    plain.stage.world.start_daemon().await?;
    tty.type_in("still there\r")?;
    tty.until("you said still there").await?;
    // The window is closed: its program is killed with it, at the latest when nobody has come back.
    drop(tty);
    plain.no_sandbox().await?;
    plain.stage.world.assert_clean(LONG).await
}

async fn start(client: &Client, agent: &str) -> anyhow::Result<TerminalStarted> {
    let request = TerminalStart {
        term: Some("xterm".into()),
        ..TerminalStart::default()
    };
    Ok(client.start_agent_terminal(agent, &request).await?)
}

#[tokio::test]
async fn a_terminal_that_ended_while_the_daemon_was_away_leaves_nothing() -> anyhow::Result<()> {
    let Some(mut plain) = Plain::set("a terminal that ended unseen").await? else {
        return Ok(());
    };
    let client = plain.stage.client();
    let started = start(&client, plain.agent.id.as_str()).await?;
    ensure!(started.attach.contains(&started.sandbox.to_string()));
    let all = client.terminals(started.sandbox.as_str()).await?;
    ensure!(
        all.len() == 1 && all[0].terminal == started.terminal,
        "{all:#?}"
    );
    // Its agent is removed: so is it.
    client.delete_agent(plain.agent.id.as_str()).await?;
    plain.no_sandbox().await?;
    // Killed at any step of a start: the next daemon removes what has no terminal.
    let asked = crate::plain::stage::request(&plain.stage);
    let agent = plain.stage.client().create_agent(&asked).await?;
    for step in 0..6 {
        let client = plain.stage.client();
        let id = agent.id.to_string();
        let starting = tokio::spawn(async move { start(&client, &id).await.is_ok() });
        tokio::time::sleep(std::time::Duration::from_millis(40 * step)).await;
        plain.stage.world.kill9()?;
        starting.await?;
        plain.stage.world.start_daemon().await?;
        let client = plain.stage.client();
        let settled = || async {
            let page = client.sandboxes("", 10).await.ok()?;
            for view in page.items {
                let terminals = client.terminals(view.id.as_str()).await.ok()?;
                if terminals.len() != 1 {
                    return None;
                }
                client.delete_sandbox(view.id.as_str()).await.ok()?;
            }
            Some(())
        };
        let why = format!("step {step}: each sandbox has its terminal");
        eventually(&why, LONG, settled).await?;
    }
    plain.no_sandbox().await?;
    plain.stage.world.assert_clean(LONG).await
}

#[tokio::test]
async fn what_cannot_start_is_said_and_makes_nothing() -> anyhow::Result<()> {
    let Some(plain) = Plain::set("terminals refused").await? else {
        return Ok(());
    };
    let client = plain.stage.client();
    let id = plain.agent.id.as_str();
    let model = |provider: &str| {
        Some(ModelAccess {
            harness: Some(HARNESS.into()),
            account: None,
            provider: Some(provider.into()),
            model: None,
        })
    };
    for (agent, request, status, title) in [
        ("nobody", TerminalStart::default(), 404, "agent not found"),
        (
            id,
            TerminalStart {
                model: model("nobody"),
                ..TerminalStart::default()
            },
            400,
            "model access unusable",
        ),
        (
            id,
            TerminalStart {
                term: Some("a b".into()),
                ..TerminalStart::default()
            },
            400,
            "invalid request",
        ),
        (
            id,
            TerminalStart {
                folder: "/etc".into(),
                ..TerminalStart::default()
            },
            403,
            "path not allowed",
        ),
    ] {
        let error = client.start_agent_terminal(agent, &request).await.err();
        let problem = error.as_ref().and_then(|error| error.problem());
        let problem = problem.with_context(|| format!("{request:?} was taken"))?;
        ensure!(
            (problem.status, problem.title.as_str()) == (status, title),
            "{request:?}: {problem:?}"
        );
    }
    let page = client.sandboxes("", 10).await?;
    ensure!(page.items.is_empty(), "{page:#?}");
    plain.stage.world.assert_clean(LONG).await
}

#[tokio::test]
async fn outside_projects_a_provider_is_enough_and_options_are_never_ignored() -> anyhow::Result<()>
{
    let Some(plain) = Plain::set("a terminal by provider").await? else {
        return Ok(());
    };
    let world = &plain.stage.world;
    plain
        .stage
        .client()
        .delete_agent(plain.agent.id.as_str())
        .await?;
    let folder = plain.stage.project.to_string_lossy().into_owned();
    let with = |more: &[&str]| {
        let args = [&["terminal", "scripted", folder.as_str()], more].concat();
        world.on_tty(&args, (80, 24))
    };
    let mut tty = with(&["--permissions", "accept-edits"])?;
    tty.until("--permission-mode acceptEdits").await?;
    tty.type_in("exit 0\r")?;
    ensure!(tty.ended().await? == 0);
    let agents = plain.stage.client().agents_of("").await?;
    ensure!(
        agents.len() == 1 && agents[0].scope.as_deref() == Some(folder.as_str()),
        "the folder's own agent: {agents:#?}"
    );
    // As it was set up; what differs is asked about, and no starts nothing.
    let mut tty = with(&["--permissions", "ask"])?;
    tty.until("Save this to the agent? [y/N]").await?;
    tty.type_in("n\r")?;
    ensure!(tty.ended().await? == 2);
    let mut tty = with(&["--permissions", "ask", "--save"])?;
    tty.until("--permission-mode default").await?;
    tty.type_in("exit 0\r")?;
    ensure!(tty.ended().await? == 0);
    let agents = plain.stage.client().agents_of("").await?;
    ensure!(agents.len() == 1, "the same agent: {agents:#?}");
    plain.no_sandbox().await?;
    world.assert_clean(LONG).await
}
