//! Pausing, idleness, ends of life and admission, with the whole product.

use crate::support::{LONG, Sandbox, project, world};
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use handler_testkit::{World, eventually, skip};
use handler_types::lifetime::{IdleAction, IdlePolicy};
use handler_types::sandbox::{CreateSandbox, SandboxState};
use handler_types::update::UpdateSandbox;
use http_body::Frame;
use http_body_util::StreamBody;
use std::time::Duration;

/// Counts into a file of its home, for ever.
const COUNT: &str =
    "i=0; while :; do i=$((i+1)); echo $i > ~/count.new; mv ~/count.new ~/count; sleep 0.01; done";

fn idle(after_seconds: u64, action: IdleAction) -> CreateSandbox {
    CreateSandbox {
        idle: Some(IdlePolicy {
            after_seconds,
            action,
            wake: true,
        }),
        ..Default::default()
    }
}

async fn can_pause(world: &World, test: &str) -> anyhow::Result<bool> {
    let backends = world.client().backends().await?;
    let can = backends
        .iter()
        .any(|b| b.name == "native" && b.capabilities.pause);
    if !can {
        skip(
            test,
            "native sandboxes cannot be paused here (no cgroup freezer of this user)",
        );
    }
    Ok(can)
}

async fn state(world: &World, id: &str, wanted: SandboxState) -> anyhow::Result<()> {
    eventually(&format!("{id} is {wanted:?}"), LONG, || async {
        let view = world.client().sandbox(id).await.ok()?;
        (view.state == wanted).then_some(())
    })
    .await
}

/// The counter as it lies on the host, which looks without waking anything.
fn count(world: &World, id: &str) -> anyhow::Result<u64> {
    let sandboxes = world.scratch().folder("state").join("sandboxes");
    let text = std::fs::read_to_string(sandboxes.join(id).join("home/count"))?;
    Ok(text.trim().parse()?)
}

async fn counts(world: &World, id: &str) -> anyhow::Result<u64> {
    eventually("it counts", LONG, || async { count(world, id).ok() }).await
}

#[tokio::test]
async fn a_paused_sandbox_stands_still_also_over_a_killed_daemon_and_goes_on_where_it_was()
-> anyhow::Result<()> {
    let mut world = world().await?;
    if !can_pause(&world, "a_paused_sandbox_stands_still").await? {
        return Ok(());
    }
    let sandbox = Sandbox::plain(&world).await?;
    let id = sandbox.id.clone();
    let counter = sandbox.start(COUNT).await?;
    counts(&world, &id).await?;
    world.cli_ok(&["sandbox", "pause", &id]).await?;
    let list = world.cli_ok(&["sandbox", "list"]).await?;
    ensure!(list.contains("paused"), "{list}");
    let stood = count(&world, &id)?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(count(&world, &id)? == stood, "it counts while paused");
    // A person's pause is not undone by use.
    let early = world.cli(&["sandbox", "exec", &id, "--", "true"]).await?;
    ensure!(!early.status.success(), "{early:?}");
    world.kill9()?;
    world.restart().await?;
    state(&world, &id, SandboxState::Paused).await?;
    ensure!(
        count(&world, &id)? == stood,
        "it counted while nobody looked"
    );
    world.cli_ok(&["sandbox", "resume", &id]).await?;
    eventually("it counts on", LONG, || async {
        count(&world, &id).ok().filter(|now| *now > stood)
    })
    .await?;
    let sandbox = Sandbox {
        client: world.client(),
        id: id.clone(),
    };
    ensure!(
        sandbox.progress(counter).await?.1.is_none(),
        "the same process"
    );
    // Frozen, it can still be stopped, started and removed.
    world.cli_ok(&["sandbox", "pause", &id]).await?;
    world.cli_ok(&["sandbox", "stop", &id]).await?;
    world.cli_ok(&["sandbox", "start", &id]).await?;
    ensure!(sandbox.out("cat ~/count").await?.trim().parse::<u64>()? >= stood);
    world.cli_ok(&["sandbox", "pause", &id]).await?;
    world.cli_ok(&["sandbox", "down", &id]).await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn an_idle_sandbox_is_paused_or_stopped_and_a_command_wakes_it() -> anyhow::Result<()> {
    let world = world().await?;
    let mut actions = vec![(IdleAction::Stop, SandboxState::Stopped)];
    if can_pause(&world, "an_idle_sandbox_is_paused").await? {
        actions.push((IdleAction::Pause, SandboxState::Paused));
    }
    for (action, rest) in actions {
        let sandbox = Sandbox::up(&world, &idle(1, action)).await?;
        sandbox.out("echo kept > ~/file").await?;
        state(&world, &sandbox.id, rest).await?;
        // Looking at it is no use.
        world.cli_ok(&["sandbox", "show", &sandbox.id]).await?;
        state(&world, &sandbox.id, rest).await?;
        // All who want it at once share one waking.
        let use_it = || sandbox.out("cat ~/file");
        let (a, b, c) = tokio::try_join!(use_it(), use_it(), use_it())?;
        ensure!([a, b, c].iter().all(|text| text.trim() == "kept"));
        state(&world, &sandbox.id, rest).await?;
        world.cli_ok(&["sandbox", "down", &sandbox.id]).await?;
    }
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn a_running_command_is_use_and_idleness_begins_when_it_ends() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::up(&world, &idle(1, IdleAction::Stop)).await?;
    let process = sandbox
        .start("until [ -e ~/end ]; do sleep 0.05; done")
        .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let view = world.client().sandbox(&sandbox.id).await?;
    ensure!(view.state == SandboxState::Running, "{:?}", view.state);
    ensure!(sandbox.progress(process).await?.1.is_none());
    sandbox.out("touch ~/end").await?;
    state(&world, &sandbox.id, SandboxState::Stopped).await?;
    world.cli_ok(&["sandbox", "down", &sandbox.id]).await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn a_slow_upload_is_use() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::up(&world, &idle(1, IdleAction::Stop)).await?;
    let (piece, pieces) = tokio::sync::mpsc::channel::<Bytes>(1);
    let content = futures::stream::unfold(pieces, |mut pieces| async move {
        let frame = Frame::data(pieces.recv().await?);
        Some((Ok::<_, std::convert::Infallible>(frame), pieces))
    });
    let address = format!("/v1/sandboxes/{}/files?path=slow", sandbox.id);
    let client = sandbox.client.clone();
    let body = StreamBody::new(Box::pin(content));
    let upload =
        tokio::spawn(async move { client.stream(http::Method::PUT, &address, body).await });
    piece.send(Bytes::from_static(b"first ")).await?;
    // Three times as long as it may be idle.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let view = world.client().sandbox(&sandbox.id).await?;
    ensure!(view.state == SandboxState::Running, "{:?}", view.state);
    piece.send(Bytes::from_static(b"second")).await?;
    drop(piece);
    upload.await??;
    ensure!(sandbox.out("cat slow").await? == "first second");
    state(&world, &sandbox.id, SandboxState::Stopped).await?;
    world.cli_ok(&["sandbox", "down", &sandbox.id]).await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn a_sandbox_is_removed_at_its_end_also_when_that_passed_while_the_daemon_was_away()
-> anyhow::Result<()> {
    let mut world = world().await?;
    let folder = project(&world, "app")?;
    let folder = folder.to_str().context("text")?;
    let up = |name: &'static str, ttl: &'static str| {
        [
            "sandbox", "up", "--folder", folder, "--name", name, "--ttl", ttl,
        ]
    };
    world.cli_ok(&up("short", "1s")).await?;
    world.cli_ok(&up("away", "2h")).await?;
    world.cli_ok(&up("long", "2h")).await?;
    let list = world.cli_ok(&["sandbox", "list"]).await?;
    ensure!(list.contains("1h59m") || list.contains("2h"), "{list}");
    let gone = |name: &'static str| {
        let client = world.client();
        eventually(name, LONG, move || {
            let client = client.clone();
            async move { client.sandbox(name).await.err() }
        })
    };
    gone("short").await?;
    world
        .cli_ok(&["sandbox", "set", "away", "--ttl", "1s"])
        .await?;
    world.kill9()?;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    world.restart().await?;
    let client = world.client();
    eventually("its end passed while nobody looked", LONG, || async {
        client.sandbox("away").await.err()
    })
    .await?;
    let view = client.sandbox("long").await?;
    ensure!(view.life.expires_at.is_some(), "{view:?}");
    world
        .cli_ok(&["sandbox", "set", "long", "--ttl", "none"])
        .await?;
    ensure!(client.sandbox("long").await?.life.expires_at.is_none());
    world.cli_ok(&["sandbox", "down", "long"]).await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn names_labels_data_and_policies_can_be_changed_whole_or_not_at_all() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let sandbox = Sandbox::plain(&world).await?;
    let other = Sandbox::up(
        &world,
        &CreateSandbox {
            name: Some("taken".into()),
            ..Default::default()
        },
    )
    .await?;
    let set = [
        "sandbox",
        "set",
        &sandbox.id,
        "--name",
        "new",
        "--label",
        "team=a",
        "--metadata",
        "k=v",
        "--idle",
        "2h:stop",
    ];
    world.cli_ok(&set).await?;
    let view = client.sandbox("new").await?;
    ensure!(
        view.labels["team"] == "a" && view.metadata["k"] == "v",
        "{view:?}"
    );
    ensure!(
        view.life
            .idle
            .is_some_and(|idle| idle.after_seconds == 7200)
    );
    let both = UpdateSandbox {
        name: Some("taken".into()),
        ttl_seconds: Some(5),
        ..Default::default()
    };
    let error = client
        .update_sandbox("new", &both)
        .await
        .expect_err("taken");
    ensure!(error.problem().is_some_and(|p| p.status == 409), "{error}");
    ensure!(client.sandbox("new").await?.life.expires_at.is_none());
    let label = client.sandboxes("", 50).await?.items;
    ensure!(label.len() == 2);
    for sandbox in [sandbox, other] {
        world.cli_ok(&["sandbox", "down", &sandbox.id]).await?;
    }
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn over_the_limit_a_sandbox_is_refused_with_when_to_ask_again() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let config = world.scratch().folder("config");
    std::fs::write(
        config.join("limits.toml"),
        "running = 2\n[projects.small]\nrunning = 1\n",
    )?;
    let of = |project: Option<&str>| CreateSandbox {
        project: project.map(str::to_owned),
        ..Default::default()
    };
    let first = client.create_sandbox(&of(Some("small"))).await?;
    let error = client
        .create_sandbox(&of(Some("small")))
        .await
        .expect_err("full");
    let problem = error.problem().context("a problem")?;
    ensure!(
        problem.status == 429 && problem.retry_after_seconds.is_some(),
        "{problem:?}"
    );
    ensure!(problem.detail.contains("small"), "{problem:?}");
    let second = client.create_sandbox(&of(None)).await?;
    let error = client.create_sandbox(&of(None)).await.expect_err("full");
    ensure!(error.problem().is_some_and(|p| p.status == 429), "{error}");
    // A stopped one makes room, and cannot come back before there is some.
    client.stop_sandbox(first.id.as_str()).await?;
    let third = client.create_sandbox(&of(None)).await?;
    let error = client
        .start_sandbox(first.id.as_str())
        .await
        .expect_err("full");
    ensure!(error.problem().is_some_and(|p| p.status == 429), "{error}");
    let host = client.host().await?;
    ensure!(
        (host.committed.sandboxes, host.committed.running) == (3, 2),
        "{host:?}"
    );
    let status = world.cli_ok(&["status"]).await?;
    ensure!(status.contains("2 of 2 running"), "{status}");
    for view in [first, second, third] {
        client.delete_sandbox(view.id.as_str()).await?;
    }
    world.assert_clean(LONG).await
}
