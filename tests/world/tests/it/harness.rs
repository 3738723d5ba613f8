//! Installing harnesses: inside a sandbox that reaches the package registry and nothing else, in one step.

mod genuine;
pub(crate) mod shared;

use crate::sessions::Stage;
use handler_client::events::Events;
use handler_testkit::{World, eventually, skip};
use handler_types::event::ServerEvent;
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::sandbox::SandboxView;
use shared::{donate, in_world, is_installed, turn, unreachable_registry};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

/// A world whose machine can make sandboxes and reach the registry.
async fn world(test: &str) -> anyhow::Result<Option<World>> {
    let Some(world) = Stage::bare(test).await? else {
        return Ok(None);
    };
    if let Some(why) = unreachable_registry("pi").await {
        skip(test, &why);
        return Ok(None);
    }
    Ok(Some(world))
}

/// Sandboxes made or changed until the daemon ends.
async fn sandboxes_seen(mut events: Events) -> anyhow::Result<Vec<SandboxView>> {
    let mut seen = Vec::new();
    // A stream that breaks with its daemon ends too.
    while let Ok(Some(event)) = events.next().await {
        anyhow::ensure!(event != ServerEvent::Missed, "events were missed");
        if let ServerEvent::Sandbox { sandbox } = event {
            seen.push(*sandbox);
        }
    }
    Ok(seen)
}

#[tokio::test]
async fn a_harness_is_installed_in_a_sandbox_that_reaches_the_registry_only() -> anyhow::Result<()>
{
    let Some(mut world) = world("harness install").await? else {
        return Ok(());
    };
    // Others wait for this installation instead of doing the same beside it.
    let own_turn = turn("pi").await?;
    let watched = tokio::spawn(sandboxes_seen(world.client().events().await?));
    let said = world.cli_ok(&["harness", "install", "pi"]).await?;
    assert!(
        said.starts_with("installed ") && said.contains("pi-acp"),
        "{said}"
    );
    assert_eq!(names(&world)?, ["pi"], "no staging folder is left");
    world.assert_clean(LONG).await?;

    let watched_again = tokio::spawn(sandboxes_seen(world.client().events().await?));
    assert_eq!(world.cli_ok(&["harness", "install", "pi"]).await?, said);
    let list = world.cli_ok(&["harness", "list"]).await?;
    let line = list.lines().find(|line| line.starts_with("pi "));
    let line = line.unwrap_or_default();
    assert!(
        line.contains("installed") && line.contains("pi-acp"),
        "{list}"
    );

    world.stop_daemon().await?;
    assert_eq!(watched_again.await??, [], "the second call makes nothing");
    let seen = watched.await??;
    let filtered = |sandbox: &SandboxView| match &sandbox.network {
        NetworkPolicy::Filtered { allow, enforcement } => {
            assert_eq!((allow.len(), *enforcement), (1, Enforcement::Enforce));
            true
        }
        NetworkPolicy::None => false,
        NetworkPolicy::Open => panic!("an open installation: {sandbox:?}"),
    };
    assert!(seen.iter().any(filtered), "{seen:?}");
    world.start_daemon().await?;
    assert!(is_installed(&world, "pi").await?, "found after a restart");
    donate(&world, "pi")?;
    drop(own_turn);
    Ok(())
}

#[tokio::test]
async fn an_interrupted_installation_leaves_nothing() -> anyhow::Result<()> {
    let Some(mut world) = world("interrupted install").await? else {
        return Ok(());
    };
    let client = world.client();
    let install = tokio::spawn(async move { client.install_harness("pi").await });
    let first = eventually("a package of an installation", LONG, || async {
        let staging = names(&world).ok()?;
        let staging = staging
            .iter()
            .find(|name| name.starts_with(".staging-pi-"))?;
        let modules = in_world(&world, staging).join("node_modules");
        std::fs::read_dir(modules).ok()?.next()?.ok()
    })
    .await?;
    assert!(first.path().exists(), "it is being filled");
    world.kill9()?;
    assert!(install.await?.is_err(), "the daemon is gone");
    world.start_daemon().await?;
    assert!(!is_installed(&world, "pi").await?);
    world.assert_clean(LONG).await?;
    eventually("the staging folder to go", LONG, || async {
        names(&world).ok().filter(Vec::is_empty)
    })
    .await?;
    Ok(())
}

/// What lies in the folder of harnesses.
fn names(world: &World) -> anyhow::Result<Vec<String>> {
    let folder = world.scratch().folder("data").join("harnesses");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}
