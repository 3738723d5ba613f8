//! An agent that asks: allowed, rejected, cancelled; the first of two answers counts.

use crate::sessions::log;
use crate::sessions::stage::Stage;
use crate::sessions::viewer::{Viewer, is_question};
use handler_types::harness::PermissionMode;
use serde_json::{Value, json};

#[tokio::test]
async fn claude_asks_and_the_first_of_two_answers_counts() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("claude asks", &["claude-code"]).await? else {
        return Ok(());
    };
    let mut request = stage.request("claude-code");
    request.permissions = Some(PermissionMode::Ask);
    let mut first = stage.open(&request).await?;
    let mut second = stage.attach(&first.id, 0).await?;

    allowed_by_the_second(&stage, &mut first, &mut second).await?;
    rejected_by_the_first(&stage, &mut first, &mut second).await?;
    cancelled_while_it_waits(&stage, &mut first, &mut second).await?;
    waits_for_somebody_to_come(&stage, first, second).await
}

fn write(stage: &Stage, name: &str) -> String {
    format!("PLAN:write:{}|asked", stage.project.join(name).display())
}

fn resolved(message: &Value) -> bool {
    message["method"] == "_handler/permission_resolved"
}

async fn allowed_by_the_second(
    stage: &Stage,
    first: &mut Viewer,
    second: &mut Viewer,
) -> anyhow::Result<()> {
    let prompt = first.prompt(&write(stage, "allowed.txt")).await?;
    let question = first.question().await?;
    assert_eq!(
        second.question().await?,
        question,
        "both get the same question"
    );
    assert!(
        stage.read("allowed.txt").is_err(),
        "nothing before the answer"
    );
    let view = stage.client().session(&first.id).await?;
    assert_eq!((view.pending_permissions, view.busy), (1, true));

    // An answer nobody offered is not passed on.
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "made-up"}});
    first
        .send(json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome}))
        .await?;
    second.choose(&question, "allow_once").await?;
    let told = first.until("the other's answer", resolved).await?;
    assert_eq!(told["params"]["requestId"], question["id"]);
    assert_eq!(told["params"]["outcome"]["outcome"], "selected");
    // Too late: dropped, and the turn is none the worse.
    first.choose(&question, "reject_once").await?;
    assert_eq!(first.stop_reason(prompt).await?, "end_turn");
    assert_eq!(stage.read("allowed.txt")?.trim_end(), "asked");
    assert!(
        !second.seen.iter().any(resolved),
        "who answered is not told"
    );
    second.idle().await
}

async fn rejected_by_the_first(
    stage: &Stage,
    first: &mut Viewer,
    second: &mut Viewer,
) -> anyhow::Result<()> {
    let prompt = second.prompt(&write(stage, "rejected.txt")).await?;
    let question = first.question().await?;
    first.choose(&question, "reject_once").await?;
    second.until("the other's answer", resolved).await?;
    let reason = second.stop_reason(prompt).await?;
    assert!(
        ["end_turn", "cancelled"].contains(&reason.as_str()),
        "{reason}"
    );
    assert!(stage.read("rejected.txt").is_err(), "it was not allowed");
    first.idle().await
}

async fn cancelled_while_it_waits(
    stage: &Stage,
    first: &mut Viewer,
    second: &mut Viewer,
) -> anyhow::Result<()> {
    let prompt = first.prompt(&write(stage, "cancelled.txt")).await?;
    let question = first.question().await?;
    second.cancel().await?;
    let told = first.until("the withdrawal", resolved).await?;
    assert_eq!(told["params"]["requestId"], question["id"]);
    assert_eq!(told["params"]["outcome"]["outcome"], "cancelled");
    assert_eq!(first.stop_reason(prompt).await?, "cancelled");
    assert!(stage.read("cancelled.txt").is_err(), "it was not allowed");
    second.idle().await
}

/// With nobody attached a question waits; whoever comes gets it after the replay.
async fn waits_for_somebody_to_come(
    stage: &Stage,
    mut first: Viewer,
    second: Viewer,
) -> anyhow::Result<()> {
    first.prompt(&write(stage, "later.txt")).await?;
    let question = first.question().await?;
    let id = first.id.clone();
    drop((first, second));
    let mut late = stage.attach(&id, 0).await?;
    assert_eq!(late.question().await?, question);
    late.choose(&question, "allow_once").await?;
    late.idle().await?;
    assert_eq!(stage.read("later.txt")?.trim_end(), "asked");
    let events = log::events(&stage.world, &id)?;
    let turns = log::turns(&events);
    assert_eq!(
        (turns.len(), turns.last().map(String::as_str)),
        (4, Some("end_turn"))
    );
    let asked = |phase: &str| {
        let is_it = |e: &&Value| e["kind"] == "permission" && e["phase"] == phase;
        events.iter().filter(is_it).count()
    };
    assert_eq!((asked("request"), asked("resolved")), (4, 4));
    assert_eq!(late.seen.iter().filter(|m| is_question(m)).count(), 1);
    Ok(())
}
