//! Bad surroundings: a port in use, a second daemon, folders of others, a full disk.

use crate::input::message;
use crate::support::{Sandbox, has_tools, is_root, open_work, show, world};
use anyhow::Context as _;
use handler_testkit::{World, skip};
use std::process::Output;

#[tokio::test]
async fn a_port_in_use_and_a_second_daemon_are_told_in_one_message() -> anyhow::Result<()> {
    let world = world().await?;
    let second = tokio::process::Command::from(serve(&world, "0"))
        .output()
        .await?;
    let told = message(&second, 1)?;
    let pid = world.daemon_pid().context("it runs")?.to_string();
    assert!(
        told.contains(&pid) && told.contains("handler daemon stop"),
        "{told}"
    );
    // The first one was not disturbed.
    assert_eq!(world.client().health().await?.pid.to_string(), pid);
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    let other = World::builder().prepare()?;
    let refused = tokio::process::Command::from(serve(&other, &port))
        .output()
        .await?;
    let told = message(&refused, 1)?;
    assert!(told.contains(&port) && told.contains("--port"), "{told}");
    let by_hand = other_start(&other, &port).await?;
    assert!(show(&by_hand.stderr).contains("--port"), "{by_hand:?}");
    assert_eq!(by_hand.status.code(), Some(1));
    let mut wrong = other.command();
    wrong.args(["serve"]).env("HANDLER_PORT", "many");
    let told = message(&tokio::process::Command::from(wrong).output().await?, 1)?;
    assert!(
        told.contains("HANDLER_PORT") && told.contains("many"),
        "{told}"
    );
    assert!(other.leftovers().is_empty(), "{:?}", other.leftovers());
    Ok(())
}

fn serve(world: &World, port: &str) -> std::process::Command {
    let mut command = world.command();
    command.args(["serve", "--port", port]);
    command
}

/// `handler daemon start` on a port that is taken.
async fn other_start(world: &World, port: &str) -> anyhow::Result<Output> {
    let mut command = world.command();
    command.args(["daemon", "start"]).env("HANDLER_PORT", port);
    Ok(tokio::process::Command::from(command).output().await?)
}

#[tokio::test]
async fn a_folder_that_others_can_write_is_refused() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::builder().prepare()?;
    let config = world.scratch().folder("config");
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o777))?;
    let told = message(
        &tokio::process::Command::from(serve(&world, "0"))
            .output()
            .await?,
        1,
    )?;
    assert!(
        told.contains("written by others") && told.contains("chmod"),
        "{told}"
    );
    Ok(())
}

#[tokio::test]
async fn a_full_disk_is_told_in_one_message_and_works_again_when_there_is_room()
-> anyhow::Result<()> {
    const NAME: &str = "a_full_disk_is_told_in_one_message";
    if !is_root() {
        skip(NAME, "only root can mount a small file system");
        return Ok(());
    }
    if !has_tools(NAME, &["dd"]) {
        return Ok(());
    }
    let mut world = World::builder().prepare()?;
    let state = world.scratch().folder("state");
    let options = c"size=4m,mode=0700";
    let flags = rustix::mount::MountFlags::empty();
    if let Err(error) = rustix::mount::mount("hw-small", &state, "tmpfs", flags, options) {
        skip(NAME, &format!("nothing can be mounted: {error}"));
        return Ok(());
    }
    let filler = state.join("filler");
    let fill = || {
        let mut file = std::fs::File::create(&filler)?;
        let block = [1_u8; 4096];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
        while std::io::Write::write_all(&mut file, &block[..1]).is_ok() {}
        anyhow::Ok(())
    };
    // Full before the first start: the daemon says so and ends.
    fill()?;
    let told = message(
        &tokio::process::Command::from(serve(&world, "0"))
            .output()
            .await?,
        1,
    )?;
    assert!(
        told.to_lowercase().contains("space") || told.contains("full"),
        "{told}"
    );
    std::fs::remove_file(&filler)?;
    world.start_daemon().await?;
    open_work(&world).await?;
    let sandbox = Sandbox::plain(&world).await?;
    sandbox.out("echo before > ~/file").await?;
    fill()?;
    let up = world
        .cli(&["sandbox", "up", "--no-folder", "--name", "late"])
        .await?;
    let told = message(&up, 1)?;
    assert!(told.to_lowercase().contains("space"), "{told}");
    let exec = world
        .cli(&["sandbox", "exec", &sandbox.id, "--", "true"])
        .await?;
    if !exec.status.success() {
        let told = message(&exec, 1)?;
        assert!(told.contains("space"), "{told}");
    }
    let copied = world
        .cli(&[
            "sandbox",
            "cp",
            "/bin/sh",
            &format!("{}:/home/agent/sh", sandbox.id),
        ])
        .await?;
    let told = message(&copied, 1)?;
    assert!(told.contains("space"), "{told}");
    assert_eq!(world.client().sandboxes("", 9).await?.items.len(), 1);
    // Room can be made by removing a sandbox, also when there is none left for a note of it.
    let second = world.client().sandbox(&sandbox.id).await?;
    assert_eq!(second.state, handler_types::sandbox::SandboxState::Running);
    world.cli_ok(&["sandbox", "down", &sandbox.id]).await?;
    assert_eq!(world.client().sandboxes("", 9).await?.items.len(), 0);
    std::fs::remove_file(&filler)?;
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "late"])
        .await?;
    world
        .cli_ok(&["sandbox", "exec", "late", "--", "true"])
        .await?;
    world.cli_ok(&["sandbox", "down", "late"]).await?;
    world.stop_daemon().await?;
    rustix::mount::unmount(&state, rustix::mount::UnmountFlags::DETACH)?;
    Ok(())
}
