//! Questions with several viewers, and with none.

use crate::support::{SCOPE, World, briefs};
use handler_session::testing::TestViewer;
use serde_json::json;

fn answer(id: &serde_json::Value, option: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": {"outcome": "selected", "optionId": option}}})
        .to_string()
}

#[tokio::test]
async fn the_first_answer_wins_and_the_others_are_told() {
    let world = World::new().await;
    let mut one = TestViewer::load(&world.session, SCOPE, 0).await;
    let mut two = TestViewer::load(&world.session, SCOPE, 0).await;
    world.session.prompt("ask").await.expect("prompt");
    let asked = one.method("session/request_permission").await;
    assert_eq!(two.method("session/request_permission").await, asked);
    assert_eq!(asked["id"], 0);
    // Answers that the agent did not offer do not count.
    one.raw(answer(&asked["id"], "nosuch")).await;
    one.raw(
        json!({"jsonrpc": "2.0", "id": 0, "error": {"code": -32601, "message": "cannot"}})
            .to_string(),
    )
    .await;
    one.raw(json!({"jsonrpc": "2.0", "id": 0, "result": {}}).to_string())
        .await;
    one.raw(answer(&asked["id"], "once")).await;
    let told = two.method("_handler/permission_resolved").await;
    assert_eq!(
        told["params"],
        json!({"requestId": 0, "toolCallId": "t1", "outcome": {"outcome": "selected", "optionId": "once"}})
    );
    two.raw(answer(&asked["id"], "no")).await;
    two.method("_handler/turn_ended").await;
    one.method("_handler/turn_ended").await;
    assert!(
        !one.seen
            .iter()
            .any(|m| m["method"] == "_handler/permission_resolved")
    );
    assert_eq!(
        world
            .guest
            .lines()
            .iter()
            .filter(|l| l.contains("optionId"))
            .count(),
        1
    );
    assert_eq!(
        briefs(&world.log())[4..],
        [
            "tool_call",
            "permission request",
            "permission resolved once client",
            "tool_call_update",
            "agent_message_chunk answer once",
            "turn end end_turn"
        ]
    );
    assert!(world.guest.faults().is_empty());
}

#[tokio::test]
async fn a_question_without_viewers_waits_for_the_next_one() {
    let world = World::new().await;
    world.session.prompt("ask").await.expect("prompt");
    let facts = world
        .until("a question", |f| f.pending_permissions == 1)
        .await;
    assert_eq!(
        (facts.attached, facts.idle_since_ms),
        (0, None),
        "not idle while it waits"
    );
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    let state = viewer.method("_handler/session_state").await;
    assert_eq!(
        (
            &state["params"]["busy"],
            &state["params"]["pendingPermissions"]
        ),
        (&json!(true), &json!(1))
    );
    let asked = viewer.method("session/request_permission").await;
    // Replay, then the load's answer, then the state, then the question.
    let order: Vec<&str> = viewer
        .seen
        .iter()
        .map(|m| m["method"].as_str().unwrap_or("answer"))
        .collect();
    let at = |name: &str| order.iter().position(|m| *m == name).expect("seen");
    assert!(at("session/update") < at("answer") && at("answer") < at("_handler/session_state"));
    assert!(at("_handler/session_state") < at("session/request_permission"));
    viewer.raw(answer(&asked["id"], "no")).await;
    viewer.method("_handler/turn_ended").await;
    assert_eq!(viewer.texts("agent_message_chunk"), ["answer no"]);
}

#[tokio::test]
async fn a_detached_viewer_does_not_take_its_turn_with_it() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer
        .request(
            "session/prompt",
            json!({"sessionId": "agent-1", "prompt": [{"type": "text", "text": "ask"}]}),
        )
        .await;
    let asked = viewer.method("session/request_permission").await;
    drop(viewer);
    world
        .until("the viewer to be gone", |f| f.attached == 0)
        .await;
    let mut other = TestViewer::load(&world.session, SCOPE, 0).await;
    other.method("session/request_permission").await;
    other.raw(answer(&asked["id"], "once")).await;
    other.method("_handler/turn_ended").await;
    assert_eq!(other.texts("user_message_chunk"), ["ask"]);
}

#[tokio::test]
async fn a_question_the_agent_takes_back_is_settled() {
    let world = World::new().await;
    world.session.prompt("ask-hang").await.expect("prompt");
    world
        .until("a question", |f| f.pending_permissions == 1)
        .await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.method("session/request_permission").await;
    world.guest.emit(|out| {
        out.send(
            &json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 0}}),
        );
    });
    viewer.method("_handler/permission_resolved").await;
    world
        .until("no question", |f| f.pending_permissions == 0)
        .await;
    assert!(briefs(&world.log()).contains(&"permission resolved cancelled agent".to_owned()));
}
