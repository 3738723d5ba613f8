//! Attaching: replay, limits, slow viewers, what an attachment may ask.

use crate::support::{SCOPE, World};
use handler_session::ViewerEvent;
use handler_session::testing::{BasicAgent, TestViewer};
use serde_json::json;

#[tokio::test]
async fn setup_is_answered_by_the_daemon() {
    let world = World::new().await;
    let mut viewer = TestViewer::attach(&world.session).await;
    let lines = world.guest.lines().len();
    let answer = viewer
        .call(
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": true}}}),
        )
        .await;
    let result = &answer["result"];
    assert_eq!(
        (
            &result["agentInfo"]["name"],
            &result["agentCapabilities"]["loadSession"]
        ),
        (&json!("basic"), &json!(true))
    );
    for (method, params, code) in [
        (
            "session/new",
            json!({"cwd": SCOPE, "mcpServers": []}),
            -32010,
        ),
        ("session/list", json!({}), -32010),
        (
            "session/load",
            json!({"sessionId": "other", "cwd": SCOPE}),
            -32010,
        ),
        (
            "session/load",
            json!({"sessionId": "agent-1", "cwd": "/etc"}),
            -32001,
        ),
        (
            "session/load",
            json!({"sessionId": "agent-1", "cwd": SCOPE, "mcpServers": [{"url": "https://a.example/"}]}),
            -32002,
        ),
        ("authenticate", json!({"methodId": "x"}), -32601),
        ("fs/read_text_file", json!({}), -32601),
    ] {
        let answer = viewer.call(method, params).await;
        assert_eq!(answer["error"]["code"], code, "{method}");
    }
    viewer.raw("[]").await;
    let answer = viewer.until("an error", |m| m["id"].is_null()).await;
    assert_eq!(answer["error"]["code"], -32600);
    viewer.raw("{").await;
    viewer
        .until("a parse error", |m| m["error"]["code"] == -32700)
        .await;
    assert_eq!(world.guest.lines().len(), lines, "the agent saw none of it");
}

#[tokio::test]
async fn a_message_spread_over_lines_reaches_the_agent_as_one_line() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.raw("{\"jsonrpc\":\"2.0\",\n\"id\":\"x y\",\"method\":\"_v/z\",\r\n\"params\":{\n\"sessionId\":\"agent-1\",\n\"a\":[1.50,\n2]}}").await;
    let answer = viewer.until("its answer", |m| m["id"] == "x y").await;
    assert_eq!(answer["result"], json!({"method": "_v/z"}));
    assert!(world.guest.lines().iter().any(|l| l.contains("1.50")));
    assert!(
        world.guest.faults().is_empty(),
        "{:?}",
        world.guest.faults()
    );
}

#[tokio::test]
async fn a_viewer_that_attaches_in_mid_stream_misses_nothing_and_gets_nothing_twice() {
    let world = World::new().await;
    for round in 0..8 {
        let expected = 300;
        world
            .session
            .prompt(&format!("many {expected}"))
            .await
            .expect("prompt");
        // Attach while the agent streams.
        let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
        let total = expected * (round + 1);
        while viewer.texts("agent_message_chunk").len() < total {
            assert!(matches!(viewer.next().await, ViewerEvent::Frame(_)));
        }
        let seqs = viewer.seqs();
        assert!(
            seqs.windows(2).all(|pair| pair[0] < pair[1]),
            "in order, once each"
        );
        let logged: Vec<u64> = world
            .log()
            .iter()
            .filter(|e| e["kind"] == "update")
            .filter_map(|e| e["seq"].as_u64())
            .collect();
        assert_eq!(seqs, logged[..seqs.len()], "no gap");
        world.until("the end", |f| !f.busy).await;
    }
}

#[tokio::test]
async fn a_viewer_gets_only_the_events_after_the_one_it_names() {
    let world = World::new().await;
    world.session.prompt("many 5").await.expect("prompt");
    world
        .until("the end", |f| f.last_stop_reason.is_some())
        .await;
    let all = TestViewer::load(&world.session, SCOPE, 0).await.seqs();
    let some = TestViewer::load(&world.session, SCOPE, all[3]).await.seqs();
    assert_eq!(some, all[4..]);
    assert!(
        TestViewer::load(&world.session, SCOPE, u64::MAX)
            .await
            .seqs()
            .is_empty()
    );
}

#[tokio::test]
async fn a_slow_viewer_is_closed_alone_and_misses_nothing_afterwards() {
    let world = World::new().await;
    let mut slow = TestViewer::load(&world.session, SCOPE, 0).await;
    let mut quick = TestViewer::load(&world.session, SCOPE, 0).await;
    for turn in 1..=6 {
        world.session.prompt("many 2000").await.expect("prompt");
        quick.method("_handler/turn_ended").await;
        assert_eq!(quick.texts("agent_message_chunk").len(), turn * 2000);
    }
    let (code, _) = slow.closed().await;
    assert_eq!(code, 4003);
    let seen = slow.seqs();
    let again = TestViewer::load(
        &world.session,
        SCOPE,
        *seen.last().expect("it saw something"),
    )
    .await;
    let mut together = seen;
    together.extend(again.seqs());
    let logged: Vec<u64> = world
        .log()
        .iter()
        .filter(|e| e["kind"] == "update")
        .filter_map(|e| e["seq"].as_u64())
        .collect();
    assert_eq!(together, logged);
}

#[tokio::test]
async fn beyond_the_limit_the_oldest_viewer_is_closed() {
    let world = World::with(BasicAgent::default(), |config| config.max_attach = 2).await;
    let mut first = TestViewer::load(&world.session, SCOPE, 0).await;
    let mut second = TestViewer::load(&world.session, SCOPE, 0).await;
    let mut third = TestViewer::load(&world.session, SCOPE, 0).await;
    assert_eq!(first.closed().await.0, 4001);
    world.session.prompt("hello").await.expect("prompt");
    second.method("_handler/turn_ended").await;
    third.method("_handler/turn_ended").await;
    assert_eq!(world.session.state().borrow().attached, 2);
}

#[tokio::test]
async fn ids_of_viewers_do_not_meet_each_other() {
    let world = World::new().await;
    let mut one = TestViewer::load(&world.session, SCOPE, 0).await;
    let mut two = TestViewer::load(&world.session, SCOPE, 0).await;
    let a = one.request("_a", json!({})).await;
    let b = two.request("_b", json!({})).await;
    assert_eq!(a, b);
    assert_eq!(one.answer_to(a).await["result"]["method"], "_a");
    assert_eq!(two.answer_to(b).await["result"]["method"], "_b");
}

#[tokio::test]
async fn a_message_that_is_too_big_closes_its_viewer() {
    let world = World::new().await;
    let mut viewer = TestViewer::load(&world.session, SCOPE, 0).await;
    viewer.raw(vec![b' '; 16 * 1024 * 1024 + 1]).await;
    assert_eq!(viewer.closed().await.0, 1009);
}
