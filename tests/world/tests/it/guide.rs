//! The pages of the guide work as they are written.

use crate::harness::shared;
use crate::support::{LONG, text};
use anyhow::{Context as _, ensure};
use handler_scripted::{ScriptedConfig, ScriptedModel};
use handler_testkit::World;

/// The first page: what it says of models is led to a scripted one.
const FIRST: &str = include_str!("../../../../docs/guide/first-session.md");

/// What a person types, block by block.
fn blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("```sh\n").skip(1);
    blocks
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect()
}

/// Runs a block in a shell where `handler` is at hand, in a folder of the person's home.
async fn typed(world: &World, block: &str) -> anyhow::Result<String> {
    let program = World::program().context("handler is not built")?;
    let folder = text(program.parent().context("a folder")?)?;
    let mut command = tokio::process::Command::from(world.tool("bash"));
    let script = format!("set -eu; export PATH='{folder}':\"$PATH\"; cd; {block}");
    command.args(["-c", &script]);
    let output = tokio::time::timeout(LONG, command.output()).await??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{block}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn the_first_session_works_as_it_is_written() -> anyhow::Result<()> {
    let world = World::builder().env("HANDLER_PORT", "0").prepare()?;
    let model = ScriptedModel::start(ScriptedConfig::default())?;
    let blocks = blocks(FIRST);
    let [setup, provider, install, agent, session, away] = blocks[..] else {
        anyhow::bail!("the page has changed: {blocks:#?}");
    };
    typed(&world, setup).await?;
    let port = format!("127.0.0.1:{}", model.port());
    ensure!(provider.contains("127.0.0.1:8080"));
    typed(&world, &provider.replace("127.0.0.1:8080", &port)).await?;
    // Installed once for all tests of this suite.
    ensure!(install == "handler harness install pi\n");
    if !shared::provide("the first session", &world, &["pi"]).await? {
        return Ok(());
    }
    typed(&world, agent).await?;
    let shown = typed(&world, &format!("cd ~/code/hello\n{session}")).await?;
    ensure!(shown.contains("Hello from the scripted model"), "{shown}");
    ensure!(shown.contains("Say hello, and what you can see"), "{shown}");
    let asked = model.requests();
    ensure!(
        asked
            .iter()
            .any(|r| r.body.to_string().contains("Say hello, and what"))
    );
    typed(&world, away).await?;
    ensure!(world.processes().is_empty(), "{:?}", world.processes());
    world.assert_clean(LONG).await
}
