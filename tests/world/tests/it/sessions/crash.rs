//! The daemon dies or is restarted in the middle of a turn: the turn goes on, and every event is there once.

use crate::sessions::log;
use crate::sessions::stage::{LONG, Stage, mentions};
use crate::sessions::viewer::{Viewer, numbers, said, slow_words, updates};
use handler_types::harness::PermissionMode;
use serde_json::Value;
use std::time::Duration;

/// Words of a slow answer: some seconds of streaming, longer than a restart takes.
const WORDS: usize = 150;

/// How the daemon goes away.
#[derive(Clone, Copy)]
enum Way {
    Killed,
    Stopped,
}

#[tokio::test]
async fn pi_goes_on_when_the_daemon_is_killed_in_the_middle() -> anyhow::Result<()> {
    goes_on("pi").await
}

#[tokio::test]
async fn claude_goes_on_when_the_daemon_is_killed_in_the_middle() -> anyhow::Result<()> {
    goes_on("claude-code").await
}

async fn goes_on(harness: &str) -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set(&format!("{harness} goes on"), &[harness]).await? else {
        return Ok(());
    };
    let mut viewer = stage.open(&stage.request(harness)).await?;
    viewer = in_the_stream(&mut stage, viewer, Way::Killed).await?;
    viewer = in_a_command(&mut stage, viewer, Way::Killed).await?;
    viewer = in_the_stream(&mut stage, viewer, Way::Stopped).await?;
    viewer = in_a_command(&mut stage, viewer, Way::Stopped).await?;

    // Between turns, and then all together once more.
    away(&mut stage, &mut viewer, Way::Killed).await?;
    let mut viewer = stage.attach(&viewer.id.clone(), 0).await?;
    let (said, reason) = viewer.turn("PLAN:text:Still here.").await?;
    assert_eq!(
        (said.as_str(), reason.as_str()),
        ("Still here.", "end_turn")
    );
    let events = log::events(&stage.world, &viewer.id)?;
    assert_eq!(log::turns(&events), ["end_turn"; 5]);
    let asked = stage.asked("Still here.");
    assert_eq!(asked.len(), 1);
    assert!(mentions(&asked[0], "tick one"), "the agent never went away");
    let started = |event: &&Value| event["kind"] == "lifecycle" && event["event"] == "started";
    assert_eq!(events.iter().filter(started).count(), 1);
    Ok(())
}

/// While the answer streams: before, during and after the restart.
async fn in_the_stream(stage: &mut Stage, mut viewer: Viewer, way: Way) -> anyhow::Result<Viewer> {
    let tick = tick(way);
    let from = (viewer.last_number(), viewer.seen.len());
    viewer
        .prompt(&format!("stream {tick} PLAN:slow:{WORDS}"))
        .await?;
    viewer.words(20).await?;
    away(stage, &mut viewer, way).await?;

    // One comes back and takes what it missed; another reads everything.
    let mut back = stage.attach(&viewer.id, viewer.last_number()).await?;
    back.idle().await?;
    let heard = format!("{}{}", said(&viewer.seen[from.1..]), said(&back.seen));
    assert_eq!(
        heard,
        slow_words(WORDS),
        "no word is lost or doubled for who comes back"
    );
    let all = stage.attach(&viewer.id, from.0).await?;
    assert_eq!(said(&all.seen), slow_words(WORDS));
    assert_eq!(
        stage.asked(&format!("stream {tick}")).len(),
        1,
        "asked once"
    );
    whole(stage, &viewer, &back)?;
    Ok(back)
}

/// While a command of the agent runs.
async fn in_a_command(stage: &mut Stage, mut viewer: Viewer, way: Way) -> anyhow::Result<Viewer> {
    let tick = tick(way);
    let from = viewer.last_number();
    let file = format!("ticks {tick}");
    let command = format!("sleep 2; echo {tick} >> '{file}'; echo done {tick}");
    viewer
        .prompt(&format!("command {tick} PLAN:shell:{command}"))
        .await?;
    viewer
        .until("the call", |m| {
            m["params"]["update"]["sessionUpdate"] == "tool_call"
        })
        .await?;
    away(stage, &mut viewer, way).await?;

    let mut back = stage.attach(&viewer.id, viewer.last_number()).await?;
    back.idle().await?;
    let all = stage.attach(&viewer.id, from).await?;
    assert!(
        said(&all.seen).contains(&format!("done {tick}")),
        "{}",
        said(&all.seen)
    );
    assert_eq!(updates(&all.seen, "tool_call").count(), 1, "announced once");
    assert_eq!(
        stage.read(&file)?,
        format!("{tick}\n"),
        "the command ran once"
    );
    assert_eq!(
        stage.asked(&format!("command {tick}")).len(),
        2,
        "the call and its result"
    );
    whole(stage, &viewer, &back)?;
    Ok(back)
}

fn tick(way: Way) -> &'static str {
    match way {
        Way::Killed => "tick one",
        Way::Stopped => "tick two",
    }
}

/// The daemon goes and comes again.
async fn away(stage: &mut Stage, viewer: &mut Viewer, way: Way) -> anyhow::Result<()> {
    match way {
        Way::Killed => {
            stage.world.kill9()?;
            viewer.closed().await?;
        }
        Way::Stopped => {
            assert!(stage.world.stop_daemon().await?.success());
            assert_eq!(viewer.closed().await?.0, 1001, "the daemon is going away");
        }
    }
    stage.world.start_daemon().await
}

/// The log has no gap, its last turn ended by itself, and the two clients together heard each event that
/// is for clients once. The own prompt is not told back.
fn whole(stage: &Stage, before: &Viewer, back: &Viewer) -> anyhow::Result<()> {
    let events = log::events(&stage.world, &before.id)?;
    assert_eq!(
        log::turns(&events).last().map(String::as_str),
        Some("end_turn")
    );
    let mut heard = numbers(&before.seen);
    heard.extend(numbers(&back.seen));
    assert!(
        heard.is_sorted_by(|a, b| a < b),
        "out of order or twice: {heard:?}"
    );
    let missed: Vec<&Value> = events
        .iter()
        .filter(|event| {
            event["kind"] == "update" && event["seq"].as_u64() >= heard.first().copied()
        })
        .filter(|event| !heard.contains(&event["seq"].as_u64().unwrap_or(0)))
        .filter(|event| event["update"]["sessionUpdate"] != "user_message_chunk")
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
    Ok(())
}

#[tokio::test]
async fn a_question_waits_while_the_daemon_is_away() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("question and restart", &["claude-code"]).await? else {
        return Ok(());
    };
    let mut request = stage.request("claude-code");
    request.permissions = Some(PermissionMode::Ask);
    let mut viewer = stage.open(&request).await?;
    for (way, name) in [(Way::Killed, "killed.txt"), (Way::Stopped, "stopped.txt")] {
        let path = stage.project.join(name);
        viewer
            .prompt(&format!("PLAN:write:{}|waited", path.display()))
            .await?;
        let question = viewer.question().await?;
        away(&mut stage, &mut viewer, way).await?;
        let view = stage.client().session(&viewer.id).await?;
        assert_eq!((view.busy, view.pending_permissions), (true, 1));

        let mut back = stage.attach(&viewer.id, viewer.last_number()).await?;
        assert_eq!(back.question().await?, question, "asked again, the same");
        assert!(stage.read(name).is_err(), "nothing before the answer");
        back.choose(&question, "allow_once").await?;
        back.idle().await?;
        assert_eq!(stage.read(name)?.trim_end(), "waited");
        whole(&stage, &viewer, &back)?;
        viewer = back;
    }
    let events = log::events(&stage.world, &viewer.id)?;
    let questions = events.iter().filter(|e| e["kind"] == "permission");
    assert_eq!(questions.count(), 4, "two asked, two settled");
    assert_eq!(log::turns(&events), ["end_turn"; 2]);
    Ok(())
}

#[tokio::test]
async fn the_daemon_dies_again_and_again_in_one_turn() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("killed again and again", &["pi"]).await? else {
        return Ok(());
    };
    let mut viewer = stage.open(&stage.request("pi")).await?;
    let file = stage.project.join("often.txt");
    let plan = format!(
        "PLAN:shell:sleep 1; echo once >> {FILE} THEN PLAN:slow:{WORDS} THEN \
        PLAN:write:{}|written THEN PLAN:shell:sleep 1; echo once >> {FILE}",
        file.display()
    );
    viewer.prompt(&format!("often {plan}")).await?;
    let id = viewer.id.clone();
    let mut heard = Vec::new();
    let mut kills = 0;
    loop {
        heard.append(&mut viewer.seen);
        let pause = u64::from(handler_base::random::bytes::<1>()[0]) * 2;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        stage.world.kill9()?;
        kills += 1;
        viewer.closed().await?;
        heard.append(&mut viewer.seen);
        stage.world.start_daemon().await?;
        let after = numbers(&heard).last().copied().unwrap_or(0);
        viewer = stage.attach(&id, after).await?;
        if !stage.client().session(&id).await?.busy {
            break;
        }
    }
    heard.append(&mut viewer.seen);
    assert!(kills > 3, "killed {kills} times only");
    assert!(
        said(&heard).contains(&slow_words(WORDS)),
        "{kills} kills: {}",
        said(&heard)
    );
    assert_eq!(stage.read(FILE)?, "once\nonce\n");
    assert_eq!(stage.read("often.txt")?.trim_end(), "written");
    assert_eq!(
        stage.asked("often").len(),
        4,
        "{kills} kills: one request for each step"
    );
    let events = log::events(&stage.world, &id)?;
    assert_eq!(log::turns(&events), ["end_turn"], "{kills} kills");
    assert_eq!(log::text(&events, "agent_message_chunk"), said(&heard));
    assert!(
        numbers(&heard).is_sorted_by(|a, b| a < b),
        "{:?}",
        numbers(&heard)
    );
    Ok(())
}

const FILE: &str = "often.log";

#[tokio::test]
async fn a_prompt_given_just_before_is_taken_once_or_not_at_all() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("prompt and kill", &["pi"]).await? else {
        return Ok(());
    };
    let mut viewer = stage.open(&stage.request("pi")).await?;
    let mut taken = 0;
    for round in 0..8 {
        let mark = format!("round {round}.");
        viewer.prompt(&format!("PLAN:text:{mark}")).await?;
        let pause = u64::from(handler_base::random::bytes::<1>()[0] % 16);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        stage.world.kill9()?;
        stage.world.start_daemon().await?;
        viewer = stage.attach(&viewer.id.clone(), 0).await?;
        viewer.idle().await?;
        let events = log::events(&stage.world, &viewer.id)?;
        let prompts = log::text(&events, "user_message_chunk")
            .matches(&mark)
            .count();
        assert!(prompts <= 1, "{mark} is there {prompts} times");
        let answers = log::text(&events, "agent_message_chunk")
            .matches(&mark)
            .count();
        assert_eq!(answers, prompts, "{mark} given and answered");
        // The newest human text of a request, so that later rounds do not count.
        let asked = stage.asked(&mark).into_iter().filter(|r| {
            !mentions(r, "\"assistant\"") || {
                let body = r.body.to_string();
                body.rfind(&mark) > body.rfind("\"assistant\"")
            }
        });
        assert_eq!(asked.count(), prompts, "{mark} reached the model");
        taken += prompts;
    }
    let (said, _) = viewer.turn("PLAN:text:The last.").await?;
    assert_eq!(said, "The last.");
    let turns = log::turns(&log::events(&stage.world, &viewer.id)?);
    assert_eq!(turns, vec!["end_turn"; taken + 1]);
    Ok(())
}

#[tokio::test]
async fn a_session_that_was_being_started_is_started_with_its_prompt_once() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("killed while starting", &["pi"]).await? else {
        return Ok(());
    };
    for round in 0..5 {
        let bird = format!("bird {round}.");
        let mut request = stage.request("pi");
        request.prompt = Some(format!("PLAN:text:{bird}"));
        let view = stage.client().create_session(&request).await?;
        let pause = u64::from(handler_base::random::bytes::<1>()[0]) * 5 * round / 4;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        stage.world.kill9()?;
        stage.world.start_daemon().await?;
        let mut viewer = stage.attach(view.id.as_str(), 0).await?;
        viewer.idle().await?;
        let events = log::events(&stage.world, &viewer.id)?;
        assert_eq!(log::turns(&events), ["end_turn"], "killed after {pause} ms");
        assert_eq!(log::text(&events, "agent_message_chunk"), bird);
        assert_eq!(stage.asked(&bird).len(), 1, "killed after {pause} ms");
        let sandboxes = stage.client().sandboxes("", 10).await?.items;
        assert_eq!(
            sandboxes.len(),
            1,
            "killed after {pause} ms: {sandboxes:#?}"
        );
        stage.client().delete_session(&viewer.id).await?;
    }
    stage.world.assert_clean(LONG).await
}
