//! Sessions looked back at: found by words, summed up, exported, renamed and put away.

use crate::sessions::stage::Stage;
use handler_testkit::eventually;
use handler_types::session::SessionState;
use handler_types::session_text::{MessageRole, SessionHit};
use serde_json::Value;

use super::stage::LONG;

async fn found(stage: &Stage, words: &str) -> anyhow::Result<Vec<SessionHit>> {
    Ok(stage.client().search_sessions(&[("q", words)]).await?.items)
}

#[tokio::test]
async fn what_was_said_is_found_summed_up_and_exported() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("search of sessions", &["claude-code"]).await? else {
        return Ok(());
    };
    let mut viewer = stage.open(&stage.request("claude-code")).await?;
    let id = viewer.id.clone();
    let prompt = viewer.prompt("PLAN:text:The würfel are cast").await?;
    assert_eq!(viewer.stop_reason(prompt).await?, "end_turn");
    let hit = eventually("the agent's words", LONG, || async {
        let hits = found(&stage, "\"are cast\"").await.ok()?;
        hits.into_iter().find(|hit| hit.role == MessageRole::Agent)
    })
    .await?;
    assert_eq!(hit.session.id.as_str(), id);
    assert!(
        !found(&stage, "WURFEL").await?.is_empty(),
        "letters as people type them"
    );
    assert!(found(&stage, "key NOT found AND").await?.is_empty());

    let sums = stage.client().session_usage(&[("by", "session")]).await?;
    assert_eq!(
        (sums.len(), sums[0].key.as_str(), sums[0].turns),
        (1, id.as_str(), 1)
    );
    assert!(
        sums[0].input_tokens > 0 && sums[0].output_tokens > 0,
        "{sums:?}"
    );

    exported(&stage, &id).await?;
    renamed_and_put_away(&mut stage, &id).await
}

async fn exported(stage: &Stage, id: &str) -> anyhow::Result<()> {
    let text = stage.world.cli_ok(&["session", "export", id]).await?;
    assert!(
        text.contains("## You") && text.contains("The würfel are cast"),
        "{text}"
    );
    let text = stage
        .world
        .cli_ok(&["session", "export", id, "--format", "json"])
        .await?;
    let document: Value = serde_json::from_str(&text)?;
    let seqs: Vec<u64> = document["events"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|event| event["seq"].as_u64())
        .collect();
    let last = seqs.len() as u64;
    assert_eq!(seqs, (1..=last).collect::<Vec<_>>(), "every event once");
    Ok(())
}

async fn renamed_and_put_away(stage: &mut Stage, id: &str) -> anyhow::Result<()> {
    stage
        .world
        .cli_ok(&["session", "rename", id, "Alea iacta est"])
        .await?;
    let hits = found(stage, "iacta").await?;
    assert_eq!((hits.len(), hits[0].role), (1, MessageRole::Title));
    assert_eq!(hits[0].session.title.as_deref(), Some("Alea iacta est"));
    let refused = stage
        .world
        .cli(&["session", "rename", id, "two\nlines"])
        .await?;
    assert!(!refused.status.success());

    stage.world.cli_ok(&["session", "archive", id]).await?;
    stage.reaches(id, SessionState::Stopped).await?;
    assert!(
        stage.client().sessions("", "", 50).await?.items.is_empty(),
        "out of lists"
    );
    assert!(found(stage, "iacta").await?.is_empty());
    let all = stage
        .client()
        .find_sessions(&[("archived", "true")])
        .await?;
    assert_eq!(all.items.len(), 1);

    // A daemon that was killed finds the same again.
    stage.world.kill9()?;
    stage.world.start_daemon().await?;
    let all = stage
        .client()
        .search_sessions(&[("q", "cast"), ("archived", "true")])
        .await?;
    assert!(!all.items.is_empty());
    stage
        .world
        .cli_ok(&["session", "archive", "--undo", id])
        .await?;
    assert_eq!(stage.client().sessions("", "", 50).await?.items.len(), 1);
    let said = stage
        .world
        .cli_ok(&["session", "search", "--all", "iacta"])
        .await?;
    assert!(said.contains(id) && said.contains("title"), "{said}");
    stage.client().delete_session(id).await?;
    assert!(found(stage, "cast").await?.is_empty(), "removed with it");
    Ok(())
}
