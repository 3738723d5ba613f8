//! What an agent must not be able to do.

use crate::support::{SCOPE, World, briefs};
use handler_session::testing::TestViewer;
use serde_json::json;

#[tokio::test]
async fn garbage_is_dropped_and_the_session_goes_on() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"agent-1","update":{{"sessionUpdate":"plan","x":{}1{}}}}}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let lines: Vec<&[u8]> = vec![
        b"not json",
        b"\xff\xfe\x00",
        b"",
        b"   ",
        b"[]",
        b"null",
        b"{}",
        br#"[{"jsonrpc":"2.0","method":"session/update"}]"#,
        br#"{"id":1,"id":2,"method":"session/update"}"#,
        br#"{"jsonrpc":"2.0","id":999999,"result":{}}"#,
        br#"{"jsonrpc":"2.0","id":"nosuch","error":{"code":"x"}}"#,
        br#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#,
        br#"{"jsonrpc":"2.0","id":-1e400,"result":null}"#,
        br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"other","update":{"sessionUpdate":"plan"}}}"#,
        br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"agent-1","update":7}}"#,
        br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"agent-1"}}"#,
        br#"{"jsonrpc":"2.0","method":"session/update","params":[]}"#,
        br#"{"jsonrpc":"2.0","method":"_handler/permission_resolved","params":{"requestId":0}}"#,
        br#"{"jsonrpc":"2.0","id":null,"method":"session/request_permission"}"#,
        br#"{"jsonrpc":"2.0","method":"session/request_permission","params":{"sessionId":"agent-1"}}"#,
        br#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":{}}}"#,
        br#"{"jsonrpc":"2.0","method":"unknown/notification"}"#,
        deep.as_bytes(),
    ];
    world.guest.emit(|out| {
        for line in &lines {
            out.raw(line);
            out.raw(b"\n");
        }
    });
    viewer
        .call(
            "session/prompt",
            json!({"sessionId": "agent-1", "prompt": [{"type": "text", "text": "hello"}]}),
        )
        .await;
    assert_eq!(viewer.texts("agent_message_chunk"), ["you said hello"]);
    assert!(
        !viewer
            .seen
            .iter()
            .any(|m| m["method"] == "_handler/permission_resolved")
    );
    let facts = world.until("counted", |f| f.dropped_messages >= 17).await;
    assert_eq!(facts.error, None);
    assert_eq!(briefs(&world.log()).len(), 6);
    assert_eq!(
        world.guest.lines().len(),
        3,
        "nothing was answered that asked nothing"
    );
}

#[tokio::test]
async fn requests_with_odd_parameters_are_answered_or_held() {
    let world = World::new().await;
    world.guest.emit(|out| {
        out.send(&json!({"jsonrpc": "2.0", "id": "a", "method": "session/request_permission", "params": {"sessionId": "other"}}));
        out.send(&json!({"jsonrpc": "2.0", "id": "b", "method": "terminal/create", "params": {"sessionId": "agent-1"}}));
        out.send(&json!({"jsonrpc": "2.0", "id": "c", "method": "nosuch/method"}));
        out.send(&json!({"jsonrpc": "2.0", "id": 1.5, "method": "session/request_permission", "params": {"sessionId": "agent-1", "options": "none", "toolCall": 7}}));
        out.send(&json!({"jsonrpc": "2.0", "id": 1.5, "method": "session/request_permission", "params": {"sessionId": "agent-1"}}));
    });
    world.guest.wait_line(r#""id":"c""#).await;
    let codes: Vec<i64> = world.guest.lines()[2..]
        .iter()
        .filter_map(|line| {
            serde_json::from_str::<serde_json::Value>(line).ok()?["error"]["code"].as_i64()
        })
        .collect();
    assert_eq!(codes, [-32602, -32003, -32601]);
    world
        .until("one question", |f| f.pending_permissions == 1)
        .await;
    let asked = world.session.permissions().await.expect("permissions");
    assert_eq!(
        (asked[0].request_id.as_str(), asked[0].title.as_str()),
        ("1.5", "Permission")
    );
    world
        .session
        .answer_permission("1.5", handler_session::Choice::Cancelled)
        .await
        .expect("answer");
    world.guest.wait_line("cancelled").await;
}

#[tokio::test]
async fn a_huge_line_is_carried_and_a_line_above_the_cap_is_skipped() {
    let world = World::new().await;
    let text = "x".repeat(3 * 1024 * 1024);
    let line = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "agent-1",
        "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}}});
    world.guest.emit(|out| {
        // In pieces, as a pipe gives them.
        for piece in format!("{line}\n").as_bytes().chunks(60_000) {
            out.raw(piece);
        }
        for _ in 0..65 {
            out.raw(&vec![b'y'; 1024 * 1024]);
        }
        out.raw(b"\n");
    });
    world.until("the long line", |f| f.last_seq == 3).await;
    world.session.prompt("hello").await.expect("prompt");
    world
        .until("the end", |f| f.last_stop_reason.is_some())
        .await;
    let events = world.log();
    assert_eq!(
        events[2]["update"]["content"]["text"]
            .as_str()
            .map(str::len),
        Some(text.len())
    );
    assert_eq!(
        briefs(&events[3..]),
        [
            "turn start",
            "user_message_chunk hello",
            "agent_message_chunk you said hello",
            "turn end end_turn"
        ]
    );
    let guest = world.guest.clone();
    handler_session::testing::wait_for("all output to be acknowledged", || {
        guest.acked() == guest.written()
    })
    .await;
}

#[tokio::test]
async fn an_update_too_big_for_the_log_leaves_a_note_in_it() {
    let world = World::new().await;
    let text = "x".repeat(17 * 1024 * 1024);
    world.guest.emit(|out| {
        out.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "agent-1",
            "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}}}));
    });
    world.until("the event", |f| f.last_seq == 3).await;
    let event = world.log().remove(2);
    assert_eq!(
        (event["kind"].as_str(), event["sessionUpdate"].as_str()),
        (Some("omitted"), Some("agent_message_chunk"))
    );
}

#[tokio::test]
async fn an_agent_that_reads_nothing_holds_up_nobody() {
    let world = World::new().await;
    world.guest.set_deaf(true);
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer
        .request(
            "session/prompt",
            json!({"sessionId": "agent-1", "prompt": [{"type": "text", "text": "hello"}]}),
        )
        .await;
    world.until("busy", |f| f.busy).await;
    world.guest.emit(|out| {
        out.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "agent-1",
            "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "still here"}}}}));
    });
    viewer
        .until("its output", |m| {
            m["params"]["update"]["content"]["text"] == "still here"
        })
        .await;
    world.guest.set_deaf(false);
    viewer
        .until("the answer", |m| m["result"]["stopReason"] == "end_turn")
        .await;
    assert!(world.guest.faults().is_empty());
}
