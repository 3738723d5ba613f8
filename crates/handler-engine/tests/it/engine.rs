//! The engine's commands, with the real guest.

use crate::peer::SOON;
use crate::world::World;
use handler_engine::test_support::{DriverFault, spec};
use handler_engine::{CreateArgs, Engine, EngineError, Retry, SandboxChange, make_phantom};
use handler_types::SandboxId;
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::problem::ProblemCode;
use handler_types::provider::SecretRef;
use handler_types::sandbox::{PhantomBinding, SandboxState};

fn args(name: Option<&str>) -> CreateArgs {
    CreateArgs {
        spec: spec(name, NetworkPolicy::default()),
        label: "s_0102030405060708".to_owned(),
    }
}

fn filtered(hosts: &[&str]) -> NetworkPolicy {
    NetworkPolicy::Filtered {
        allow: hosts.iter().map(|h| h.parse().expect("entry")).collect(),
        enforcement: Enforcement::Enforce,
    }
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !done() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn state_of(engine: &Engine, id: &SandboxId, wanted: SandboxState) {
    until(&format!("{wanted:?}"), || {
        engine.get(id).is_ok_and(|view| view.state == wanted)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_stop_start_delete_leave_what_they_should() {
    let Some(world) = World::new("create_stop_start_delete") else {
        return;
    };
    let engine = world.engine().await;
    let mut changes = engine.subscribe();
    let view = engine.create(args(Some("one"))).await.expect("created");
    assert_eq!(
        (view.state, view.name.as_str()),
        (SandboxState::Running, "one")
    );
    world.assert_one_running(&view.id, "created");
    let guest = engine.guest(&view.id).expect("guest");
    guest.stats().await.expect("answers");

    let stopped = engine.stop(&view.id).await.expect("stopped");
    assert_eq!(stopped.state, SandboxState::Stopped);
    world.assert_one_resting("stopped");
    assert!(guest.stats().await.expect_err("closed").is_lost());
    let error = engine.guest(&view.id).expect_err("not running");
    assert_eq!(error.code(), ProblemCode::Conflict);
    engine.stop(&view.id).await.expect("again");

    engine.start_sandbox(&view.id).await.expect("started");
    world.assert_one_running(&view.id, "started");
    engine.restart(&view.id).await.expect("restarted");
    world.assert_one_running(&view.id, "restarted");
    assert_eq!(world.driver.starts(&view.id), 3);

    engine.delete(&view.id).await.expect("deleted");
    world.assert_empty("deleted");
    engine.delete(&view.id).await.expect("again");
    assert!(matches!(
        engine.get(&view.id),
        Err(EngineError::NotFound(_))
    ));
    let mut last = None;
    while let Ok(change) = changes.try_recv() {
        last = Some(change);
    }
    assert_eq!(last, Some(SandboxChange::Removed(view.id)));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_before_anything_exists() {
    let Some(world) = World::new("what_cannot_be_is_refused") else {
        return;
    };
    let engine = world.engine().await;
    for name in [
        "",
        "-a",
        "Übung",
        "a b",
        "sb0102030405060708",
        &"x".repeat(64),
    ] {
        let error = engine.create(args(Some(name))).await.expect_err(name);
        assert_eq!(error.code(), ProblemCode::Invalid, "{name}: {error}");
    }
    let mut foreign = args(None);
    foreign.spec.backend = "docker".to_owned();
    let error = engine.create(foreign).await.expect_err("no backend");
    assert_eq!(error.to_string(), "there is no backend `docker`");
    world.driver.refuse(Some("this cannot be enforced here"));
    let error = engine.create(args(None)).await.expect_err("refused");
    assert_eq!(error.code(), ProblemCode::Unenforceable);
    assert_eq!(error.to_problem().detail, "this cannot be enforced here");
    world.driver.refuse(None);
    world.assert_empty("refused");

    let first = engine.create(args(Some("one"))).await.expect("created");
    let error = engine.create(args(Some("one"))).await.expect_err("taken");
    assert_eq!(error.code(), ProblemCode::Conflict);
    let (a, b) = tokio::join!(
        engine.create(args(Some("two"))),
        engine.create(args(Some("two")))
    );
    assert!(a.is_ok() != b.is_ok(), "one of two: {a:?} {b:?}");
    assert_eq!(engine.list().len(), 2);
    assert_eq!(engine.find("one").expect("by name").id, first.id);
    assert_eq!(
        engine.find(&first.id.as_str()[..14]).expect("prefix").id,
        first.id
    );
    assert!(matches!(
        engine.find("sb"),
        Err(EngineError::Ambiguous { count: 2, .. })
    ));
    assert!(matches!(engine.find(""), Err(EngineError::NotFound(_))));
    for view in engine.list() {
        engine.delete(&view.id).await.expect("deleted");
    }
    world.assert_empty("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_create_tells_the_cause_and_leaves_nothing() {
    let Some(world) = World::new("a_failed_create") else {
        return;
    };
    let engine = world.engine().await;
    world.driver.strike(DriverFault::FailStart);
    let error = engine.create(args(Some("x"))).await.expect_err("failed");
    assert_eq!(error.to_string(), "start: a fault was set");
    assert_eq!(error.code(), ProblemCode::BackendFailed);
    world.assert_empty("start failed");

    world.driver.strike(DriverFault::DeadOnArrival);
    let error = engine.create(args(Some("x"))).await.expect_err("dead");
    assert!(error.to_string().contains("ended before"), "{error}");
    world.assert_empty("dead on arrival");

    world.filter.fail_puts(Some("no more sockets"));
    let error = engine.create(args(Some("x"))).await.expect_err("filter");
    assert!(
        error.detail().contains("no more sockets"),
        "{}",
        error.detail()
    );
    world.assert_empty("filter failed");
    world.filter.fail_puts(None);

    // Something that resists removal is told, kept in sight, and gone later.
    world.driver.strike(DriverFault::DeadOnArrival);
    for _ in 0..4 {
        world.driver.strike(DriverFault::FailDestroy);
    }
    engine.create(args(Some("x"))).await.expect_err("dead");
    assert_eq!(world.rows.now().len(), 1, "kept in sight");
    until("it is removed later", || world.rows.now().is_empty()).await;
    until("its name is free", || engine.list().is_empty()).await;
    world.assert_empty("later");
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_at_the_same_time_are_one_and_share_its_outcome() {
    let Some(world) = World::new("starts_at_the_same_time") else {
        return;
    };
    let engine = world.engine().await;
    let id = engine.create(args(None)).await.expect("created").id;
    engine.stop(&id).await.expect("stopped");
    let starts = (0..8).map(|_| engine.start_sandbox(&id));
    for result in futures::future::join_all(starts).await {
        assert_eq!(result.expect("started").state, SandboxState::Running);
    }
    assert_eq!(world.driver.starts(&id), 2);

    engine.stop(&id).await.expect("stopped");
    world.driver.strike(DriverFault::FailStart);
    let starts = (0..8).map(|_| engine.start_sandbox(&id));
    let results = futures::future::join_all(starts).await;
    assert!(results.iter().all(Result::is_err), "{results:?}");
    let view = engine.get(&id).expect("kept");
    assert_eq!(view.state, SandboxState::Failed);
    assert_eq!(view.error.as_deref(), Some("start: a fault was set"));
    world.assert_one_resting("failed start keeps the home");
    let view = engine.start_sandbox(&id).await.expect("works again");
    assert_eq!(view.error, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_ends_by_itself_is_cleared_away_and_said() {
    let Some(world) = World::new("an_instance_that_ends_by_itself") else {
        return;
    };
    let engine = world.engine().await;
    let id = engine.create(args(None)).await.expect("created").id;
    world.driver.kill(&id);
    state_of(&engine, &id, SandboxState::Failed).await;
    until("cleared", || world.folders().len() == 1).await;
    world.assert_one_resting("ended by itself");
    let error = engine.get(&id).expect("kept").error.expect("a reason");
    assert!(!error.is_empty());
    engine.start_sandbox(&id).await.expect("starts again");
    world.assert_one_running(&id, "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_changes_live_but_not_from_or_to_none() {
    let Some(world) = World::new("the_network_changes_live") else {
        return;
    };
    let engine = world.engine().await;
    let id = engine.create(args(None)).await.expect("created").id;
    let policy = filtered(&["example.com:443"]);
    let view = engine.set_network(&id, policy.clone()).await.expect("live");
    assert_eq!(view.network, policy);
    assert_eq!(world.filter.now()[id.as_str()].policy, policy);
    assert_eq!(world.rows.now()[0].spec.network, policy);

    let error = engine
        .set_network(&id, NetworkPolicy::None)
        .await
        .expect_err("running");
    assert!(matches!(error, EngineError::NetworkSwitch));
    assert_eq!(error.retry(), Retry::Later);
    world.filter.fail_puts(Some("no"));
    engine
        .set_network(&id, NetworkPolicy::Open)
        .await
        .expect_err("not put");
    assert_eq!(
        engine.get(&id).expect("there").network,
        policy,
        "the old one stays"
    );
    world.filter.fail_puts(None);

    engine.stop(&id).await.expect("stopped");
    engine
        .set_network(&id, NetworkPolicy::None)
        .await
        .expect("at rest");
    engine.start_sandbox(&id).await.expect("started");
    assert!(world.filter.now().is_empty());
    engine.delete(&id).await.expect("deleted");
    world.assert_empty("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn phantoms_are_bound_to_values_again_whenever_a_new_filter_or_daemon_comes() {
    let Some(world) = World::new("phantoms_are_bound_again") else {
        return;
    };
    let value = "sk-test-0123456789abcdef0123456789abcdef";
    let phantom = make_phantom(value, || handler_base::random::bytes::<1>()[0]).expect("phantom");
    world.secrets.set("providers/p/apiKey", value);
    let mut args = args(None);
    args.spec.env.insert("API_KEY".to_owned(), phantom.clone());
    args.spec.phantoms.push(PhantomBinding {
        name: "providers/p/apiKey".to_owned(),
        secret: SecretRef::Secret("providers/p/apiKey".to_owned()),
        env: Some("API_KEY".to_owned()),
        phantom: phantom.clone(),
        hosts: vec!["api.example.com:443".parse().expect("entry")],
    });
    let engine = world.engine().await;
    let id = engine.create(args.clone()).await.expect("created").id;
    let check = |context: &str| {
        let settings = world.filter.now()[id.as_str()].clone();
        assert_eq!(settings.injections[0].phantom, phantom, "{context}");
        assert_eq!(settings.injections[0].value, value, "{context}");
        assert_eq!(settings.label, "s_0102030405060708", "{context}");
        assert_eq!(
            settings.policy,
            filtered(&["api.example.com:443"]),
            "{context}"
        );
    };
    check("first");
    world.filter.restart();
    until("put again", || world.filter.now().contains_key(id.as_str())).await;
    check("new filter");
    // A filter that is away for a moment is tried again.
    world.filter.fail_puts(Some("not yet"));
    world.filter.restart();
    tokio::task::yield_now().await;
    world.filter.fail_puts(None);
    until("put again", || world.filter.now().contains_key(id.as_str())).await;

    engine.crash().await;
    world.filter.restart();
    let engine = world.engine().await;
    check("new daemon and filter");
    assert_eq!(world.driver.starts(&id), 1, "adopted, not started again");
    let stored = format!(
        "{:?}{}",
        world.rows.now(),
        serde_json::to_string(&engine.spec(&id).expect("spec")).expect("json")
    );
    assert!(!stored.contains(value) && stored.contains(&phantom));

    engine.stop(&id).await.expect("stopped");
    world.secrets.set("providers/p/apiKey", "of another length");
    let error = engine
        .start_sandbox(&id)
        .await
        .expect_err("cannot be bound");
    assert_eq!(error.code(), ProblemCode::NotConfigured);
    assert!(!error.detail().contains("of another length"));
    world.secrets.unset("providers/p/apiKey");
    let error = engine.create(args).await.expect_err("no value");
    assert_eq!(
        error.to_string(),
        "secret `providers/p/apiKey`: it has no value"
    );
    assert_eq!(engine.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_leaves_sandboxes_running_and_the_next_engine_adopts_them() {
    let Some(world) = World::new("a_shutdown_leaves_sandboxes_running") else {
        return;
    };
    let engine = world.engine().await;
    let id = engine.create(args(Some("kept"))).await.expect("created").id;
    let stopped = engine
        .create(args(Some("stopped")))
        .await
        .expect("created")
        .id;
    engine.stop(&stopped).await.expect("stopped");
    let boot = engine.guest(&id).expect("guest").boot().to_owned();
    engine.shutdown().await;
    let error = engine.create(args(None)).await.expect_err("over");
    assert!(matches!(error, EngineError::ShuttingDown));

    let engine = world.engine().await;
    assert_eq!(engine.guest(&id).expect("adopted").boot(), boot);
    assert_eq!(
        engine.get(&stopped).expect("kept").state,
        SandboxState::Stopped
    );
    engine.shutdown().await;

    // It ends while no daemon runs.
    world.driver.kill(&id);
    until("dead", || world.driver.living().is_empty()).await;
    let engine = world.engine().await;
    let view = engine.get(&id).expect("kept");
    assert_eq!(view.state, SandboxState::Stopped);
    assert!(view.error.is_some());
    for id in [id, stopped] {
        engine.delete(&id).await.expect("deleted");
    }
    world.assert_empty("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_away_when_the_daemon_comes_back_ends_no_sandbox() {
    let Some(world) = World::new("a_filter_that_is_away") else {
        return;
    };
    let engine = world.engine().await;
    let id = engine.create(args(None)).await.expect("created").id;
    engine.crash().await;
    world.filter.restart();
    world.filter.fail_puts(Some("not yet"));
    let engine = world.engine().await;
    assert_eq!(engine.get(&id).expect("there").state, SandboxState::Running);
    assert_eq!(world.driver.starts(&id), 1);
    assert!(world.filter.now().is_empty(), "closed in, not open");
    world.filter.fail_puts(None);
    until("put in the end", || {
        world.filter.now().contains_key(id.as_str())
    })
    .await;
    engine.delete(&id).await.expect("deleted");
    world.assert_empty("deleted");
}
