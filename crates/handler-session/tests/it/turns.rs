//! Turns: prompts, mirrors, cancel, timeouts, the agent's end.

use crate::support::{SCOPE, World, briefs};
use handler_session::testing::{BasicAgent, TestViewer};
use handler_session::{Choice, SessionError};
use handler_types::secret::SecretValue;
use handler_types::session::{SessionState, StopHow};
use serde_json::{Value, json};
use std::time::Duration;

fn prompt(text: &str) -> Value {
    json!({"sessionId": "agent-1", "prompt": [{"type": "text", "text": text}]})
}

#[tokio::test]
async fn a_prompt_is_logged_and_shown_to_the_others_with_its_end() {
    let world = World::new().await;
    let mut one = TestViewer::load(&world.session, SCOPE, 0).await;
    let mut two = TestViewer::load(&world.session, SCOPE, 0).await;
    let answer = one.call("session/prompt", prompt("hello")).await;
    assert_eq!(
        answer["result"],
        json!({"stopReason": "end_turn", "usage": null}),
        "unknown members stay"
    );
    two.method("_handler/turn_ended").await;
    assert_eq!(
        one.texts("user_message_chunk"),
        Vec::<String>::new(),
        "it knows its own prompt"
    );
    assert_eq!(two.texts("user_message_chunk"), ["hello"]);
    assert_eq!(one.texts("agent_message_chunk"), ["you said hello"]);
    assert_eq!(two.texts("agent_message_chunk"), ["you said hello"]);
    assert!(
        !one.seen
            .iter()
            .any(|m| m["method"] == "_handler/turn_ended")
    );
    assert_eq!(
        briefs(&world.log())[2..],
        [
            "turn start",
            "user_message_chunk hello",
            "agent_message_chunk you said hello",
            "turn end end_turn"
        ]
    );
    let facts = world.until("idle", |f| !f.busy && f.title.is_some()).await;
    assert_eq!(
        (facts.title.as_deref(), facts.last_stop_reason.as_deref()),
        (Some("hello"), Some("end_turn"))
    );
}

#[tokio::test]
async fn instructions_stand_before_the_first_prompt_only_and_nobody_is_shown_them() {
    let mut world = World::with(BasicAgent::default(), |config| {
        config.instructions = Some("Be short.".to_owned());
    })
    .await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.call("session/prompt", prompt("hello")).await;
    assert_eq!(
        viewer.texts("agent_message_chunk"),
        ["you said Be short.\n\nhello"]
    );
    let facts = world.until("a title", |f| f.title.is_some()).await;
    assert_eq!(facts.title.as_deref(), Some("hello"));
    viewer.call("session/prompt", prompt("again")).await;
    // A daemon that takes over knows that they were given.
    world
        .restart(|config| config.instructions = Some("Be short.".to_owned()))
        .await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.call("session/prompt", prompt("and again")).await;
    let logged = briefs(&world.log());
    let said = |line: &&String| line.contains("user_message_chunk") || line.contains("you said");
    let said: Vec<_> = logged.iter().filter(said).map(String::as_str).collect();
    assert_eq!(
        said,
        [
            "user_message_chunk hello",
            "agent_message_chunk you said Be short.\n\nhello",
            "user_message_chunk again",
            "agent_message_chunk you said again",
            "user_message_chunk and again",
            "agent_message_chunk you said and again",
        ]
    );
}

#[tokio::test]
async fn an_echo_of_the_prompt_is_neither_logged_nor_shown() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.call("session/prompt", prompt("echo this")).await;
    assert!(viewer.texts("user_message_chunk").is_empty());
    let events = briefs(&world.log());
    assert_eq!(
        events
            .iter()
            .filter(|e| e.starts_with("user_message_chunk"))
            .count(),
        1
    );
}

#[tokio::test]
async fn a_second_prompt_is_refused_while_a_turn_is_under_way() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.request("session/prompt", prompt("hang")).await;
    viewer.method("session/update").await;
    let refused = viewer.call("session/prompt", prompt("again")).await;
    assert_eq!(refused["error"]["code"], -32011);
    assert_eq!(world.session.prompt("again").await, Err(SessionError::Busy));
    assert_eq!(world.session.prompt("  ").await, Err(SessionError::Empty));
    assert_eq!(
        world
            .guest
            .lines()
            .iter()
            .filter(|l| l.contains("session/prompt"))
            .count(),
        1
    );
}

#[tokio::test]
async fn a_cancel_ends_the_turn() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    let id = viewer.request("session/prompt", prompt("hang")).await;
    viewer.method("session/update").await;
    viewer.raw(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "agent-1"}}).to_string()).await;
    assert_eq!(
        viewer.answer_to(id).await["result"]["stopReason"],
        "cancelled"
    );
    assert_eq!(
        world
            .until("cancelled", |f| f.last_stop_reason.is_some())
            .await
            .last_stop_reason
            .as_deref(),
        Some("cancelled")
    );
}

#[tokio::test]
async fn a_cancel_answers_the_agents_open_questions_itself() {
    let world = World::new().await;
    world.session.prompt("ask-hang").await.expect("prompt");
    world
        .until("a question", |f| f.pending_permissions == 1)
        .await;
    world.session.cancel().await.expect("cancel");
    let facts = world
        .until("the end", |f| f.last_stop_reason.is_some())
        .await;
    assert_eq!(
        (facts.last_stop_reason.as_deref(), facts.pending_permissions),
        (Some("cancelled"), 0)
    );
    let lines = world.guest.lines();
    let at = |text: &str| {
        lines
            .iter()
            .position(|line| line.contains(text))
            .expect("the agent read it")
    };
    assert!(at("session/cancel") < at(r#""outcome":"cancelled""#));
    assert!(briefs(&world.log()).contains(&"permission resolved cancelled cancel".to_owned()));
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_cancelled() {
    let world = World::with(BasicAgent::default(), |c| {
        c.turn_timeout = Duration::from_millis(100);
    })
    .await;
    world.session.prompt("ask-hang").await.expect("prompt");
    let facts = world
        .until("the end", |f| f.last_stop_reason.is_some())
        .await;
    assert_eq!(facts.last_stop_reason.as_deref(), Some("timed_out"));
    assert_eq!(facts.error, None, "the agent obeyed");
}

#[tokio::test]
async fn a_turn_that_not_even_a_cancel_ends_is_given_up_with_an_error() {
    let world = World::with(BasicAgent::default(), |config| {
        config.turn_timeout = Duration::from_millis(100);
        config.cancel_grace = Duration::from_millis(100);
    })
    .await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    let answer = viewer.call("session/prompt", prompt("deaf")).await;
    assert_eq!(answer["error"]["code"], -32603);
    let facts = world.until("an error", |f| f.error.is_some()).await;
    assert_eq!(
        (facts.last_stop_reason.as_deref(), facts.busy),
        (Some("timed_out"), false)
    );
    assert!(
        world
            .guest
            .lines()
            .iter()
            .any(|line| line.contains("session/cancel"))
    );
}

#[tokio::test]
async fn an_error_of_the_model_ends_the_turn_and_reaches_the_viewer() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    let answer = viewer.call("session/prompt", prompt("fail")).await;
    assert_eq!(
        answer["error"],
        json!({"code": 400, "message": "model error"})
    );
    let end = world.log().last().cloned().expect("an event");
    assert_eq!(
        (end["stopReason"].as_str(), end["error"].as_str()),
        (Some("error"), Some("model error"))
    );
    assert_eq!(world.until("idle", |f| !f.busy).await.error, None);
}

#[tokio::test]
async fn an_agent_that_exits_during_a_turn_stops_the_session_with_an_error() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.request("session/prompt", prompt("exit")).await;
    let (code, reason) = viewer.closed().await;
    assert_eq!(code, 4002);
    assert!(
        reason.contains("agent exited (3)") && reason.contains("boom"),
        "{reason}"
    );
    let facts = world
        .until("stopped", |f| f.state == SessionState::Stopped)
        .await;
    assert!(facts.error.expect("an error").contains("boom"));
    world.session.closed().await;
    let events = world.log();
    assert_eq!(briefs(&events)[4..], ["turn end stopped", "stopped"]);
    assert_eq!(events.last().expect("last")["how"], "exited");
    assert_eq!(world.session.prompt("x").await, Err(SessionError::Ended));
}

#[tokio::test]
async fn a_stop_ends_the_turn_and_closes_the_viewers() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.request("session/prompt", prompt("ask")).await;
    viewer.method("session/request_permission").await;
    world
        .session
        .stop(StopHow::Explicit, "stopped by the user")
        .await
        .expect("stop");
    assert_eq!(
        viewer.closed().await,
        (4002, "stopped by the user".to_owned())
    );
    let events = briefs(&world.log());
    assert_eq!(
        events[events.len() - 3..],
        [
            "permission resolved cancelled turn_end",
            "turn end stopped",
            "stopped"
        ]
    );
    let facts = world.session.state().borrow().clone();
    assert_eq!((facts.state, facts.error), (SessionState::Stopped, None));
}

#[tokio::test]
async fn file_requests_are_answered_without_any_viewer() {
    let world = World::new().await;
    world.session.prompt("fs").await.expect("prompt");
    world
        .until("the end", |f| f.last_stop_reason.is_some())
        .await;
    assert!(briefs(&world.log()).contains(&"agent_message_chunk answer -32003".to_owned()));
}

#[tokio::test]
async fn an_extension_request_waits_for_a_viewer_and_is_refused_without_one() {
    let world = World::new().await;
    world.session.prompt("ext").await.expect("prompt");
    world
        .until("the end", |f| f.last_stop_reason.is_some())
        .await;
    assert!(briefs(&world.log()).contains(&"agent_message_chunk answer -32601".to_owned()));

    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.request("session/prompt", prompt("ext")).await;
    let asked = viewer.method("_vendor/question").await;
    viewer
        .raw(
            json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -7, "message": "no"}})
                .to_string(),
        )
        .await;
    viewer
        .until("its answer", |m| {
            m["params"]["update"]["content"]["text"] == "answer -7"
        })
        .await;
}

#[tokio::test]
async fn secrets_are_taken_out_of_the_log_and_the_facts() {
    let secret = "sk-very-secret-1234";
    let world = World::with(BasicAgent::default(), |config| {
        config.redactor = handler_store::Redactor::new(vec![SecretValue::new(secret.to_owned())]);
    })
    .await;
    world
        .session
        .prompt(&format!("leak {secret}"))
        .await
        .expect("prompt");
    world
        .until("the end", |f| f.last_stop_reason.is_some())
        .await;
    let text = std::fs::read_to_string(world.dir.path().join("s/events.ndjson")).expect("log");
    assert!(text.contains("you said leak ***") && !text.contains(secret));
    assert!(!format!("{:?}", world.session.state().borrow().clone()).contains(secret));
}

#[tokio::test]
async fn a_mode_and_an_option_change_are_shown_to_the_others() {
    let world = World::new().await;
    let mut one = TestViewer::load(&world.session, SCOPE, 0).await;
    let mut two = TestViewer::load(&world.session, SCOPE, 0).await;
    one.call(
        "session/set_mode",
        json!({"sessionId": "agent-1", "modeId": "default"}),
    )
    .await;
    let shown = two.method("session/update").await;
    assert_eq!(
        shown["params"]["update"],
        json!({"sessionUpdate": "current_mode_update", "currentModeId": "default"})
    );
    one.call(
        "session/set_config_option",
        json!({"sessionId": "agent-1", "configId": "model", "value": "big"}),
    )
    .await;
    let shown = two.method("session/update").await;
    assert_eq!(
        shown["params"]["update"]["configOptions"][0]["currentValue"],
        "big"
    );
    let three = TestViewer::load(&world.session, SCOPE, 0).await;
    let loaded = three.answer_to_last();
    assert_eq!(
        (
            &loaded["modes"]["currentModeId"],
            &loaded["configOptions"][0]["currentValue"]
        ),
        (&json!("default"), &json!("big"))
    );
}

#[tokio::test]
async fn an_answer_through_the_api_reaches_the_agent() {
    let world = World::new().await;
    world.session.prompt("ask").await.expect("prompt");
    world
        .until("a question", |f| f.pending_permissions == 1)
        .await;
    let asked = world.session.permissions().await.expect("permissions");
    assert_eq!(
        (
            asked[0].request_id.as_str(),
            asked[0].title.as_str(),
            asked[0].options.len()
        ),
        ("0", "Write out.txt", 2)
    );
    let answer = |id: &str, option: &str| {
        let (session, id, choice) = (
            world.session.clone(),
            id.to_owned(),
            Choice::Option(option.to_owned()),
        );
        async move { session.answer_permission(&id, choice).await }
    };
    assert_eq!(answer("7", "once").await, Err(SessionError::NoSuchQuestion));
    assert_eq!(answer("0", "nosuch").await, Err(SessionError::NotAnOption));
    assert_eq!(answer("0", "once").await, Ok(()));
    assert_eq!(answer("0", "once").await, Err(SessionError::NoSuchQuestion));
    world
        .until("the end", |f| f.last_stop_reason.is_some())
        .await;
    assert!(briefs(&world.log()).contains(&"agent_message_chunk answer once".to_owned()));
}
