//! Pausing, idleness, ends of life.

use super::life::host_processes;
use super::{Need, checks};
use crate::subject::{Subject, reaches};
use crate::transfer::{get, put};
use anyhow::{Context as _, ensure};
use handler_testkit::inside::{LONG, Sandbox};
use handler_testkit::{World, eventually};
use handler_types::lifetime::{IdleAction, IdlePolicy};
use handler_types::sandbox::{CreateSandbox, SandboxState, SandboxView};
use handler_types::update::{IdleUpdate, NoIdle, UpdateSandbox};
use std::sync::Arc;

pub(super) const PAUSE: Need = Need {
    name: "freezes and thaws",
    has: |c| c.pause,
};

checks! { "lifetimes":
    an_idle_sandbox_is_paused_and_use_wakes_it [PAUSE];
    an_idle_sandbox_is_stopped_and_use_wakes_it;
    an_idle_sandbox_is_deleted_where_asked;
    a_running_command_is_use;
    a_sandbox_is_removed_at_its_end_and_the_end_can_be_changed;
    an_end_that_passes_while_the_daemon_is_away_is_kept;
    names_labels_and_data_are_changed_whole_or_not_at_all;
    the_command_line_stops_starts_changes_and_removes;
}

fn idle(s: &Subject, after_seconds: u64, action: IdleAction) -> CreateSandbox {
    let policy = IdlePolicy {
        after_seconds,
        action,
        wake: true,
    };
    CreateSandbox {
        idle: Some(policy),
        ..s.spec()
    }
}

async fn rests_and_wakes(
    s: &Subject,
    action: IdleAction,
    rest: SandboxState,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.up(&world, &idle(s, 1, action)).await?;
    let id = sandbox.id.as_str();
    sandbox.out("echo kept >~/file").await?;
    reaches(&sandbox, rest).await?;
    // Looking at it is no use.
    world.cli_ok(&["sandbox", "show", id]).await?;
    ensure!(s.view(&sandbox).await?.state == rest, "a look woke it");
    // All who want it at once share one waking.
    let use_it = || sandbox.out("cat ~/file");
    let (a, b, c) = tokio::try_join!(use_it(), use_it(), use_it())?;
    ensure!([a, b, c].iter().all(|text| text == "kept"));
    reaches(&sandbox, rest).await?;
    ensure!(
        get(&sandbox, "/home/agent/file", "").await? == "kept\n",
        "a file wakes it"
    );
    reaches(&sandbox, rest).await?;
    put(&sandbox, "/home/agent/file", "new").await?;
    reaches(&sandbox, rest).await?;
    let seen = world
        .cli_ok(&["sandbox", "exec", id, "--", "sh", "-c", "cat ~/file"])
        .await?;
    ensure!(seen == "new", "{seen}");
    s.down(sandbox).await
}

async fn an_idle_sandbox_is_paused_and_use_wakes_it(s: Arc<Subject>) -> anyhow::Result<()> {
    rests_and_wakes(&s, IdleAction::Pause, SandboxState::Paused).await
}

async fn an_idle_sandbox_is_stopped_and_use_wakes_it(s: Arc<Subject>) -> anyhow::Result<()> {
    rests_and_wakes(&s, IdleAction::Stop, SandboxState::Stopped).await
}

async fn an_idle_sandbox_is_deleted_where_asked(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.up(&world, &idle(&s, 1, IdleAction::Delete)).await?;
    gone(&world, &sandbox.id).await
}

async fn gone(world: &World, id: &str) -> anyhow::Result<()> {
    let client = world.client();
    eventually("its removal", LONG, || async {
        let error = client.sandbox(id).await.err()?;
        error
            .problem()
            .filter(|problem| problem.status == 404)
            .map(|_| ())
    })
    .await
}

async fn a_running_command_is_use(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let busy = s.up(&world, &idle(&s, 1, IdleAction::Stop)).await?;
    let process = busy
        .start("until [ -e ~/end ]; do sleep 0.05; done")
        .await?;
    // One used later, of the same policy, comes to rest twice meanwhile.
    let other = s.up(&world, &idle(&s, 1, IdleAction::Stop)).await?;
    for _ in 0..2 {
        reaches(&other, SandboxState::Stopped).await?;
        other.out("true").await?;
    }
    let view = s.view(&busy).await?;
    ensure!(view.state == SandboxState::Running, "{:?}", view.state);
    ensure!(
        busy.progress(process).await?.1.is_none(),
        "the command was ended"
    );
    busy.out("touch ~/end").await?;
    reaches(&busy, SandboxState::Stopped).await?;
    s.down(other).await?;
    s.down(busy).await
}

async fn a_sandbox_is_removed_at_its_end_and_the_end_can_be_changed(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let spec = CreateSandbox {
        ttl_seconds: Some(3600),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    sandbox.start("exec sleep 86423.5").await?;
    let end = s.view(&sandbox).await?.life.expires_at;
    ensure!(end.is_some());
    let set = async |seconds| {
        let update = UpdateSandbox {
            ttl_seconds: Some(seconds),
            ..UpdateSandbox::default()
        };
        let view = sandbox.client.update_sandbox(&sandbox.id, &update).await?;
        anyhow::Ok(view.life.expires_at)
    };
    let later = set(7200).await?;
    // Both of one form, so that later is greater.
    ensure!(later > end, "{later:?} after {end:?}");
    ensure!(set(0).await?.is_none(), "0 is never");
    set(1).await?;
    gone(&world, &sandbox.id).await?;
    ensure!(host_processes("86423.5") == 0, "a process is left");
    Ok(())
}

async fn an_end_that_passes_while_the_daemon_is_away_is_kept(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let (short, long) = (s.plain(&world).await?, s.plain(&world).await?);
    let set = |seconds| UpdateSandbox {
        ttl_seconds: Some(seconds),
        ..UpdateSandbox::default()
    };
    short.client.update_sandbox(&short.id, &set(1)).await?;
    let view = long.client.update_sandbox(&long.id, &set(3600)).await?;
    world.kill9()?;
    world.start_daemon().await?;
    gone(&world, &short.id).await?;
    let long = Sandbox {
        client: world.client(),
        id: long.id,
    };
    ensure!(s.view(&long).await?.life.expires_at == view.life.expires_at);
    ensure!(long.out("echo here").await? == "here");
    s.down(long).await
}

async fn names_labels_and_data_are_changed_whole_or_not_at_all(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let named = |kind: &str| format!("{kind}-{}", handler_base::random::hex(4));
    let (name, taken) = (named("new"), named("taken"));
    let spec = CreateSandbox {
        name: Some(taken.clone()),
        ..s.spec()
    };
    let (sandbox, other) = (s.plain(&world).await?, s.up(&world, &spec).await?);
    let policy = IdlePolicy {
        after_seconds: 7200,
        action: IdleAction::Stop,
        wake: false,
    };
    let update = UpdateSandbox {
        name: Some(name.clone()),
        labels: Some([("team".to_owned(), "a".to_owned())].into()),
        metadata: Some([("k".to_owned(), "v".to_owned())].into()),
        idle: Some(IdleUpdate::Policy(policy)),
        ..UpdateSandbox::default()
    };
    sandbox.client.update_sandbox(&sandbox.id, &update).await?;
    let view = sandbox.client.sandbox(&name).await?;
    ensure!(
        view.labels["team"] == "a" && view.metadata["k"] == "v" && view.life.idle == Some(policy),
        "{view:?}"
    );
    let both = UpdateSandbox {
        name: Some(taken),
        ttl_seconds: Some(5),
        ..UpdateSandbox::default()
    };
    let error = sandbox
        .client
        .update_sandbox(&name, &both)
        .await
        .err()
        .context("the name is taken")?;
    ensure!(
        error.problem().is_some_and(|problem| problem.status == 409),
        "{error}"
    );
    ensure!(
        s.view(&sandbox).await?.life.expires_at.is_none(),
        "half of it was done"
    );
    let none = UpdateSandbox {
        idle: Some(IdleUpdate::Nothing(NoIdle { none: true })),
        ..UpdateSandbox::default()
    };
    let view = sandbox.client.update_sandbox(&sandbox.id, &none).await?;
    ensure!(view.life.idle.is_none() && view.name == name, "{view:?}");
    s.down(other).await?;
    s.down(sandbox).await
}

/// `handler --json sandbox …`, which prints the sandbox.
pub(super) async fn verb(world: &World, args: &[&str]) -> anyhow::Result<SandboxView> {
    let all: Vec<&str> = ["--json", "sandbox"].iter().chain(args).copied().collect();
    Ok(serde_json::from_str(&world.cli_ok(&all).await?)?)
}

async fn the_command_line_stops_starts_changes_and_removes(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let id = sandbox.id.as_str();
    ensure!(verb(&world, &["stop", id]).await?.state == SandboxState::Stopped);
    ensure!(verb(&world, &["start", id]).await?.state == SandboxState::Running);
    ensure!(verb(&world, &["restart", id]).await?.state == SandboxState::Running);
    let view = verb(
        &world,
        &[
            "set", id, "--ttl", "2h", "--idle", "1h:stop", "--label", "a=b",
        ],
    )
    .await?;
    ensure!(
        view.life.expires_at.is_some() && view.labels["a"] == "b",
        "{view:?}"
    );
    ensure!(
        view.life
            .idle
            .is_some_and(|idle| idle.after_seconds == 3600),
        "{view:?}"
    );
    let view = verb(&world, &["set", id, "--ttl", "none", "--idle", "none"]).await?;
    ensure!(
        view.life.expires_at.is_none() && view.life.idle.is_none(),
        "{view:?}"
    );
    world.cli_ok(&["--json", "sandbox", "down", id]).await?;
    ensure!(
        world.client().sandbox(id).await.is_err(),
        "it is still there"
    );
    let again = world.cli(&["sandbox", "down", id]).await?;
    ensure!(again.status.code() == Some(4), "{again:?}");
    Ok(())
}
