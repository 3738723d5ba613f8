//! A scripted day: two projects, four agents, eight sessions and three clients, while the daemon is killed
//! again and again at random points and replaced by a newer program in the middle.

use crate::crash::chance;
use crate::harness::shared;
use crate::sessions::log;
use crate::sessions::stage::{LONG, Stage};
use crate::sessions::viewer::{Viewer, numbers};
use crate::support::{is_soak, text};
use anyhow::{Context as _, ensure};
use handler_client::Client;
use handler_testkit::{World, skip};
use handler_types::agent::{AgentRequest, ModelAccess};
use handler_types::project::CreateProject;
use handler_types::session::CreateSession;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Shortest of the longest pauses between the start of a daemon and its end; a slow machine takes longer ones.
const PAUSE: Duration = Duration::from_millis(1500);

/// One session of the day, as the person who works in it sees it.
struct Desk {
    id: String,
    folder: PathBuf,
    /// Everything heard, over all attachments.
    heard: Vec<Value>,
    /// Prompts sent; each has a mark of its own.
    sent: Vec<String>,
}

impl Desk {
    /// The first turn: the session stands then.
    async fn begin(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let mut viewer = stage.attach(&self.id, 0).await?;
        let prompt = self.next_prompt();
        let (said, reason) = viewer.turn(&prompt).await?;
        ensure!(reason == "end_turn", "{said}: {reason}");
        self.heard.append(&mut viewer.seen);
        Ok(())
    }

    /// Works until the connection ends: waits for the turn under way, then prompts again and again.
    async fn work(mut self, client: Client) -> Self {
        let after = numbers(&self.heard).last().copied().unwrap_or(0);
        let Ok(mut viewer) = Viewer::attach(&client, &self.id, after).await else {
            // What a broken attachment heard is not kept; the next one hears it again.
            return self;
        };
        while viewer.idle().await.is_ok() {
            let prompt = self.next_prompt();
            let Ok(number) = viewer.prompt(&prompt).await else {
                break;
            };
            if viewer.stop_reason(number).await.is_err() {
                break;
            }
        }
        viewer.closed().await.ok();
        self.heard.append(&mut viewer.seen);
        self
    }

    /// The next prompt: words, a command or a file, in turn.
    fn next_prompt(&mut self) -> String {
        let mark = format!("mark-{}-{}.", self.id, self.sent.len());
        let plan = match self.sent.len() % 3 {
            0 => "PLAN:slow:15".to_owned(),
            1 => format!("PLAN:shell:sleep 0.2; echo {mark} >> '{}'", self.done()),
            _ => format!("PLAN:write:{}.txt|{mark}", self.done()),
        };
        self.sent.push(mark.clone());
        format!("{mark} {plan}")
    }

    /// The file in which its commands leave their marks.
    fn done(&self) -> String {
        self.folder
            .join(format!("{}.log", self.id))
            .display()
            .to_string()
    }

    /// Nothing is lost or doubled: neither in the log, nor for who watched, nor for the model.
    fn check(&self, stage: &Stage) -> anyhow::Result<usize> {
        let events = log::events(&stage.world, &self.id)?;
        let prompts = log::text(&events, "user_message_chunk");
        let done = std::fs::read_to_string(self.done()).unwrap_or_default();
        let mut taken = 0;
        for (nth, mark) in self.sent.iter().enumerate() {
            let times = prompts.matches(&format!("{mark} PLAN")).count();
            ensure!(times <= 1, "{mark} was taken {times} times");
            if nth % 3 == 1 && mark.starts_with("mark-") {
                let ran = done.lines().filter(|line| line == mark).count();
                ensure!(
                    ran == times,
                    "{mark} was taken {times} times and ran {ran} times"
                );
            }
            taken += times;
        }
        let turns = log::turns(&events);
        ensure!(
            turns == vec!["end_turn"; taken],
            "{taken} prompts: {turns:?}"
        );
        heard_once(&self.heard, &events, "user_message_chunk")?;
        Ok(taken)
    }
}

/// Every update of the log was heard once, in order; those of one kind may be missing (one's own prompts
/// are not told back).
fn heard_once(heard: &[Value], events: &[Value], but: &str) -> anyhow::Result<()> {
    let heard = numbers(heard);
    ensure!(
        heard.is_sorted_by(|a, b| a < b),
        "out of order or twice: {heard:?}"
    );
    for event in events.iter().filter(|event| event["kind"] == "update") {
        let number = event["seq"].as_u64().context("a number")?;
        let missing = heard.binary_search(&number).is_err();
        let may = event["update"]["sessionUpdate"] == but;
        ensure!(!missing || may, "never heard: {event}");
    }
    Ok(())
}

/// Watches one session and types nothing; gives what it heard.
async fn watch(client: Client, id: String, mut heard: Vec<Value>) -> Vec<Value> {
    let after = numbers(&heard).last().copied().unwrap_or(0);
    if let Ok(mut viewer) = Viewer::attach(&client, &id, after).await {
        viewer.closed().await.ok();
        heard.append(&mut viewer.seen);
    }
    heard
}

/// Lists, searches and follows what changes, until the daemon is gone.
async fn look_around(client: Client) {
    let Ok(mut events) = client.events().await else {
        return;
    };
    while let Ok(Some(_)) = events.next().await {
        client.sessions("", "", 100).await.ok();
        client.projects("").await.ok();
    }
}

/// A project with two agents and, for each, two sessions.
async fn project(stage: &Stage, name: &str) -> anyhow::Result<Vec<Desk>> {
    let folder = stage.world.work().join(name);
    std::fs::create_dir(&folder)?;
    let request = CreateProject {
        folder: text(&folder)?,
        agents: ["Dev", "Review"].map(agent).into(),
        ..CreateProject::default()
    };
    let made = stage.client().create_project(&request).await?;
    let mut desks = Vec::new();
    for agent in made.agents.iter().chain(&made.agents) {
        let request = CreateSession {
            agent_id: Some(agent.id.clone()),
            ..CreateSession::default()
        };
        let view = stage.client().create_session(&request).await?;
        desks.push(Desk {
            id: view.id.as_str().to_owned(),
            folder: folder.clone(),
            heard: Vec::new(),
            sent: Vec::new(),
        });
    }
    Ok(desks)
}

fn agent(name: &str) -> AgentRequest {
    AgentRequest {
        name: Some(name.into()),
        models: vec![ModelAccess {
            harness: Some("pi".into()),
            account: None,
            provider: Some("scripted".into()),
            model: None,
        }],
        ..AgentRequest::default()
    }
}

/// Puts a newer program where the daemon's was: another file with other bytes.
fn upgrade(program: &Path) -> anyhow::Result<()> {
    let newer = program.with_extension("new");
    std::fs::copy(program, &newer)?;
    let mut file = std::fs::File::options().append(true).open(&newer)?;
    std::io::Write::write_all(&mut file, b"newer")?;
    drop(file);
    Ok(std::fs::rename(&newer, program)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_of_eight_sessions_outlives_its_daemons_and_an_upgrade() -> anyhow::Result<()> {
    let test = "a scripted day";
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("handler");
    let Some(built) = World::program() else {
        skip(test, "handler is not built");
        return Ok(());
    };
    std::fs::copy(built, &program)?;
    let world = World::builder().program(&program).start().await?;
    if !shared::provide(test, &world, &["pi"]).await? {
        return Ok(());
    }
    let mut stage = Stage::with(world).await?;
    let mut desks = project(&stage, "one").await?;
    desks.append(&mut project(&stage, "two").await?);
    let watched = desks[5].id.clone();
    let mut pause = PAUSE;
    for desk in &mut desks {
        let begun = Instant::now();
        desk.begin(&stage).await?;
        // The last one's session stands already: a plain turn on this machine.
        pause = PAUSE.max(begun.elapsed() * 2);
    }
    let mut seen = Vec::new();

    let kills = if is_soak() { 100 } else { 8 };
    for kill in 0..kills {
        let work = desks.drain(..).map(|desk| desk.work(stage.client()));
        let working: Vec<_> = work.map(tokio::spawn).collect();
        let watching = tokio::spawn(watch(stage.client(), watched.clone(), seen));
        let around = tokio::spawn(look_around(stage.client()));
        tokio::time::sleep(chance(pause)).await;
        stage.world.kill9()?;
        for desk in working {
            desks.push(desk.await?);
        }
        seen = watching.await?;
        around.await?;
        if kill == kills / 2 {
            upgrade(&program)?;
        }
        let started = stage.world.start_daemon().await;
        started.with_context(|| format!("after kill {kill}"))?;
    }
    ends(&stage, desks, (watched, seen), kills).await?;
    stage.world.assert_clean(LONG).await
}

/// Every session goes on, its log and its people agree, and nothing is left of a project that is removed.
async fn ends(
    stage: &Stage,
    mut desks: Vec<Desk>,
    (watched, mut seen): (String, Vec<Value>),
    kills: u32,
) -> anyhow::Result<()> {
    let mut taken = 0;
    for desk in &mut desks {
        let after = numbers(&desk.heard).last().copied().unwrap_or(0);
        let mut viewer = stage.attach(&desk.id, after).await?;
        viewer.idle().await?;
        let (said, reason) = viewer.turn("The last. PLAN:text:Good night.").await?;
        ensure!(
            said.ends_with("Good night.") && reason == "end_turn",
            "{said}: {reason}"
        );
        desk.sent.push("The last.".into());
        desk.heard.append(&mut viewer.seen);
        taken += desk.check(stage).with_context(|| desk.id.clone())?;
    }
    let after = numbers(&seen).last().copied().unwrap_or(0);
    seen.append(&mut stage.attach(&watched, after).await?.seen);
    let events = log::events(&stage.world, &watched)?;
    heard_once(&seen, &events, "").context("who only watched")?;
    ensure!(
        taken >= desks.len() * 2,
        "{kills} kills: only {taken} prompts were taken"
    );
    let sandboxes = stage.client().sandboxes("", 100).await?.items;
    ensure!(sandboxes.len() == desks.len(), "{sandboxes:#?}");
    for project in stage.client().projects("").await? {
        stage.client().delete_project(project.id.as_str()).await?;
    }
    Ok(())
}
