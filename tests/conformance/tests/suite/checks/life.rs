//! Stop and start, removal, and crashes in between.

use super::checks;
use crate::subject::{Subject, reaches};
use anyhow::ensure;
use handler_testkit::eventually;
use handler_testkit::inside::LONG;
use handler_types::sandbox::SandboxState;
use std::sync::Arc;

checks! { "life":
    eight_made_at_once_all_come_up;
    stop_ends_everything_and_start_keeps_the_home;
    a_removed_sandbox_leaves_nothing;
    a_sandbox_survives_a_killed_daemon;
    a_daemon_killed_while_making_leaves_nothing_half_made;
    a_sandbox_whose_guest_dies_is_told_and_starts_again;
}

async fn eight_made_at_once_all_come_up(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let specs = vec![s.spec(); 8];
    let made = futures::future::join_all(specs.iter().map(|spec| s.up(&world, spec))).await;
    for sandbox in made {
        let sandbox = sandbox?;
        ensure!(sandbox.out("echo here").await? == "here");
        s.down(sandbox).await?;
    }
    Ok(())
}

async fn stop_ends_everything_and_start_keeps_the_home(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox
        .out("echo kept >~/file; echo gone >/tmp/file")
        .await?;
    sandbox.start("exec sleep 86414.5").await?;
    sandbox.client.stop_sandbox(&sandbox.id).await?;
    reaches(&sandbox, SandboxState::Stopped).await?;
    ensure!(host_processes("86414.5") == 0, "a process is left");
    ensure!(
        sandbox.sh("true").await.is_err(),
        "a stopped sandbox runs commands"
    );
    sandbox.client.start_sandbox(&sandbox.id).await?;
    ensure!(sandbox.out("cat ~/file").await? == "kept");
    sandbox.fails("cat /tmp/file").await?;
    s.down(sandbox).await
}

async fn a_removed_sandbox_leaves_nothing(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox
        .start("setsid sleep 86415.5 & exec sleep 86415.5")
        .await?;
    let id = sandbox.id.clone();
    s.down(sandbox).await?;
    ensure!(host_processes("86415.5") == 0, "a process is left");
    ensure!(world.client().sandbox(&id).await.is_err());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(!mounts.contains(&id), "a mount is left");
    for folder in ["state", "run"] {
        let left = names_with(&world.scratch().folder(folder), &id);
        ensure!(left.is_empty(), "left: {left:?}");
    }
    Ok(())
}

async fn a_sandbox_survives_a_killed_daemon(s: Arc<Subject>) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    sandbox.out("echo kept >/tmp/file").await?;
    let process = sandbox.start("exec sleep 86416.5").await?;
    world.kill9()?;
    world.start_daemon().await?;
    sandbox.client = world.client();
    ensure!(
        sandbox.out("cat /tmp/file").await? == "kept",
        "it was started anew"
    );
    let (_, exit) = sandbox.progress(process).await?;
    ensure!(exit.is_none(), "its command was ended");
    s.down(sandbox).await
}

async fn a_daemon_killed_while_making_leaves_nothing_half_made(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    for wait_ms in [5, 40, 120, 300] {
        let client = world.client();
        let spec = s.spec();
        let making = tokio::spawn(async move { client.create_sandbox(&spec).await.is_ok() });
        tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
        world.kill9()?;
        let _ = making.await;
        world.start_daemon().await?;
    }
    let client = world.client();
    for view in client.sandboxes("", 500).await?.items {
        // Whatever is listed is whole, or says what it is, and can be removed.
        client.delete_sandbox(view.id.as_str()).await?;
    }
    ensure!(client.sandboxes("", 10).await?.items.is_empty());
    Ok(())
}

async fn a_sandbox_whose_guest_dies_is_told_and_starts_again(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox.out("echo kept >~/file").await?;
    let mark = format!(
        "8641{}.5",
        10_000 + u32::from(handler_base::random::bytes::<1>()[0])
    );
    sandbox.start(&format!("exec sleep {mark}")).await?;
    // The whole sandbox dies as it would of a kernel that is out of memory: its first process is killed.
    let guest = eventually("its first process", LONG, || async { init_of(&mark) }).await?;
    rustix::process::kill_process(guest, rustix::process::Signal::KILL)?;
    let view = reaches(&sandbox, SandboxState::Failed).await?;
    ensure!(view.error.is_some_and(|error| !error.is_empty()));
    ensure!(host_processes(&mark) == 0, "a process is left");
    sandbox.client.start_sandbox(&sandbox.id).await?;
    ensure!(sandbox.out("cat ~/file").await? == "kept");
    s.down(sandbox).await
}

/// Pids of this machine whose last argument is `mark`.
fn pids(mark: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let argv = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let last = argv.split(|byte| *byte == 0).rfind(|part| !part.is_empty());
            last == Some(mark.as_bytes())
        })
        .collect()
}

/// How many processes of this machine have `mark` as their last argument.
pub(crate) fn host_processes(mark: &str) -> usize {
    pids(mark).len()
}

/// The process that is number 1 where the marked one lives.
fn init_of(mark: &str) -> Option<rustix::process::Pid> {
    let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let wanted = space(*pids(mark).first()?)?;
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let first = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| space(*pid).as_ref() == Some(&wanted))
        .find(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status
                .lines()
                .find_map(|line| line.strip_prefix("NSpid:"))
                .is_some_and(|line| line.split_whitespace().last() == Some("1"))
        })?;
    rustix::process::Pid::from_raw(first)
}

/// Paths below a folder whose name mentions `text`.
pub(super) fn names_with(folder: &std::path::Path, text: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().contains(text) {
            found.push(path);
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(names_with(&path, text));
        }
    }
    found
}
