//! What is seen of a sandbox: its log, what it uses, its agents, what they do.

use super::checks;
use crate::subject::Subject;
use anyhow::{Context as _, ensure};
use handler_client::logs::LogWish;
use handler_testkit::inside::{LONG, Sandbox};
use handler_testkit::{World, eventually};
use handler_types::guest::TtySize;
use handler_types::lifetime::Capabilities;
use handler_types::observe::{
    Activity, AgentFace, AgentList, HostSide, LogLine, LogSource, MetricsHistory, SandboxActivity,
    SandboxMetrics,
};
use handler_types::sandbox::{CreateSandbox, Resources, SandboxState};
use handler_types::terminal::CreateTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

checks! { "observation":
    the_log_tells_of_life_commands_terminals_and_refusals;
    the_log_is_followed_and_goes_on_over_a_killed_daemon;
    figures_are_there_now_and_as_history;
    asking_about_a_stopped_sandbox_does_not_wake_it;
    an_agent_is_told_by_its_program_and_not_by_who_mentions_it;
    the_activity_of_an_agent_is_read_from_its_screen;
}

fn wish() -> LogWish {
    LogWish {
        tail: 1000,
        ..LogWish::default()
    }
}

async fn lines(sandbox: &Sandbox) -> anyhow::Result<Vec<LogLine>> {
    Ok(sandbox.client.log_lines(&sandbox.id, &wish()).await?.lines)
}

/// Waits for a line.
async fn line(sandbox: &Sandbox, source: LogSource, words: &str) -> anyhow::Result<LogLine> {
    eventually(words, LONG, || async {
        let all = lines(sandbox).await.ok()?;
        all.into_iter()
            .find(|line| line.source == source && line.message.contains(words))
    })
    .await
}

async fn the_log_tells_of_life_commands_terminals_and_refusals(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    line(&sandbox, LogSource::Lifecycle, "running").await?;
    sandbox.sh("exit 3").await?;
    line(&sandbox, LogSource::Command, "exit 3").await?;
    line(&sandbox, LogSource::Command, "code 3").await?;
    let terminal = CreateTerminal {
        argv: vec!["true".to_owned()],
        ..CreateTerminal::default()
    };
    sandbox
        .client
        .create_terminal(&sandbox.id, &terminal)
        .await?;
    line(&sandbox, LogSource::Terminal, "true").await?;
    sandbox
        .sh(&crate::probe::get("http://denied.example:81/"))
        .await?;
    line(&sandbox, LogSource::Egress, "denied denied.example:81").await?;
    let all = lines(&sandbox).await?;
    let is_ordered = all.iter().map(|line| line.seq).eq(1..=all.len() as u64);
    ensure!(is_ordered, "{all:?}");
    let args = ["sandbox", "logs", "--source", "egress", &sandbox.id];
    let shown = world.cli_ok(&args).await?;
    ensure!(
        shown.contains("denied.example:81") && !shown.contains("code 3"),
        "{shown}"
    );
    s.down(sandbox).await
}

async fn the_log_is_followed_and_goes_on_over_a_killed_daemon(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    // The command line's follower, on a terminal so that every line comes as it is made.
    let follower = world.on_tty(&["sandbox", "logs", "-f", &sandbox.id], (300, 50))?;
    sandbox.sh("true first-command").await?;
    follower.until("first-command").await?;
    // One runs while the daemon is away, and ends then.
    let away = "true away-command; while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 4";
    sandbox.start(away).await?;
    follower.until("away-command").await?;
    world.kill9()?;
    world.start_daemon().await?;
    sandbox.client = world.client();
    follower.until("taken up by a new daemon").await?;
    sandbox.out("touch /tmp/go").await?;
    follower.until("code 4").await?;
    for words in ["first-command", "away-command"] {
        let count = follower.text().matches(words).count();
        ensure!(count == 1, "{words}: {count} times");
    }
    let all = lines(&sandbox).await?;
    let is_whole = all.iter().map(|line| line.seq).eq(1..=all.len() as u64);
    ensure!(is_whole, "{all:?}");
    s.down(sandbox).await
}

/// What the engine counts: what it limits, and of this sandbox only.
fn is_counted(host: HostSide, can: &Capabilities) -> bool {
    let is_own = |used: u64| used > 0 && used <= 256 * 1024 * 1024;
    host.memory_bytes.map_or(!can.memory_limit, is_own)
        && host.cpu_ms.is_none_or(|spent| spent > 0)
        && host
            .processes
            .map_or(!can.pids_limit, |count| (2..=200).contains(&count))
}

async fn figures_are_there_now_and_as_history(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let can = &s.capabilities;
    let resources = Resources {
        memory_mib: can.memory_limit.then_some(256),
        pids: can.pids_limit.then_some(200),
        ..Resources::default()
    };
    let spec = CreateSandbox {
        resources,
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    sandbox.start("while :; do :; done").await?;
    let now = eventually("processor time", LONG, || async {
        let now = sandbox.client.metrics(&sandbox.id).await.ok()?;
        let guest = now.guest.is_some_and(|guest| guest.cpu_ms > 0);
        guest.then_some(now)
    })
    .await?;
    ensure!(now.state == SandboxState::Running, "{now:?}");
    let guest = now.guest.context("the guest's figures")?;
    ensure!(guest.processes >= 2 && guest.memory_bytes > 0, "{now:?}");
    ensure!(is_counted(now.host.unwrap_or_default(), can), "{now:?}");
    let args = ["--json", "sandbox", "metrics", "--history", &sandbox.id];
    let history = eventually("two samples", LONG, || async {
        let shown = world.cli_ok(&args).await.ok()?;
        let history: MetricsHistory = serde_json::from_str(&shown).ok()?;
        (history.samples.len() >= 2).then_some(history)
    })
    .await?;
    let busy = history.samples[1].cpu_percent.context("processor use")?;
    ensure!(busy > 0.0, "{history:?}");
    let top = world.cli_ok(&["sandbox", "top", "--once"]).await?;
    ensure!(top.contains(&sandbox.id[..6]), "{top}");
    s.down(sandbox).await
}

async fn asking_about_a_stopped_sandbox_does_not_wake_it(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox.client.stop_sandbox(&sandbox.id).await?;
    let shown = world
        .cli_ok(&["--json", "sandbox", "metrics", &sandbox.id])
        .await?;
    let rest: SandboxMetrics = serde_json::from_str(&shown)?;
    let is_at_rest = rest.state == SandboxState::Stopped && rest.guest.is_none();
    ensure!(is_at_rest, "{rest:?}");
    sandbox.client.activity(&sandbox.id).await?;
    lines(&sandbox).await?;
    let view = s.view(&sandbox).await?;
    ensure!(
        view.state == SandboxState::Stopped,
        "it was woken: {view:?}"
    );
    s.down(sandbox).await
}

/// A sandbox on a project folder with programs in it, which are on its `PATH`.
async fn with(s: &Subject, world: &World, folder: &Path) -> anyhow::Result<Sandbox> {
    let scope = folder.to_string_lossy().into_owned();
    let spec = CreateSandbox {
        env: [("PATH".to_owned(), format!("{scope}:/usr/bin:/bin"))].into(),
        scope: Some(scope),
        ..s.spec()
    };
    s.up(world, &spec).await
}

async fn an_agent_is_told_by_its_program_and_not_by_who_mentions_it(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let folder = s.project(&world, "agents")?;
    for name in ["claude", "codex"] {
        let program = "#!/bin/sh\nwhile :; do sleep 1; done\n";
        s.put(&world, &folder.join(name), program)?;
    }
    let sandbox = with(&s, &world, &folder).await?;
    sandbox.start("exec claude").await?;
    // These only mention one.
    sandbox.start("sleep 1000; echo codex gemini").await?;
    eventually("its process", LONG, || async {
        let done = sandbox.sh("cat /proc/[0-9]*/comm").await.ok()?;
        done.stdout
            .lines()
            .any(|name| name == "claude")
            .then_some(())
    })
    .await?;
    let shown = world
        .cli_ok(&["--json", "sandbox", "agents", &sandbox.id])
        .await?;
    let list: AgentList = serde_json::from_str(&shown)?;
    let of = |harness: &str| {
        let found = list.agents.iter().find(|agent| agent.harness == harness);
        found.context("not in the list")
    };
    let claude = of("claude-code")?;
    ensure!(claude.installed && claude.running.len() == 1, "{claude:?}");
    ensure!(claude.running[0].face == AgentFace::Terminal, "{claude:?}");
    let codex = of("codex")?;
    ensure!(codex.installed && codex.running.is_empty(), "{codex:?}");
    let gemini = of("gemini-cli")?;
    ensure!(!gemini.installed && gemini.running.is_empty(), "{gemini:?}");
    s.down(sandbox).await
}

/// A recorded screen of the classifier's own tests.
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../crates/handler-activity/testdata")
        .join(name)
}

/// Draws recorded screens on the whole terminal, the next one whenever a file appears.
fn player(s: &Subject, world: &World, folder: &Path, screens: &[&str]) -> anyhow::Result<()> {
    let mut script = String::new();
    for (at, name) in screens.iter().enumerate() {
        let screen = std::fs::read(sample(name))?;
        s.put(world, &folder.join(format!("screen{at}")), screen)?;
        script.push_str(&format!(
            "printf '\\033[?1049h\\033[2J\\033[H'; cat screen{at}; while [ ! -e go{at} ]; do sleep 0.05; done\n"
        ));
    }
    s.put(world, &folder.join("agent.sh"), script)
}

async fn becomes(sandbox: &Sandbox, state: Activity) -> anyhow::Result<SandboxActivity> {
    eventually(state.as_str(), LONG, || async {
        let activity = sandbox.client.activity(&sandbox.id).await.ok()?;
        (activity.state == state).then_some(activity)
    })
    .await
}

async fn the_activity_of_an_agent_is_read_from_its_screen(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let folder = s.project(&world, "agent")?;
    let screens = [
        "claude-code-needs_input-permission-shell.txt",
        "claude-code-working-tool.txt",
        "claude-code-done.txt",
    ];
    player(&s, &world, &folder, &screens)?;
    let sandbox = with(&s, &world, &folder).await?;
    let request = CreateTerminal {
        argv: ["sh", "agent.sh"].map(str::to_owned).to_vec(),
        size: Some(TtySize {
            cols: 160,
            rows: 70,
        }),
        ..CreateTerminal::default()
    };
    sandbox
        .client
        .create_terminal(&sandbox.id, &request)
        .await?;
    let asks = becomes(&sandbox, Activity::NeedsInput).await?;
    ensure!(asks.why.text == "Do you want to proceed?", "{asks:?}");
    let shown = world.cli_ok(&["sandbox", "activity", &sandbox.id]).await?;
    ensure!(
        shown.contains("needs_input") && shown.contains("claude-code"),
        "{shown}"
    );
    sandbox.out("touch go0").await?;
    becomes(&sandbox, Activity::Working).await?;
    let shown = world
        .cli_ok(&["--json", "sandbox", "activity", &sandbox.id])
        .await?;
    let told: SandboxActivity = serde_json::from_str(&shown)?;
    ensure!(
        told.sources
            .iter()
            .any(|source| source.state == Activity::Working),
        "{told:?}"
    );
    sandbox.out("touch go1").await?;
    becomes(&sandbox, Activity::Done).await?;
    s.down(sandbox).await
}
