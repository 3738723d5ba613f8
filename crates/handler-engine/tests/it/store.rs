//! The engine over the daemon's real database.

use crate::world::World;
use handler_engine::rows::{Intent, SandboxRow, SandboxRows};
use handler_engine::test_support::spec;
use handler_engine::{CreateArgs, Engine, StoreRows};
use handler_store::Store;
use handler_types::SandboxId;
use handler_types::network::NetworkPolicy;
use handler_types::problem::ProblemCode;
use handler_types::sandbox::SandboxState;
use std::sync::Arc;

fn row(name: &str, random: u8, intent: Option<Intent>, state: SandboxState) -> SandboxRow {
    SandboxRow {
        id: SandboxId::from_random([random; 8]),
        spec: spec(Some(name), NetworkPolicy::Open),
        label: "s_0102030405060708".to_owned(),
        state,
        intent,
        error: Some("why".to_owned()),
        instance: None,
        expires_ms: Some(9),
        idled: true,
        is_broken: false,
        remains: Vec::new(),
        created_ms: i64::from(random),
        updated_ms: i64::from(random),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_being_done_is_read_back_as_it_was_written() {
    let temp = tempfile::tempdir().expect("temp");
    let store = Store::open(&temp.path().join("handler.db")).expect("store");
    let rows = StoreRows::new(store);
    let cases = [
        (Some(Intent::Create), SandboxState::Creating),
        (Some(Intent::Start), SandboxState::Starting),
        (Some(Intent::Stop), SandboxState::Stopping),
        (Some(Intent::Delete), SandboxState::Deleting),
        (None, SandboxState::Running),
        (None, SandboxState::Stopped),
        (None, SandboxState::Failed),
    ];
    let mut row = row("a", 1, Some(Intent::Create), SandboxState::Creating);
    rows.insert(&row).await.expect("inserted");
    let error = rows.insert(&row).await.expect_err("twice");
    assert_eq!(
        handler_engine::EngineError::from(error).code(),
        ProblemCode::Conflict
    );
    for (intent, state) in cases {
        (row.intent, row.state) = (intent, state);
        rows.update(&row, false).await.expect("updated");
        let read = rows.all().await.expect("read").remove(0);
        row.updated_ms = read.updated_ms;
        assert_eq!(read, row);
    }
    // A removal that was given up is shown as failed and still wanted.
    (row.intent, row.state) = (Some(Intent::Delete), SandboxState::Failed);
    rows.update(&row, false).await.expect("updated");
    assert_eq!(
        rows.all().await.expect("read")[0].intent,
        Some(Intent::Delete)
    );
    rows.delete(&row.id).await.expect("deleted");
    rows.delete(&row.id).await.expect("again");
    rows.update(&row, true).await.expect("of nothing");
    assert!(rows.all().await.expect("read").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_survives_the_daemon_and_its_database_connection() {
    let Some(world) = World::new("a_sandbox_survives_the_daemon") else {
        return;
    };
    let database = world.temp.path().join("handler.db");
    let start = async || {
        let store = Store::open(&database).expect("store");
        let mut config = world.config(None);
        config.rows = Arc::new(StoreRows::new(store));
        Engine::start(config).await.expect("engine")
    };
    let engine = start().await;
    let args = CreateArgs {
        spec: spec(Some("one"), NetworkPolicy::default()),
        label: "s_0102030405060708".to_owned(),
    };
    let id = engine.create(args.clone()).await.expect("created").id;
    let error = engine.create(args).await.expect_err("taken");
    assert_eq!(error.code(), ProblemCode::Conflict);
    let boot = engine.guest(&id).expect("guest").boot().to_owned();
    engine.crash().await;
    drop(engine);

    let engine = start().await;
    assert_eq!(engine.guest(&id).expect("adopted").boot(), boot);
    assert_eq!(world.filter.now()[id.as_str()].label, "s_0102030405060708");
    engine
        .set_network(&id, NetworkPolicy::Open)
        .await
        .expect("set");
    engine.stop(&id).await.expect("stopped");
    engine.crash().await;
    drop(engine);

    let engine = start().await;
    let view = engine.get(&id).expect("kept");
    assert_eq!(
        (view.state, view.network),
        (SandboxState::Stopped, NetworkPolicy::Open)
    );
    engine.start_sandbox(&id).await.expect("started");
    engine.delete(&id).await.expect("deleted");
    assert!(engine.list().is_empty());
    world.assert_empty("deleted");
}
