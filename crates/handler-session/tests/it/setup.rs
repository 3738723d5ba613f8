//! Starting: initialize, session/new or load, defaults.

use crate::support::{SCOPE, World, briefs, config, log, until};
use handler_session::testing::{AgentOut, BasicAgent, FakeGuest};
use handler_session::{SessionCore, SessionHandle, StartError, StartFailureKind, StartKind};
use handler_types::harness::{McpServer, SessionDefaults};
use handler_types::session::{SessionState, StopHow};
use serde_json::{Value, json};
use std::time::Duration;

fn defaults(modes: &[&str], model: Option<&str>) -> SessionDefaults {
    SessionDefaults {
        mode_ids: modes.iter().map(ToString::to_string).collect(),
        config_options: model
            .map(|model| ("model".to_owned(), model.to_owned()))
            .into_iter()
            .collect(),
        ..SessionDefaults::default()
    }
}

#[tokio::test]
async fn a_start_offers_no_files_or_terminals_and_sets_mode_and_model() {
    let world = World::with(BasicAgent::default(), |config| {
        config.defaults = defaults(&["nosuch", "default"], Some("big"));
        config.defaults.mcp_servers = vec![McpServer::Stdio {
            name: "tools".to_owned(),
            command: "serve".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
        }];
    })
    .await;
    let lines: Vec<Value> = world
        .guest
        .lines()
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let methods: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["method"].as_str())
        .collect();
    assert_eq!(
        methods,
        [
            "initialize",
            "session/new",
            "session/set_mode",
            "session/set_config_option"
        ]
    );
    assert_eq!(
        lines[0]["params"]["clientCapabilities"],
        json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false})
    );
    assert_eq!(lines[0]["params"]["protocolVersion"], 1);
    let server = json!({"name": "tools", "command": "serve", "args": [], "env": []});
    assert_eq!(
        lines[1]["params"],
        json!({"cwd": SCOPE, "mcpServers": [server]})
    );
    assert_eq!(
        lines[2]["params"],
        json!({"sessionId": "agent-1", "modeId": "default"})
    );
    assert_eq!(
        lines[3]["params"],
        json!({"sessionId": "agent-1", "configId": "model", "value": "big"})
    );
    let facts = world
        .until("running", |facts| facts.state == SessionState::Running)
        .await;
    assert_eq!(facts.acp_session_id.as_deref(), Some("agent-1"));
    assert!(facts.can_resume && !facts.busy && facts.idle_since_ms.is_some());
    // The update that came before the session had its id is not lost.
    assert_eq!(
        briefs(&world.log()),
        ["available_commands_update", "started"]
    );
    let mut viewer = handler_session::testing::TestViewer::load(&world.session, SCOPE, 0).await;
    let loaded = viewer.answer_to_last();
    assert_eq!(loaded["modes"]["currentModeId"], "default");
    assert_eq!(loaded["configOptions"][0]["currentValue"], "big");
    assert!(world.guest.faults().is_empty());
    viewer.seen.clear();
}

async fn start(
    agent: impl handler_session::testing::Agent + 'static,
    change: impl FnOnce(&mut handler_session::SessionConfig),
) -> (tempfile::TempDir, FakeGuest, SessionHandle) {
    let dir = tempfile::tempdir().expect("temp folder");
    let guest = FakeGuest::new(agent);
    let mut config = config(dir.path());
    change(&mut config);
    let session = SessionCore::start(config, guest.attach(), StartKind::New)
        .await
        .expect("start");
    (dir, guest, session)
}

async fn failure(session: &SessionHandle) -> (StartFailureKind, String) {
    match session.ready().await {
        Err(StartError::Failed(failure)) => (failure.kind, failure.message),
        other => panic!("expected a failed start, got {other:?}"),
    }
}

#[tokio::test]
async fn a_mode_that_is_not_offered_is_never_handed_out() {
    let (dir, _guest, session) = start(BasicAgent::default(), |config| {
        config.defaults = defaults(&["bypass"], None);
    })
    .await;
    let (kind, message) = failure(&session).await;
    assert_eq!(kind, StartFailureKind::Policy);
    assert!(
        message.contains("bypass") && message.contains("default"),
        "{message}"
    );
    session.closed().await;
    let events = log(dir.path());
    let last = events.last().expect("an event");
    assert_eq!(
        (last["event"].as_str(), last["how"].as_str()),
        (Some("stopped"), Some("error"))
    );
}

#[tokio::test]
async fn an_option_the_agent_refuses_fails_the_start() {
    let agent = |line: &Value, out: &mut AgentOut| match line["method"].as_str() {
        Some("initialize") => {
            out.send(&json!({"id": line["id"], "result": {"protocolVersion": 1}}));
        }
        Some("session/new") => out.send(&json!({"id": line["id"], "result": {"sessionId": "x"}})),
        _ => out.send(
            &json!({"id": line["id"], "error": {"code": -32602, "message": "no such option"}}),
        ),
    };
    let (_dir, _guest, session) =
        start(agent, |config| config.defaults = defaults(&[], Some("big"))).await;
    let (kind, message) = failure(&session).await;
    assert_eq!(kind, StartFailureKind::Policy);
    assert!(message.contains("no such option"), "{message}");
}

#[tokio::test]
async fn a_silent_agent_fails_the_start_with_its_last_words() {
    let agent = |_: &Value, out: &mut AgentOut| out.err("cannot find the model\n");
    let (_dir, _guest, session) = start(agent, |config| {
        config.start_timeout = Duration::from_millis(200);
    })
    .await;
    let (kind, message) = failure(&session).await;
    assert_eq!(kind, StartFailureKind::Timeout);
    assert!(message.contains("cannot find the model"), "{message}");
    assert_eq!(
        until(&session, "failed", |f| f.state == SessionState::Failed)
            .await
            .attached,
        0
    );
}

#[tokio::test]
async fn an_agent_that_exits_or_speaks_another_version_fails_the_start() {
    let exits = |_: &Value, out: &mut AgentOut| {
        out.err("no key");
        out.exit(1);
    };
    let (_dir, _guest, session) = start(exits, |_| {}).await;
    let (kind, message) = failure(&session).await;
    assert_eq!(kind, StartFailureKind::Ended);
    assert!(
        message.contains("exited (1)") && message.contains("no key"),
        "{message}"
    );

    let v2 = |line: &Value, out: &mut AgentOut| {
        out.send(&json!({"id": line["id"], "result": {"protocolVersion": 2}}));
    };
    let (_dir, _guest, session) = start(v2, |_| {}).await;
    assert!(failure(&session).await.1.contains("protocol version 2"));

    let refuses = |line: &Value, out: &mut AgentOut| {
        out.send(&json!({"id": line["id"], "error": {"code": -32000, "message": "Authentication required"}}));
    };
    let (_dir, _guest, session) = start(refuses, |_| {}).await;
    assert!(
        failure(&session)
            .await
            .1
            .contains("Authentication required")
    );
}

#[tokio::test]
async fn a_stopped_session_is_loaded_again_and_its_replay_is_not_logged_twice() {
    let mut world = World::new().await;
    world.session.prompt("hello").await.expect("prompt");
    world
        .until("the turn's end", |f| f.last_stop_reason.is_some())
        .await;
    world
        .session
        .stop(StopHow::Explicit, "stopped by a test")
        .await
        .expect("stop");
    let before = world.log();
    assert_eq!(briefs(&before).last().map(String::as_str), Some("stopped"));

    let agent = BasicAgent {
        history: vec![
            json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "hello"}}),
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "you said hello"}}),
        ],
        ..BasicAgent::default()
    };
    world.guest = FakeGuest::new(agent);
    let kind = StartKind::Load {
        acp_session_id: "agent-1".into(),
        had_turn: true,
    };
    let mut config = config(world.dir.path());
    config.defaults = defaults(&["default"], None);
    world.session = SessionCore::start(config, world.guest.attach(), kind)
        .await
        .expect("start");
    world.session.ready().await.expect("ready");
    let lines = world.guest.lines();
    assert!(
        lines[1].contains("session/load") && lines[1].contains("agent-1"),
        "{lines:?}"
    );
    assert!(
        lines[2].contains("set_mode"),
        "a new process gets the session's mode: {lines:?}"
    );
    assert_eq!(world.log().len(), before.len() + 1, "only `started` is new");
    let facts = world
        .until("running", |f| f.state == SessionState::Running)
        .await;
    assert_eq!(
        (facts.title.as_deref(), facts.had_turn),
        (Some("hello"), true)
    );
}

#[tokio::test]
async fn an_agent_that_cannot_load_is_not_started_again() {
    let mut world = World::with(
        BasicAgent {
            can_load: false,
            ..BasicAgent::default()
        },
        |_| {},
    )
    .await;
    world.session.prompt("hello").await.expect("prompt");
    world
        .until("the turn's end", |f| f.last_stop_reason.is_some())
        .await;
    world
        .session
        .stop(StopHow::Explicit, "")
        .await
        .expect("stop");
    world.guest = FakeGuest::new(BasicAgent {
        can_load: false,
        ..BasicAgent::default()
    });
    let kind = StartKind::Load {
        acp_session_id: "agent-1".into(),
        had_turn: true,
    };
    let session = SessionCore::start(config(world.dir.path()), world.guest.attach(), kind)
        .await
        .expect("start");
    assert_eq!(
        failure(&session).await,
        (
            StartFailureKind::CannotResume,
            "this agent cannot resume sessions".into()
        )
    );
    assert_eq!(
        until(&session, "stopped", |f| f.state != SessionState::Starting)
            .await
            .state,
        SessionState::Stopped
    );
}

#[tokio::test]
async fn a_session_without_a_turn_is_opened_anew_under_its_old_id() {
    let mut world = World::new().await;
    world
        .session
        .stop(StopHow::Idle, "idle")
        .await
        .expect("stop");
    world.guest = FakeGuest::new(BasicAgent {
        session: "agent-2".into(),
        can_load: false,
        ..BasicAgent::default()
    });
    let kind = StartKind::Load {
        acp_session_id: "agent-1".into(),
        had_turn: false,
    };
    world.session = SessionCore::start(config(world.dir.path()), world.guest.attach(), kind)
        .await
        .expect("start");
    world.session.ready().await.expect("ready");
    assert!(world.guest.lines()[1].contains("session/new"));
    let mut viewer = handler_session::testing::TestViewer::load(&world.session, SCOPE, 0).await;
    let answer = viewer
        .call(
            "session/prompt",
            json!({"sessionId": "agent-1", "prompt": [{"type": "text", "text": "hello"}]}),
        )
        .await;
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    world.guest.wait_line("session/prompt").await;
    let prompt = world
        .guest
        .lines()
        .into_iter()
        .find(|line| line.contains("session/prompt"))
        .expect("prompt");
    assert!(
        prompt.contains("agent-2") && !prompt.contains("agent-1"),
        "{prompt}"
    );
    assert!(
        viewer
            .seen
            .iter()
            .all(|m| !m.to_string().contains("agent-2")),
        "clients know the old id only"
    );
}

#[tokio::test]
async fn a_history_that_the_log_lacks_is_taken_from_the_agent() {
    let dir = tempfile::tempdir().expect("temp folder");
    let guest = FakeGuest::new(BasicAgent {
        session: "elsewhere".into(),
        history: vec![
            json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "old"}}),
        ],
        ..BasicAgent::default()
    });
    let kind = StartKind::Load {
        acp_session_id: "elsewhere".into(),
        had_turn: true,
    };
    let session = SessionCore::start(config(dir.path()), guest.attach(), kind)
        .await
        .expect("start");
    session.ready().await.expect("ready");
    assert_eq!(
        briefs(&log(dir.path())),
        ["user_message_chunk old", "started"]
    );
}
