//! Pausing, idleness, waking, ends of life, updates and admission, with the real guest.

use crate::peer::SOON;
use crate::world::World;
use handler_engine::test_support::{DriverFault, spec};
use handler_engine::{CreateArgs, Engine, EngineError, SandboxUpdate};
use handler_types::SandboxId;
use handler_types::guest::ProcessSpec;
use handler_types::lifetime::{IdleAction, IdlePolicy};
use handler_types::limits::{Limits, Quota};
use handler_types::network::NetworkPolicy;
use handler_types::problem::ProblemCode;
use handler_types::sandbox::{Resources, SandboxState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn args(name: Option<&str>) -> CreateArgs {
    CreateArgs {
        spec: spec(name, NetworkPolicy::default()),
        label: String::new(),
    }
}

fn idle(after_seconds: u64, action: IdleAction, wake: bool) -> CreateArgs {
    let mut args = args(None);
    args.spec.idle = Some(IdlePolicy {
        after_seconds,
        action,
        wake,
    });
    args
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn reaches(engine: &Engine, id: &SandboxId, wanted: SandboxState) {
    until(&format!("{wanted:?}"), || {
        engine.get(id).is_ok_and(|view| view.state == wanted)
    })
    .await;
}

fn sleeper(key: &str) -> ProcessSpec {
    ProcessSpec {
        key: key.to_owned(),
        argv: vec!["/bin/sleep".to_owned(), "1000".to_owned()],
        ..ProcessSpec::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pausing_freezes_keeps_the_link_and_every_order_works_on_what_is_paused() {
    let Some(world) = World::new("pausing_freezes") else {
        return;
    };
    let engine = world.engine().await;
    let view = engine.create(args(None)).await.expect("created");
    let guest = engine.guest(&view.id).expect("guest");
    let paused = engine.pause(&view.id).await.expect("paused");
    assert_eq!(paused.state, SandboxState::Paused);
    assert!(world.driver.is_frozen(&view.id));
    engine.pause(&view.id).await.expect("again");
    let error = engine.awake_guest(&view.id).await.expect_err("by hand");
    assert_eq!(error.code(), ProblemCode::Conflict);
    assert!(error.to_string().contains("resume it first"), "{error}");
    let resumed = engine.resume(&view.id).await.expect("resumed");
    assert_eq!(resumed.state, SandboxState::Running);
    guest.stats().await.expect("the same link goes on");
    assert_eq!(world.driver.starts(&view.id), 1);
    engine.pause(&view.id).await.expect("paused");
    engine.restart(&view.id).await.expect("restarted");
    assert_eq!(world.driver.starts(&view.id), 2);
    engine.pause(&view.id).await.expect("paused");
    engine.stop(&view.id).await.expect("stopped");
    world.assert_one_resting("stopped while paused");
    assert_eq!(world.driver.layers(), vec![view.id.clone()], "kept");
    let error = engine.resume(&view.id).await.expect_err("stopped");
    assert_eq!(error.code(), ProblemCode::Conflict);
    engine.start_sandbox(&view.id).await.expect("started");
    engine.pause(&view.id).await.expect("paused");
    engine.start_sandbox(&view.id).await.expect("start resumes");
    engine.pause(&view.id).await.expect("paused");
    engine.delete(&view.id).await.expect("deleted");
    world.assert_empty("deleted while paused");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_frozen_runs_on_and_what_cannot_be_thawed_says_so() {
    let Some(world) = World::new("what_cannot_be_frozen") else {
        return;
    };
    let engine = world.engine().await;
    let view = engine.create(args(None)).await.expect("created");
    world.driver.strike(DriverFault::FailPause);
    engine.pause(&view.id).await.expect_err("a fault");
    assert_eq!(
        engine.get(&view.id).expect("there").state,
        SandboxState::Running
    );
    let guest = engine.guest(&view.id).expect("guest");
    guest.stats().await.expect("answers");
    engine.pause(&view.id).await.expect("paused");
    world.driver.strike(DriverFault::FailResume);
    engine.resume(&view.id).await.expect_err("a fault");
    assert_eq!(
        engine.get(&view.id).expect("there").state,
        SandboxState::Paused
    );
    engine.resume(&view.id).await.expect("resumed");
    world.driver.without_pause();
    let error = engine.pause(&view.id).await.expect_err("cannot");
    assert_eq!(error.code(), ProblemCode::Unenforceable);
    let refused = engine.create(idle(5, IdleAction::Pause, true)).await;
    assert_eq!(
        refused.expect_err("cannot").code(),
        ProblemCode::Unenforceable
    );
    engine.delete(&view.id).await.expect("deleted");
    world.assert_empty("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_sandbox_is_adopted_paused_and_one_that_died_frozen_is_told() {
    let Some(world) = World::new("a_paused_sandbox_is_adopted") else {
        return;
    };
    let engine = world.engine().await;
    let view = engine.create(args(None)).await.expect("created");
    engine.pause(&view.id).await.expect("paused");
    engine.crash().await;
    let engine = world.engine().await;
    assert_eq!(
        engine.get(&view.id).expect("there").state,
        SandboxState::Paused
    );
    assert!(world.driver.is_frozen(&view.id));
    engine.resume(&view.id).await.expect("resumed");
    let guest = engine.guest(&view.id).expect("a new link");
    guest.stats().await.expect("answers");
    // Half-way, with the processes frozen and nothing written of it.
    world.driver.strike(DriverFault::HangInPause);
    tokio::select! {
        _ = engine.pause(&view.id) => panic!("it did not strike"),
        () = world.driver.struck() => {}
    }
    engine.crash().await;
    let engine = world.engine().await;
    assert_eq!(
        engine.get(&view.id).expect("there").state,
        SandboxState::Paused
    );
    world.driver.kill(&view.id);
    reaches(&engine, &view.id, SandboxState::Failed).await;
    engine.delete(&view.id).await.expect("deleted");
    world.assert_empty("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_idle_rests_and_is_woken_once_for_all_who_ask_at_the_same_time() {
    let Some(world) = World::new("who_is_idle_rests") else {
        return;
    };
    for (action, rest) in [
        (IdleAction::Pause, SandboxState::Paused),
        (IdleAction::Stop, SandboxState::Stopped),
    ] {
        let engine = world.engine().await;
        let view = engine.create(idle(1, action, true)).await.expect("created");
        reaches(&engine, &view.id, rest).await;
        // Why it rests is remembered by the next daemon.
        engine.crash().await;
        let engine = world.engine().await;
        // Each asks at once when it is woken: a second later it rests again.
        let asks = (0..20).map(|_| async {
            let guest = engine.awake_guest(&view.id).await.expect("woken");
            guest.stats().await.expect("answers");
        });
        futures::future::join_all(asks).await;
        let starts = if action == IdleAction::Stop { 2 } else { 1 };
        assert_eq!(world.driver.starts(&view.id), starts, "{action:?}");
        reaches(&engine, &view.id, rest).await;
        engine.awake_guest(&view.id).await.expect("woken again");
        // What a person orders is no idleness.
        engine.stop(&view.id).await.expect("stopped");
        engine.awake_guest(&view.id).await.expect_err("by hand");
        engine.delete(&view.id).await.expect("deleted");
        world.assert_empty("deleted");
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_guards_are_use_and_without_waking_it_stays_at_rest() {
    let Some(world) = World::new("commands_and_guards_are_use") else {
        return;
    };
    let engine = world.engine().await;
    let view = engine
        .create(idle(1, IdleAction::Pause, false))
        .await
        .expect("created");
    let guest = engine.awake_guest(&view.id).await.expect("guest");
    let process = guest.start(sleeper("k1")).await.expect("started");
    let began = Instant::now();
    until("time passes", || {
        began.elapsed() > Duration::from_millis(2500)
    })
    .await;
    assert_eq!(
        engine.get(&view.id).expect("there").state,
        SandboxState::Running
    );
    let hold = engine.hold(&view.id).expect("there");
    guest
        .signal(process.process, 9, true)
        .await
        .expect("killed");
    let began = Instant::now();
    until("time passes", || {
        began.elapsed() > Duration::from_millis(2500)
    })
    .await;
    assert_eq!(
        engine.get(&view.id).expect("there").state,
        SandboxState::Running
    );
    drop(hold);
    reaches(&engine, &view.id, SandboxState::Paused).await;
    assert!(engine.get(&view.id).expect("there").life.used_at.is_some());
    let error = engine.awake_guest(&view.id).await.expect_err("no waking");
    assert_eq!(error.code(), ProblemCode::Conflict);
    engine.delete(&view.id).await.expect("deleted");
    let gone = engine.create(idle(1, IdleAction::Delete, true)).await;
    let gone = gone.expect("created");
    until("removed", || engine.get(&gone.id).is_err()).await;
    world.assert_empty("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_kept_over_restarts_counts_while_paused_and_can_be_moved() {
    let Some(world) = World::new("an_end_is_kept") else {
        return;
    };
    let engine = world.engine().await;
    let mut short = args(Some("short"));
    short.spec.ttl_seconds = Some(1);
    let short = engine.create(short).await.expect("created");
    assert!(short.life.expires_at.is_some());
    engine.pause(&short.id).await.expect("paused");
    let mut long = args(Some("long"));
    long.spec.ttl_seconds = Some(3600);
    let long = engine.create(long).await.expect("created");
    until("removed", || engine.get(&short.id).is_err()).await;
    let sooner = SandboxUpdate {
        ttl_seconds: Some(Some(1)),
        ..SandboxUpdate::default()
    };
    engine.stop(&long.id).await.expect("stopped");
    engine.update(&long.id, sooner).await.expect("updated");
    engine.crash().await;
    let began = Instant::now();
    until("time passes", || {
        began.elapsed() > Duration::from_millis(1100)
    })
    .await;
    let engine = world.engine().await;
    until("removed", || engine.get(&long.id).is_err()).await;
    world.assert_empty("at their ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_counts_whole_or_not_at_all() {
    let Some(world) = World::new("an_update_counts") else {
        return;
    };
    let engine = world.engine().await;
    let one = engine.create(args(Some("one"))).await.expect("created");
    engine.create(args(Some("two"))).await.expect("created");
    let taken = SandboxUpdate {
        name: Some(Some("two".to_owned())),
        ttl_seconds: Some(Some(5)),
        ..SandboxUpdate::default()
    };
    let error = engine.update(&one.id, taken).await.expect_err("taken");
    assert!(matches!(error, EngineError::NameTaken(_)), "{error}");
    let live = SandboxUpdate {
        resources: Some(Resources {
            memory_mib: Some(64),
            ..Resources::default()
        }),
        name: Some(Some("three".to_owned())),
        ..SandboxUpdate::default()
    };
    let error = engine
        .update(&one.id, live.clone())
        .await
        .expect_err("runs");
    assert_eq!(error.code(), ProblemCode::Conflict, "{error}");
    let now = engine.get(&one.id).expect("there");
    assert_eq!((now.name.as_str(), now.life.expires_at), ("one", None));
    engine
        .create(args(Some("three")))
        .await
        .expect("still free");
    engine.stop(&one.id).await.expect("stopped");
    let mut free = live;
    free.name = Some(Some("four".to_owned()));
    free.labels = Some([("a".to_owned(), "b".to_owned())].into());
    engine.update(&one.id, free).await.expect("at rest");
    let row = world.rows.now().into_iter().find(|row| row.id == one.id);
    let row = row.expect("there");
    assert_eq!(row.spec.resources.memory_mib, Some(64));
    assert_eq!(row.name(), "four");
    for view in engine.list() {
        engine.delete(&view.id).await.expect("deleted");
    }
    world.assert_empty("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_and_projects_take_on_so_many_and_no_race_gets_past() {
    let Some(world) = World::new("the_host_and_projects") else {
        return;
    };
    let mut config = world.config(None);
    config.limits = Arc::new(Limits {
        running: Some(3),
        project_default: Quota {
            sandboxes: Some(2),
            ..Quota::default()
        },
        starts_at_once: 2,
        ..Limits::default()
    });
    let engine = Engine::start(config).await.expect("starts");
    let made = futures::future::join_all((0..8).map(|_| engine.create(args(None)))).await;
    let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (3, 5));
    for error in refused {
        let problem = error.expect_err("refused").to_problem();
        assert_eq!(problem.code, ProblemCode::TooMany);
        assert!(problem.retry_after_seconds.is_some());
    }
    let ids: Vec<_> = made.into_iter().flatten().map(|view| view.id).collect();
    engine.stop(&ids[0]).await.expect("stopped");
    let mut owned = args(None);
    owned.spec.project = Some("p".to_owned());
    let owned = engine.create(owned).await.expect("room");
    engine.start_sandbox(&ids[0]).await.expect_err("no room");
    assert_eq!(
        engine.get(&ids[0]).expect("there").state,
        SandboxState::Stopped
    );
    engine.delete(&owned.id).await.expect("deleted");
    engine.start_sandbox(&ids[0]).await.expect("room again");
    let host = engine.host();
    assert_eq!((host.committed.sandboxes, host.committed.running), (3, 3));
    assert_eq!((host.starting, host.waiting), (0, 0));
    for id in ids {
        engine.delete(&id).await.expect("deleted");
    }
    engine.shutdown().await;
    let error = engine.create(args(None)).await.expect_err("ended");
    assert_eq!(error.code(), ProblemCode::Unavailable);
}
