//! Frozen and thawed by a person.

use super::checks;
use super::life::{host_processes, names_with};
use super::lifetimes::{PAUSE, verb};
use crate::subject::{Subject, reaches};
use crate::transfer::{get, in_project};
use anyhow::{Context as _, ensure};
use handler_testkit::inside::{LONG, Sandbox};
use handler_testkit::{World, eventually};
use handler_types::sandbox::SandboxState;
use std::path::Path;
use std::sync::Arc;

checks! { "lifetimes":
    pause_freezes_and_resume_goes_on_with_the_same_processes [PAUSE];
    a_persons_pause_is_not_undone_by_use [PAUSE];
    a_paused_sandbox_survives_a_killed_daemon [PAUSE];
    a_paused_sandbox_is_stopped_and_started [PAUSE];
    a_removed_paused_sandbox_leaves_nothing [PAUSE];
    the_command_line_pauses_and_resumes [PAUSE];
}

/// Counts into a file of the working folder, for ever; `86420.5` tells its processes.
const COUNT: &str =
    "i=0; while :; do i=$((i+1)); echo $i >count.new; mv count.new count; sleep 0.02; done";

/// The counter as it lies on the host, which looks without using anything.
fn count(folder: &Path) -> Option<u64> {
    std::fs::read_to_string(folder.join("count"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

async fn counts_past(folder: &Path, than: u64) -> anyhow::Result<u64> {
    eventually("it counts", LONG, || async {
        count(folder).filter(|now| *now > than)
    })
    .await
}

/// The counter stands still while another one goes on.
async fn stands_still(folder: &Path, other: &Path) -> anyhow::Result<u64> {
    let stood = count(folder).context("it has counted")?;
    let now = counts_past(other, 0).await?;
    counts_past(other, now + 10).await?;
    ensure!(count(folder) == Some(stood), "it counts while paused");
    Ok(stood)
}

async fn counting(
    s: &Subject,
    world: &World,
) -> anyhow::Result<(Sandbox, std::path::PathBuf, u32)> {
    let (sandbox, folder) = in_project(s, world).await?;
    let process = sandbox.start(COUNT).await?;
    counts_past(&folder, 0).await?;
    Ok((sandbox, folder, process))
}

async fn pause_freezes_and_resume_goes_on_with_the_same_processes(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder, process) = counting(&s, &world).await?;
    let (other, beside, _) = counting(&s, &world).await?;
    for _ in 0..2 {
        let view = sandbox.client.pause_sandbox(&sandbox.id).await?;
        ensure!(view.state == SandboxState::Paused, "{view:?}");
        let stood = stands_still(&folder, &beside).await?;
        let view = sandbox.client.resume_sandbox(&sandbox.id).await?;
        ensure!(view.state == SandboxState::Running, "{view:?}");
        counts_past(&folder, stood).await?;
    }
    ensure!(
        sandbox.progress(process).await?.1.is_none(),
        "another process counts"
    );
    s.down(other).await?;
    s.down(sandbox).await
}

async fn a_persons_pause_is_not_undone_by_use(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox.client.pause_sandbox(&sandbox.id).await?;
    let told = sandbox.sh("true").await.err().context("a command ran")?;
    ensure!(format!("{told:#}").contains("pause"), "{told:#}");
    ensure!(
        get(&sandbox, "/etc/passwd", "").await.is_err(),
        "a file was read"
    );
    ensure!(s.view(&sandbox).await?.state == SandboxState::Paused);
    // Asked twice it is as asked once.
    sandbox.client.pause_sandbox(&sandbox.id).await?;
    sandbox.client.resume_sandbox(&sandbox.id).await?;
    sandbox.client.resume_sandbox(&sandbox.id).await?;
    ensure!(sandbox.out("echo here").await? == "here");
    s.down(sandbox).await
}

async fn a_paused_sandbox_survives_a_killed_daemon(s: Arc<Subject>) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let (mut sandbox, folder, process) = counting(&s, &world).await?;
    let (mut other, beside, _) = counting(&s, &world).await?;
    sandbox.client.pause_sandbox(&sandbox.id).await?;
    world.kill9()?;
    stands_still(&folder, &beside)
        .await
        .context("without a daemon")?;
    world.start_daemon().await?;
    (sandbox.client, other.client) = (world.client(), world.client());
    reaches(&sandbox, SandboxState::Paused).await?;
    let stood = stands_still(&folder, &beside).await?;
    sandbox.client.resume_sandbox(&sandbox.id).await?;
    counts_past(&folder, stood).await?;
    ensure!(
        sandbox.progress(process).await?.1.is_none(),
        "another process counts"
    );
    s.down(other).await?;
    s.down(sandbox).await
}

async fn a_paused_sandbox_is_stopped_and_started(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox.out("echo kept >~/file").await?;
    sandbox.start("exec sleep 86421.5").await?;
    sandbox.client.pause_sandbox(&sandbox.id).await?;
    sandbox.client.stop_sandbox(&sandbox.id).await?;
    reaches(&sandbox, SandboxState::Stopped).await?;
    ensure!(host_processes("86421.5") == 0, "a process is left");
    sandbox.client.start_sandbox(&sandbox.id).await?;
    ensure!(sandbox.out("cat ~/file").await? == "kept");
    s.down(sandbox).await
}

async fn a_removed_paused_sandbox_leaves_nothing(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox
        .start("setsid sleep 86422.5 & exec sleep 86422.5")
        .await?;
    eventually("both run", LONG, || async {
        (host_processes("86422.5") == 2).then_some(())
    })
    .await?;
    sandbox.client.pause_sandbox(&sandbox.id).await?;
    let id = sandbox.id.clone();
    s.down(sandbox).await?;
    ensure!(host_processes("86422.5") == 0, "a process is left");
    ensure!(world.client().sandbox(&id).await.is_err());
    ensure!(
        !std::fs::read_to_string("/proc/self/mountinfo")?.contains(&id),
        "a mount is left"
    );
    for folder in ["state", "run"] {
        let left = names_with(&world.scratch().folder(folder), &id);
        ensure!(left.is_empty(), "left: {left:?}");
    }
    Ok(())
}

async fn the_command_line_pauses_and_resumes(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let id = sandbox.id.as_str();
    ensure!(verb(&world, &["pause", id]).await?.state == SandboxState::Paused);
    let list = world.cli_ok(&["sandbox", "list"]).await?;
    ensure!(list.contains("paused"), "{list}");
    let refused = world.cli(&["sandbox", "exec", id, "--", "true"]).await?;
    ensure!(!refused.status.success(), "{refused:?}");
    ensure!(verb(&world, &["resume", id]).await?.state == SandboxState::Running);
    world.cli_ok(&["sandbox", "exec", id, "--", "true"]).await?;
    s.down(sandbox).await
}
