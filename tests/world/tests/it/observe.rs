//! Observation on the real thing: logs that outlive the daemon, figures over time, Prometheus, agents, activity.

use crate::support::{LONG, Sandbox, http, open_work, project, say, text, world};
use anyhow::{Context as _, ensure};
use handler_client::logs::LogWish;
use handler_testkit::{World, eventually};
use handler_types::observe::{AgentFace, LogLine, LogSource};
use handler_types::sandbox::{CreateSandbox, SandboxState};
use std::io::Write as _;
use std::process::Stdio;

fn wish() -> LogWish {
    LogWish {
        tail: 1000,
        ..LogWish::default()
    }
}

async fn lines(sandbox: &Sandbox) -> anyhow::Result<Vec<LogLine>> {
    Ok(sandbox.client.log_lines(&sandbox.id, &wish()).await?.lines)
}

async fn line(sandbox: &Sandbox, source: LogSource, words: &str) -> anyhow::Result<LogLine> {
    eventually(words, LONG, || async {
        let all = lines(sandbox).await.ok()?;
        all.into_iter()
            .find(|line| line.source == source && line.message.contains(words))
    })
    .await
}

#[tokio::test]
async fn a_log_tells_life_commands_terminals_and_refusals_without_secrets() -> anyhow::Result<()> {
    let world = world().await?;
    world
        .cli_with_input(&["secret", "set", "tokens/planted"], b"planted-value-123\n")
        .await?;
    let sandbox = Sandbox::plain(&world).await?;
    line(&sandbox, LogSource::Lifecycle, "running").await?;
    sandbox.sh("exit 3 # planted-value-123").await?;
    let started = line(&sandbox, LogSource::Command, "exit 3").await?;
    ensure!(started.message.contains("***"), "{started:?}");
    line(&sandbox, LogSource::Command, "code 3").await?;
    let refused = "python3 -c \"import socket; s=socket.create_connection(('127.0.0.1',3128)); \
        s.sendall(b'CONNECT denied.example:443 HTTP/1.1\\r\\nHost: denied.example:443\\r\\n\\r\\n'); print(s.recv(99))\"";
    sandbox.sh(refused).await?;
    line(&sandbox, LogSource::Egress, "denied denied.example:443").await?;
    // Only what was asked for.
    let only = LogWish {
        source: Some(LogSource::Egress),
        ..wish()
    };
    let only = sandbox.client.log_lines(&sandbox.id, &only).await?.lines;
    ensure!(only.iter().all(|line| line.source == LogSource::Egress));
    let all = lines(&sandbox).await?;
    ensure!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let whole = world.cli_ok(&["sandbox", "logs", &sandbox.id]).await?;
    ensure!(!whole.contains("planted-value-123"), "{whole}");
    let file = world
        .scratch()
        .folder("state")
        .join("sandboxes")
        .join(&sandbox.id)
        .join("log.ndjson");
    let raw = std::fs::read_to_string(&file)?;
    ensure!(!raw.contains("planted-value-123"));
    world.cli_ok(&["sandbox", "down", &sandbox.id]).await?;
    ensure!(!file.exists(), "the log stayed");
    Ok(())
}

#[tokio::test]
async fn logs_are_followed_live_over_a_restart_of_the_daemon() -> anyhow::Result<()> {
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let output = world.scratch().folder("follow.out");
    let mut follower = world.command();
    follower
        .args(["sandbox", "logs", "-f", &sandbox.id])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&output)?)
        .stderr(Stdio::null());
    let mut follower = follower.spawn()?;
    let seen = |words: &'static str| {
        let output = output.clone();
        async move {
            let text = std::fs::read_to_string(output).ok()?;
            text.contains(words).then_some(text)
        }
    };
    sandbox.sh("true first-command").await?;
    eventually("the first line", LONG, || seen("first-command")).await?;
    // One runs while the daemon is away, and ends then.
    sandbox
        .start("true away-command; while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 4")
        .await?;
    eventually("its line", LONG, || seen("away-command")).await?;
    sandbox.start("sleep 0.3; touch /tmp/go").await?;
    world.kill9()?;
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    world.start_daemon().await?;
    eventually("the new daemon's line", LONG, || {
        seen("taken up by a new daemon")
    })
    .await?;
    eventually("the end that nobody saw", LONG, || seen("code 4")).await?;
    sandbox.sh("true second-command").await?;
    let text = eventually("a line of the new daemon", LONG, || seen("second-command")).await?;
    follower.kill()?;
    follower.wait()?;
    for words in ["first-command", "away-command", "second-command"] {
        ensure!(text.matches(words).count() == 1, "{words} in:\n{text}");
    }
    // From the beginning of its life, in order, over both daemons.
    let all = lines(&sandbox).await?;
    ensure!(
        all.iter().map(|l| l.seq).eq(1..=all.len() as u64),
        "{all:?}"
    );
    Ok(())
}

#[tokio::test]
async fn figures_are_there_now_and_as_history_and_reading_wakes_nothing() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    sandbox.start("while :; do :; done").await?;
    let now = sandbox.client.metrics(&sandbox.id).await?;
    ensure!(now.state == SandboxState::Running);
    ensure!(
        now.guest.context("guest figures")?.processes >= 2,
        "{now:?}"
    );
    let history = eventually("two samples", LONG, || async {
        let history = sandbox
            .client
            .metrics_history(&sandbox.id, 360)
            .await
            .ok()?;
        (history.samples.len() >= 2).then_some(history)
    })
    .await?;
    let busy = history.samples[1].cpu_percent.context("processor use")?;
    ensure!(busy > 0.0, "{history:?}");
    let shown = world
        .cli_ok(&["sandbox", "metrics", "--history", &sandbox.id])
        .await?;
    ensure!(shown.lines().count() >= 3, "{shown}");
    let top = world.cli_ok(&["sandbox", "top", "--once"]).await?;
    ensure!(top.contains(&sandbox.id[..6]), "{top}");
    sandbox.client.stop_sandbox(&sandbox.id).await?;
    let rest = sandbox.client.metrics(&sandbox.id).await?;
    ensure!(
        rest.state == SandboxState::Stopped && rest.guest.is_none(),
        "{rest:?}"
    );
    sandbox.client.activity(&sandbox.id).await?;
    lines(&sandbox).await?;
    let view = sandbox.client.sandbox(&sandbox.id).await?;
    ensure!(
        view.state == SandboxState::Stopped,
        "it was woken: {view:?}"
    );
    Ok(())
}

#[tokio::test]
async fn bytes_through_the_filter_are_counted() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let ask = "import socket; s=socket.create_connection(('127.0.0.1',3128)); \
        s.sendall(b'GET http://denied.example/ HTTP/1.1\\r\\nHost: denied.example\\r\\n\\r\\n'); s.recv(9999)";
    sandbox.python(ask).await?;
    let traffic = eventually("counted bytes", LONG, || async {
        let metrics = sandbox.client.metrics(&sandbox.id).await.ok()?;
        metrics.egress.filter(|egress| egress.connections > 0)
    })
    .await?;
    ensure!(
        traffic.out_bytes >= 60 && traffic.in_bytes > 100,
        "{traffic:?}"
    );
    Ok(())
}

#[tokio::test]
async fn prometheus_text_parses_and_only_a_token_opens_it() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    sandbox.sh("true").await?;
    let port = world.port()?;
    let host = format!("Host: 127.0.0.1:{port}");
    let bare = http(port, &["GET /metrics HTTP/1.1", &host], "").await?;
    ensure!(bare.status == 401, "{bare:?}");
    let token_file = world.scratch().folder("config").join("metrics-token");
    let scrape = std::fs::read_to_string(&token_file)?;
    let bearer = format!("Authorization: Bearer {}", scrape.trim());
    let closed = http(port, &["GET /v1/sandboxes HTTP/1.1", &host, &bearer], "").await?;
    ensure!(closed.status == 401, "the scraper's token opens the API");
    let scraped = http(port, &["GET /metrics HTTP/1.1", &host, &bearer], "").await?;
    ensure!(scraped.status == 200, "{scraped:?}");
    let samples = parse(&scraped.body)?;
    for wanted in [
        "handler_build_info",
        "handler_uptime_seconds",
        "handler_sandboxes{state=\"running\",backend=\"native\"}",
        "handler_creates_total{result=\"ok\"}",
        "handler_create_seconds_count",
        "handler_commands_total",
        "handler_terminals_total",
        "handler_sessions{state=\"running\"}",
        "handler_host_memory_total_bytes",
        "handler_host_disk_total_bytes",
        "handler_host_cpu_ratio",
        "handler_daemon_memory_bytes",
        "handler_filter_memory_bytes",
    ] {
        let found = samples.iter().any(|(name, _)| name.starts_with(wanted));
        ensure!(found, "{wanted} is missing in:\n{}", scraped.body);
    }
    let made = samples
        .iter()
        .find(|(n, _)| n.starts_with("handler_creates_total{result=\"ok\""));
    ensure!(made.is_some_and(|(_, value)| *value >= 1.0));
    ensure!(
        !scraped.body.contains(&sandbox.id),
        "a series names a sandbox"
    );
    real_parser(&scraped.body)
}

/// A strict reader of the text: every line is a comment that is known, or a sample with a number.
fn parse(text: &str) -> anyhow::Result<Vec<(String, f64)>> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    let mut samples = Vec::new();
    let mut lines: Vec<&str> = text.lines().collect();
    ensure!(lines.pop() == Some("# EOF"), "it does not end with # EOF");
    for line in lines {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let kind = words.next().unwrap_or_default();
            ensure!(["HELP", "TYPE", "UNIT"].contains(&kind), "{line}");
            ensure!(words.next().is_some_and(is_name), "{line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
        let value: f64 = value.parse().with_context(|| line.to_owned())?;
        let bare = name.split('{').next().unwrap_or_default();
        ensure!(is_name(bare), "{line}");
        ensure!(bare == name || name.ends_with('}'), "{line}");
        ensure!(
            !samples.iter().any(|(other, _)| other == name),
            "twice: {line}"
        );
        samples.push((name.to_owned(), value));
    }
    ensure!(samples.len() > 20);
    Ok(samples)
}

/// The reference reader too, where this machine has it.
fn real_parser(text: &str) -> anyhow::Result<()> {
    let program = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as p\n\
        n = sum(len(f.samples) for f in p(sys.stdin.read()))\nassert n > 20, n\n";
    let has = |python: &&str| {
        std::process::Command::new(python)
            .args(["-c", "import prometheus_client"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    // The system's own as well: another one on the PATH need not have the system's packages.
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has) else {
        say("SKIP the reference reader of Prometheus: no python3 with prometheus_client");
        return Ok(());
    };
    let mut child = std::process::Command::new(python)
        .args(["-c", program])
        .stdin(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("its input")?
        .write_all(text.as_bytes())?;
    ensure!(
        child.wait()?.success(),
        "the reference reader refuses:\n{text}"
    );
    Ok(())
}

#[tokio::test]
async fn the_host_has_figures_and_status_shows_them() -> anyhow::Result<()> {
    let world = world().await?;
    let stats = world.client().host_stats().await?;
    ensure!(stats.cpus >= 1 && stats.memory.total_bytes > 0 && stats.disk.total_bytes > 0);
    ensure!(stats.daemon_memory_bytes > 0 && stats.filter_memory_bytes.is_some());
    let shown = world.cli_ok(&["status"]).await?;
    ensure!(
        shown.contains("memory") && shown.contains("disk"),
        "{shown}"
    );
    Ok(())
}

/// Programs with an agent's name in a folder on the `PATH` of the sandbox.
async fn with_programs(world: &World) -> anyhow::Result<Sandbox> {
    let folder = project(world, "agents")?;
    for name in ["claude", "codex", "gemini"] {
        let path = folder.join(name);
        std::fs::copy("/bin/sleep", &path)?;
    }
    let bin = text(folder.clone())?;
    let spec = CreateSandbox {
        scope: Some(bin.clone()),
        env: [("PATH".to_owned(), format!("{bin}:/usr/bin:/bin"))].into(),
        ..CreateSandbox::default()
    };
    Sandbox::up(world, &spec).await
}

#[tokio::test]
async fn agents_are_told_by_their_programs_and_not_by_who_mentions_them() -> anyhow::Result<()> {
    let world = world().await?;
    open_work(&world).await?;
    let sandbox = with_programs(&world).await?;
    sandbox.start("exec claude 1000").await?;
    // These only mention one.
    sandbox.start("exec sleep 1000 codex").await?;
    sandbox
        .start("sleep 1000; echo gemini opencode vibe")
        .await?;
    let list = sandbox.client.agents(&sandbox.id).await?;
    let of = |harness: &str| {
        let found = list.agents.iter().find(|agent| agent.harness == harness);
        found.cloned().context("not in the list")
    };
    let claude = of("claude-code")?;
    ensure!(claude.installed && claude.running.len() == 1, "{claude:?}");
    ensure!(claude.running[0].face == AgentFace::Terminal);
    ensure!(
        claude
            .path
            .is_some_and(|path| path.ends_with("/agents/claude"))
    );
    for harness in ["codex", "gemini-cli"] {
        let agent = of(harness)?;
        ensure!(agent.installed && agent.running.is_empty(), "{agent:?}");
    }
    let vibe = of("vibe")?;
    ensure!(!vibe.installed && vibe.running.is_empty(), "{vibe:?}");
    // Kept for a while: the same answer, looked at once.
    ensure!(sandbox.client.agents(&sandbox.id).await?.seen_at == list.seen_at);
    let shown = world.cli_ok(&["sandbox", "agents", &sandbox.id]).await?;
    ensure!(shown.contains("claude-code"), "{shown}");
    // The look-up is nobody's command.
    let log = lines(&sandbox).await?;
    ensure!(
        !log.iter().any(|line| line.message.contains("PATH")),
        "{log:?}"
    );
    Ok(())
}
