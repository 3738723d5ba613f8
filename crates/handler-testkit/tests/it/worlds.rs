//! A world's daemon lives and dies as told, and nothing of it stays.

use anyhow::Context as _;
use handler_testkit::{Leftover, World, WorldBuilder, eventually};
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

fn builder() -> WorldBuilder {
    World::builder().program(env!("CARGO_BIN_EXE_testkit-stand-in"))
}

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn a_started_daemon_answers_on_socket_and_port() -> anyhow::Result<()> {
    let world = builder().start().await?;
    let pid = world.daemon_pid().context("runs")?;
    assert_eq!(world.client().health().await?.pid, pid);
    assert_eq!(world.tcp_client()?.health().await?.pid, pid);
    assert_eq!(world.token()?, "stand-in");
    world.assert_clean(SOON).await
}

#[tokio::test]
async fn a_killed_daemon_is_gone_and_another_one_starts_on_the_same_folders() -> anyhow::Result<()>
{
    let mut world = builder().start().await?;
    let first = world.daemon_pid().context("runs")?;
    std::fs::write(world.work().join("kept"), "x")?;
    world.kill9()?;
    assert!(!alive(first) && world.daemon_pid().is_none());
    assert!(world.kill9().is_err(), "none runs");
    world.restart().await?;
    let second = world.daemon_pid().context("runs")?;
    assert_ne!(first, second);
    assert!(world.start_daemon().await.is_err(), "one runs already");
    world.restart().await?;
    assert!(!alive(second) && world.work().join("kept").exists());
    assert!(world.stop_daemon().await?.success());
    Ok(())
}

#[tokio::test]
async fn what_outlives_the_daemon_is_left_over_until_it_ends() -> anyhow::Result<()> {
    let mut world = builder().flag("--sandbox").start().await?;
    world.kill9()?;
    let left = world.leftovers();
    let init = |l: &Leftover| matches!(l, Leftover::Process(m) if m.argv[1] == "init");
    assert!(left.iter().any(init), "{left:?}");
    assert!(left.iter().any(|l| matches!(l, Leftover::Folder(_))));
    assert_eq!(left.len(), 2, "the filter is no leftover: {left:?}");
    let text = world.assert_clean(Duration::ZERO).await.expect_err("left");
    assert!(text.to_string().contains(" --owner="));
    std::fs::remove_dir_all(world.scratch().folder("state").join("sandboxes"))?;
    world.assert_clean(SOON).await
}

#[tokio::test]
async fn a_dropped_world_takes_everything_with_it() -> anyhow::Result<()> {
    let world = builder().flag("--sandbox").start().await?;
    let pids: Vec<u32> = world
        .processes()
        .iter()
        .map(|member| member.pid.unsigned_abs())
        .collect();
    assert_eq!(pids.len(), 3, "daemon, sandbox, filter");
    let scratch = world.scratch().path().to_owned();
    drop(world);
    assert!(!scratch.exists());
    // Without a parent that waits for them they may stay in the table for a moment, as zombies.
    eventually("the end of all processes", SOON, || {
        let gone = pids.iter().all(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|argv| argv.is_empty())
                || !alive(*pid)
        });
        std::future::ready(gone.then_some(()))
    })
    .await
}

#[tokio::test]
async fn worlds_beside_each_other_do_not_see_each_other() -> anyhow::Result<()> {
    let one = builder().flag("--sandbox").start().await?;
    let two = builder().start().await?;
    assert_eq!(two.processes().len(), 1);
    drop(two);
    assert_eq!(one.processes().len(), 3);
    Ok(())
}

#[tokio::test]
async fn a_command_gets_input_and_gives_output_and_status() -> anyhow::Result<()> {
    let world = builder().prepare()?;
    let big = vec![b'y'; 1 << 20];
    let output = world.cli_with_input(&["echo"], &big).await?;
    assert!(output.status.success() && output.stdout == big);
    assert!(!world.cli(&["fail"]).await?.status.success());
    let error = world.cli_ok(&["fail"]).await.expect_err("failed");
    assert!(error.to_string().contains("it failed"));
    Ok(())
}

#[tokio::test]
async fn a_daemon_that_ends_at_once_is_reported_with_its_words() -> anyhow::Result<()> {
    let mut world = builder()
        .env("HANDLER_RUNTIME_DIR", "/proc/nonexistent")
        .prepare()?;
    let error = world.start_daemon().await.expect_err("ends");
    assert!(error.to_string().contains("No such file"), "{error}");
    assert!(world.daemon_pid().is_none());
    Ok(())
}

#[tokio::test]
async fn the_environment_of_the_test_stays_outside() -> anyhow::Result<()> {
    let world = builder().env("HANDLER_EXTRA", "1").prepare()?;
    let command = world.command();
    let names: Vec<_> = command
        .get_envs()
        .map(|(name, _)| name.to_owned())
        .collect();
    assert!(names.iter().any(|name| name == "HANDLER_EXTRA"));
    assert!(
        names
            .iter()
            .all(|name| !name.to_string_lossy().starts_with("CARGO"))
    );
    let socket = world.scratch().socket();
    assert!(socket.as_os_str().len() < 60, "{}", socket.display());
    Ok(())
}
