//! Two clients on one session, a busy agent, and a turn cancelled in the middle of its stream.

use crate::sessions::log;
use crate::sessions::stage::Stage;
use crate::sessions::viewer::{Viewer, numbers, said, slow_words, updates};
use serde_json::{Value, json};

#[tokio::test]
async fn pi_is_followed_by_two_clients_and_cancelled_in_its_stream() -> anyhow::Result<()> {
    followed_by_two("pi").await
}

#[tokio::test]
async fn claude_is_followed_by_two_clients_and_cancelled_in_its_stream() -> anyhow::Result<()> {
    followed_by_two("claude-code").await
}

async fn followed_by_two(harness: &str) -> anyhow::Result<()> {
    let Some(stage) = Stage::set(&format!("{harness} followed by two"), &[harness]).await? else {
        return Ok(());
    };
    let mut first = stage.open(&stage.request(harness)).await?;
    let mut second = stage.attach(&first.id, 0).await?;

    both_see_a_turn(&mut first, &mut second).await?;
    is_busy_and_cancelled(&stage, &mut first, &mut second).await?;

    // The next turn is a whole one again.
    let (said, reason) = second.turn("PLAN:text:Back again.").await?;
    assert_eq!(
        (said.as_str(), reason.as_str()),
        ("Back again.", "end_turn")
    );
    first.until("the other's turn end", turn_ended).await?;
    let events = log::events(&stage.world, &first.id)?;
    assert_eq!(log::turns(&events), ["end_turn", "cancelled", "end_turn"]);
    for viewer in [&first, &second] {
        assert_eq!(said_in(viewer), log::text(&events, "agent_message_chunk"));
    }
    // One who asked does not get the own prompt back; all other events are everybody's.
    assert!(
        numbers(&first.seen).is_sorted_by(|a, b| a < b),
        "{:?}",
        numbers(&first.seen)
    );
    assert!(
        numbers(&second.seen).is_sorted_by(|a, b| a < b),
        "{:?}",
        numbers(&second.seen)
    );
    makes_room_for_a_ninth(&stage, first, second).await
}

/// Eight may be attached; one more closes the oldest.
async fn makes_room_for_a_ninth(
    stage: &Stage,
    mut first: Viewer,
    mut second: Viewer,
) -> anyhow::Result<()> {
    let mut more = Vec::new();
    for _ in 0..7 {
        more.push(stage.attach(&first.id, u64::MAX).await?);
    }
    assert_eq!(first.closed().await?.0, 4001, "the oldest made room");
    let (said, _) = second.turn("PLAN:text:Nine.").await?;
    assert_eq!(said, "Nine.");
    for viewer in &mut more {
        viewer.until("the other's turn end", turn_ended).await?;
        assert_eq!(said_in(viewer), "Nine.", "nothing of what was before");
    }
    Ok(())
}

async fn both_see_a_turn(first: &mut Viewer, second: &mut Viewer) -> anyhow::Result<()> {
    let (heard, reason) = first.turn("PLAN:slow:20").await?;
    assert_eq!((heard, reason.as_str()), (slow_words(20), "end_turn"));
    let end = second.until("the other's turn end", turn_ended).await?;
    assert_eq!(end["params"]["stopReason"], "end_turn");
    assert_eq!(said(&second.seen), slow_words(20));
    assert_eq!(prompts(second), "PLAN:slow:20");
    assert_eq!(prompts(first), "", "the own prompt is not told back");
    second.idle().await
}

async fn is_busy_and_cancelled(
    stage: &Stage,
    first: &mut Viewer,
    second: &mut Viewer,
) -> anyhow::Result<()> {
    let prompt = first.prompt("PLAN:slow:2000").await?;
    first.words(3).await?;
    let text = json!([{"type": "text", "text": "PLAN:text:me too"}]);
    for viewer in [&mut *first, &mut *second] {
        let params = json!({"sessionId": viewer.conversation, "prompt": text});
        let answer = viewer.call("session/prompt", params).await?;
        assert_eq!(answer["error"]["code"], -32011, "{answer}");
    }
    let view = stage.client().session(&first.id).await?;
    assert!(view.busy && view.attached == 2, "{view:?}");

    // Whoever is attached may cancel.
    second.cancel().await?;
    assert_eq!(first.stop_reason(prompt).await?, "cancelled");
    let end = second.until("the cancelled turn's end", turn_ended).await?;
    assert_eq!(end["params"]["stopReason"], "cancelled");
    let words = said(&first.seen).matches("word").count();
    assert!(words < 1000, "{words} words came: cancelled far too late");
    assert_eq!(
        stage.asked("me too").len(),
        0,
        "a refused prompt went nowhere"
    );
    first.idle().await?;
    second.idle().await
}

fn turn_ended(message: &Value) -> bool {
    message["method"] == "_handler/turn_ended"
}

fn said_in(viewer: &Viewer) -> String {
    said(&viewer.seen)
}

/// Prompts of others, as a client is told them.
fn prompts(viewer: &Viewer) -> String {
    updates(&viewer.seen, "user_message_chunk")
        .filter_map(|update| update["content"]["text"].as_str())
        .collect()
}
