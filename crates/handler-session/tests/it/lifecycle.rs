//! Over the daemon's restarts, in words; every single step is in `crash`.

use crate::support::{SCOPE, World, briefs, config, log};
use handler_session::testing::{BasicAgent, FakeGuest, TestViewer};
use handler_session::{Choice, SessionCore, StartError, StartKind};
use handler_types::session::{SessionState, StopHow};
use serde_json::json;

#[tokio::test]
async fn a_turn_goes_on_over_a_restart_with_its_question() {
    let mut world = World::new().await;
    world.session.prompt("ask").await.expect("prompt");
    world
        .until("a question", |f| f.pending_permissions == 1)
        .await;
    world.restart(|_| {}).await;
    let facts = world
        .until("running", |f| f.state == SessionState::Running)
        .await;
    assert!(facts.busy && facts.pending_permissions == 1);
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    assert_eq!(viewer.texts("user_message_chunk"), ["ask"]);
    viewer.method("session/request_permission").await;
    world
        .session
        .answer_permission("0", Choice::Option("once".into()))
        .await
        .expect("answer");
    viewer.method("_handler/turn_ended").await;
    assert!(world.guest.faults().is_empty());
    assert_eq!(
        world
            .guest
            .lines()
            .iter()
            .filter(|l| l.contains("initialize"))
            .count(),
        1
    );
    assert_eq!(
        briefs(&world.log())
            .iter()
            .filter(|e| *e == "started")
            .count(),
        1
    );
}

#[tokio::test]
async fn output_while_no_daemon_ran_is_not_lost() {
    let mut world = World::new().await;
    world.session.prompt("hang").await.expect("prompt");
    world.until("busy", |f| f.busy).await;
    world.session.release().await;
    world.guest.emit(|out| {
        for n in 0..50 {
            out.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "agent-1",
                "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": format!("away {n}")}}}}));
        }
    });
    world.restart(|_| {}).await;
    let viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    drop(viewer);
    world.until("all of it", |f| f.last_seq >= 54).await;
    let texts: Vec<String> = briefs(&world.log())
        .into_iter()
        .filter(|e| e.contains("away"))
        .collect();
    assert_eq!(
        texts,
        (0..50)
            .map(|n| format!("agent_message_chunk away {n}"))
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_half_line_survives_a_restart_however_long_it_is() {
    for size in [10, 700_000] {
        let mut world = World::new().await;
        let text = "z".repeat(size);
        let line = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "agent-1",
            "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}}}).to_string();
        let (first, second) = line.split_at(line.len() - 20);
        world.guest.emit(|out| {
            for piece in first.as_bytes().chunks(50_000) {
                out.raw(piece);
            }
        });
        if size > 500_000 {
            let guest = world.guest.clone();
            handler_session::testing::wait_for("the long half to be taken over", || {
                guest.acked() > 500_000
            })
            .await;
        }
        world.restart(|_| {}).await;
        world
            .guest
            .emit(|out| out.raw(format!("{second}\n").as_bytes()));
        world.until("the event", |f| f.last_seq == 3).await;
        assert_eq!(world.log()[2]["update"]["content"]["text"], json!(text));
    }
}

#[tokio::test]
async fn the_agents_end_while_no_daemon_ran_is_seen() {
    let mut world = World::new().await;
    world.session.prompt("hang").await.expect("prompt");
    world.until("busy", |f| f.busy).await;
    world.session.release().await;
    world.guest.emit(|out| out.exit(0));
    let session = SessionCore::start(
        config(world.dir.path()),
        world.guest.attach(),
        StartKind::Adopt,
    )
    .await
    .expect("adopt");
    session.closed().await;
    assert_eq!(session.state().borrow().state, SessionState::Stopped);
    assert_eq!(session.state().borrow().error, None);
    let events = briefs(&world.log());
    assert_eq!(events[events.len() - 2..], ["turn end stopped", "stopped"]);
    world.session = session;
}

#[tokio::test]
async fn a_session_whose_sandbox_was_lost_gets_its_books_closed_once() {
    let world = World::new().await;
    world.session.prompt("ask").await.expect("prompt");
    world
        .until("a question", |f| f.pending_permissions == 1)
        .await;
    world.session.release().await;
    let dir = world.dir.path().join("s");
    for _ in 0..2 {
        SessionCore::bury(
            &dir,
            handler_store::Redactor::default(),
            StopHow::Error,
            "the machine was restarted",
        )
        .await
        .expect("bury");
        let events = world.log();
        assert_eq!(
            briefs(&events)[6..],
            [
                "permission resolved cancelled turn_end",
                "turn end stopped",
                "stopped"
            ]
        );
        assert_eq!(
            events.last().expect("last")["detail"],
            "the machine was restarted"
        );
    }
    let adopted = SessionCore::start(
        config(world.dir.path()),
        world.guest.attach(),
        StartKind::Adopt,
    )
    .await;
    assert!(
        matches!(adopted, Err(StartError::NothingToAdopt)),
        "{adopted:?}"
    );
}

#[tokio::test]
async fn a_start_closes_the_books_of_the_run_before() {
    let world = World::new().await;
    world.session.prompt("hang").await.expect("prompt");
    world.until("busy", |f| f.busy).await;
    world.session.release().await;
    // Even a state that cannot be read does not hide the open turn.
    std::fs::write(world.dir.path().join("s/live.json"), "{").expect("damage");
    let guest = FakeGuest::new(BasicAgent::default());
    let kind = StartKind::Load {
        acp_session_id: "agent-1".into(),
        had_turn: true,
    };
    let session = SessionCore::start(config(world.dir.path()), guest.attach(), kind)
        .await
        .expect("start");
    session.ready().await.expect("ready");
    let events = briefs(&log(world.dir.path()));
    assert_eq!(
        events[events.len() - 3..],
        ["turn end stopped", "stopped", "started"]
    );
}

#[tokio::test]
async fn nothing_to_adopt_is_said_so() {
    let dir = tempfile::tempdir().expect("temp folder");
    let guest = FakeGuest::new(BasicAgent::default());
    let adopted = SessionCore::start(config(dir.path()), guest.attach(), StartKind::Adopt).await;
    assert!(
        matches!(adopted, Err(StartError::NothingToAdopt)),
        "{adopted:?}"
    );
}

#[tokio::test]
async fn the_sessions_folder_is_private_and_idle_is_told() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new().await;
    let dir = world.dir.path().join("s");
    assert_eq!(
        std::fs::metadata(&dir)
            .expect("folder")
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    for entry in std::fs::read_dir(&dir).expect("list").flatten() {
        let mode = entry.metadata().expect("file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.path());
    }
    let viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    world.until("not idle", |f| f.idle_since_ms.is_none()).await;
    drop(viewer);
    world.until("idle", |f| f.idle_since_ms.is_some()).await;
}

#[tokio::test]
async fn a_lost_sandbox_stops_the_session_with_an_error() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    world.guest.lose("the sandbox was removed");
    assert_eq!(viewer.closed().await.0, 4002);
    let facts = world
        .until("stopped", |f| f.state == SessionState::Stopped)
        .await;
    assert!(
        facts
            .error
            .expect("error")
            .contains("the sandbox was removed")
    );
}
