//! A stopped session is started again by whoever attaches: its history is the log's, told once, and the
//! agent remembers.

use crate::sessions::log;
use crate::sessions::stage::{Stage, mentions};
use crate::sessions::viewer::{numbers, said};
use handler_types::session::SessionState;

#[tokio::test]
async fn pi_is_stopped_and_remembers_when_somebody_attaches() -> anyhow::Result<()> {
    resumed("pi").await
}

#[tokio::test]
async fn claude_is_stopped_and_remembers_when_somebody_attaches() -> anyhow::Result<()> {
    resumed("claude-code").await
}

async fn resumed(harness: &str) -> anyhow::Result<()> {
    let Some(stage) = Stage::set(&format!("{harness} resumed"), &[harness]).await? else {
        return Ok(());
    };
    let mut request = stage.request(harness);
    request.prompt = Some("Begin, badger. PLAN:text:First answer.".to_owned());
    let mut viewer = stage.open(&request).await?;
    viewer.idle().await?;
    let (_, reason) = viewer.turn("PLAN:shell:echo 'second answer'").await?;
    assert_eq!(reason, "end_turn");
    let id = viewer.id.clone();
    let middle = viewer.last_number();
    let stopped = stage.client().stop_session(&id).await?;
    assert_eq!(stopped.state, SessionState::Stopped);
    assert!(
        stopped.can_resume && stopped.sandbox_id.is_none(),
        "{stopped:?}"
    );
    assert_eq!(viewer.closed().await?.0, 4002);
    let before = log::events(&stage.world, &id)?;

    let mut again = stage.attach(&id, 0).await?;
    assert_eq!(again.conversation, viewer.conversation);
    let history = log::text(&before, "agent_message_chunk");
    assert!(history.starts_with("First answer."), "{history}");
    assert!(history.contains("second answer"), "{history}");
    assert_eq!(said(&again.seen), history, "told once");
    assert_eq!(
        numbers(&again.seen)[..log::numbers(&before).len()],
        log::numbers(&before)
    );
    let since = log::events(&stage.world, &id)?;
    assert_eq!(
        log::text(&since, "agent_message_chunk"),
        history,
        "logged once"
    );
    assert_eq!(log::text(&since, "user_message_chunk"), prompts(""));

    let (text, reason) = again.turn("PLAN:text:Third answer.").await?;
    assert_eq!(
        (text.as_str(), reason.as_str()),
        ("Third answer.", "end_turn")
    );
    let asked = stage.asked("Third answer.");
    assert_eq!(asked.len(), 1, "asked once");
    assert!(
        mentions(&asked[0], "Begin, badger."),
        "the agent remembers the first turn"
    );
    assert!(mentions(&asked[0], "second answer"), "and the second");

    // Only what came after a given event.
    let late = stage.attach(&id, middle).await?;
    let all = log::numbers(&log::events(&stage.world, &id)?);
    let after: Vec<u64> = all.into_iter().filter(|seq| *seq > middle).collect();
    assert_eq!(numbers(&late.seen), after);
    assert_eq!(said(&late.seen), "Third answer.");
    let end = log::events(&stage.world, &id)?;
    assert_eq!(log::turns(&end), ["end_turn"; 3]);
    assert_eq!(
        log::text(&end, "user_message_chunk"),
        prompts("PLAN:text:Third answer.")
    );
    Ok(())
}

/// All prompts of the session, joined.
fn prompts(last: &str) -> String {
    let first = "Begin, badger. PLAN:text:First answer.";
    format!("{first}PLAN:shell:echo 'second answer'{last}")
}
