//! The daemon and the filter are killed at whatever they do: nothing is lost, doubled or left over.

use crate::support::{LONG, Piece, Sandbox, alias, filtered, has_tools, is_soak, project, say, show, text, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{HttpOrigin, Leftover, World, eventually};
use handler_types::api::{ExecRequest, SecretRequest};
use handler_types::sandbox::{CreateSandbox, SandboxState, SandboxView, SecretGrant};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How many times the daemon is killed in each of the two tests.
fn points() -> u64 {
    if is_soak() { 220 } else { 25 }
}

/// A time below `most`, by chance.
fn chance(most: Duration) -> Duration {
    let drawn = u32::from_be_bytes(handler_base::random::bytes());
    most.mul_f64(f64::from(drawn) / f64::from(u32::MAX))
}

/// All sandboxes, once none is on its way to another state.
async fn settled(world: &World) -> anyhow::Result<Vec<SandboxView>> {
    eventually("sandboxes to settle", LONG, || async {
        let page = world.client().sandboxes("", 500).await.ok()?;
        let rest = [SandboxState::Running, SandboxState::Stopped, SandboxState::Failed];
        page.items.iter().all(|view| rest.contains(&view.state)).then_some(page.items)
    })
    .await
}

/// Whether a process is the first one of its namespace.
fn is_first(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    inside.is_some_and(|pids| pids.split_whitespace().nth(1) == Some("1"))
}

/// Waits until only what belongs to these running sandboxes exists: three folders and one tree each.
async fn only(world: &World, running: &BTreeSet<String>) -> anyhow::Result<()> {
    let look = || {
        let mut strange = Vec::new();
        let mut roots = BTreeSet::new();
        for left in world.leftovers() {
            let is_known = match &left {
                Leftover::Folder(path) => running.iter().any(|id| path.ends_with(id)),
                // One for each, and one around them all.
                Leftover::Cgroup(path) => {
                    running.iter().any(|id| path.ends_with(id) || path.join(id).exists())
                }
                // The guest names its sandbox; what it runs is looked at through it.
                Leftover::Process(member) => {
                    let named = member.argv.iter().find(|arg| running.contains(*arg));
                    let is_guest = member.argv.iter().any(|arg| arg.contains("handler-guest"));
                    match named {
                        Some(id) if is_first(member.pid) => roots.insert(id.clone()),
                        Some(_) => true,
                        None => !is_guest,
                    }
                }
                Leftover::Mount(_) => false,
            };
            if !is_known {
                strange.push(left.to_string());
            }
        }
        (strange, roots.len())
    };
    let mut last = (Vec::new(), 0);
    let clean = eventually("nothing strange", LONG, || {
        last = look();
        let is_clean = last.0.is_empty() && last.1 == running.len();
        std::future::ready(is_clean.then_some(()))
    })
    .await;
    clean.with_context(|| format!("{} of {} run; strange: {:#?}", last.1, running.len(), last.0))
}

#[tokio::test]
async fn killed_while_making_a_sandbox_the_next_daemon_finishes_or_undoes_it() -> anyhow::Result<()> {
    let mut world = world().await?;
    let control = Sandbox::plain(&world).await?;
    control.out("echo kept > ~/file").await?;
    let spec = CreateSandbox {
        scope: Some(text(project(&world, "app")?)?),
        ..Default::default()
    };
    let begun = Instant::now();
    let probe = Sandbox::up(&world, &spec).await?;
    let usual = begun.elapsed();
    world.client().delete_sandbox(&probe.id).await?;
    let (mut made, mut unmade) = (0, 0);
    for round in 0..points() {
        let client = world.client();
        let named = CreateSandbox { name: Some(format!("round{round}")), ..spec.clone() };
        let making = tokio::spawn(async move { client.create_sandbox(&named).await });
        tokio::time::sleep(chance(usual.mul_f64(1.2))).await;
        world.kill9()?;
        let answered = making.await?.is_ok();
        world.start_daemon().await.with_context(|| format!("round {round}"))?;
        let all = settled(&world).await?;
        let of_round: Vec<_> = all.iter().filter(|view| view.name == format!("round{round}")).collect();
        ensure!(of_round.len() <= 1 && all.len() == 1 + of_round.len(), "round {round}: {all:?}");
        ensure!(!answered || of_round.len() == 1, "round {round}: it was said to run and is gone");
        let mut running = BTreeSet::from([control.id.clone()]);
        if let Some(view) = of_round.first() {
            made += 1;
            ensure!(view.state == SandboxState::Running, "round {round}: {view:?}");
            running.insert(view.id.to_string());
            let sandbox = Sandbox { client: world.client(), id: view.id.to_string() };
            assert_eq!(sandbox.out("echo on").await?, "on", "round {round}");
        } else {
            unmade += 1;
        }
        only(&world, &running).await.with_context(|| format!("round {round}"))?;
        if let Some(view) = of_round.first() {
            world.client().delete_sandbox(view.id.as_str()).await?;
        }
        assert_eq!(control.out("cat ~/file").await?, "kept");
    }
    say(&format!("killed {} times while making: {made} made, {unmade} undone", points()));
    world.client().delete_sandbox(&control.id).await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn killed_while_removing_a_sandbox_the_next_daemon_removes_it() -> anyhow::Result<()> {
    let mut world = world().await?;
    let control = Sandbox::plain(&world).await?;
    let origin = HttpOrigin::start().await?;
    let spec = CreateSandbox { network: Some(filtered(&[alias(origin.port())])?), ..Default::default() };
    let probe = Sandbox::up(&world, &spec).await?;
    let begun = Instant::now();
    world.client().delete_sandbox(&probe.id).await?;
    let usual = begun.elapsed();
    let mut unbegun = 0;
    for round in 0..points() {
        let sandbox = Sandbox::up(&world, &spec).await?;
        sandbox.out("mkdir -p ~/a/b/c && touch ~/a/b/c/d && (setsid sleep 900 &) ; true").await?;
        let (client, id) = (world.client(), sandbox.id.clone());
        let removing = tokio::spawn(async move { client.delete_sandbox(&id).await });
        tokio::time::sleep(chance(usual.mul_f64(1.2))).await;
        world.kill9()?;
        let answered = removing.await?.is_ok();
        world.start_daemon().await.with_context(|| format!("round {round}"))?;
        let all = settled(&world).await?;
        let mut running = BTreeSet::from([control.id.clone()]);
        if all.iter().any(|view| view.id.as_str() == sandbox.id) {
            // The wish had not been written down: the sandbox is whole.
            ensure!(!answered, "round {round}: it was said to be gone");
            running.insert(sandbox.id.clone());
            assert_eq!(sandbox.out("ls ~/a/b/c").await?, "d", "round {round}");
            unbegun += 1;
        }
        ensure!(all.len() == running.len(), "round {round}: {all:?}");
        only(&world, &running).await.with_context(|| format!("round {round}"))?;
        if running.len() == 2 {
            world.client().delete_sandbox(&sandbox.id).await?;
        }
        assert_eq!(control.out("echo on").await?, "on");
    }
    say(&format!("killed {} times while removing: {unbegun} had not begun", points()));
    world.client().delete_sandbox(&control.id).await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn a_command_goes_on_while_the_daemon_is_dead_and_not_a_byte_is_lost_or_doubled() -> anyhow::Result<()> {
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let script = "seq 1 3000000; read x; echo got $x";
    let request = ExecRequest {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        open_stdin: true,
        ..Default::default()
    };
    let process = sandbox.client.start_process(&sandbox.id, &request).await?.process;
    let mut all: Vec<u8> = Vec::new();
    for _ in 0..5 {
        // What this reader has is the only truth: it goes on from its own last byte.
        let mut feed = sandbox.attach(process, None).await?;
        let offset = usize::try_from(feed.offset)?;
        ensure!(offset <= all.len(), "bytes {} to {offset} were given up unread", all.len());
        all.truncate(offset);
        let enough = all.len() + 20_000;
        while all.len() < enough {
            match feed.next().await? {
                Piece::Output(_, bytes) => all.extend_from_slice(&bytes),
                other => anyhow::bail!("{other:?}"),
            }
        }
        world.kill9()?;
        // What it had sent is still on its way.
        while let Ok(Piece::Output(_, bytes)) = feed.next().await {
            all.extend_from_slice(&bytes);
        }
        tokio::time::sleep(chance(Duration::from_millis(100))).await;
        world.start_daemon().await?;
    }
    let mut feed = sandbox.attach(process, None).await?;
    ensure!(usize::try_from(feed.offset)? <= all.len(), "bytes were given up unread");
    all.truncate(usize::try_from(feed.offset)?);
    feed.type_in("hello\n").await?;
    let (rest, exit) = feed.rest().await?;
    all.extend_from_slice(&rest);
    let mut wanted: String = (1..=3_000_000).map(|line| format!("{line}\n")).collect();
    wanted.push_str("got hello\n");
    assert_eq!(exit.code, 0);
    assert_eq!(all.len(), wanted.len());
    assert!(all == wanted.as_bytes(), "the bytes differ");
    Ok(())
}

#[tokio::test]
async fn a_killed_filter_comes_back_and_running_sandboxes_have_their_network_and_secrets_again() -> anyhow::Result<()> {
    if !has_tools("a_killed_filter_comes_back", &["curl"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let origin = HttpOrigin::start().await?;
    let client = world.client();
    let value = "sk-value-0123456789abcdef0123456789abcdef0123456";
    client.set_secret("tokens/a", &SecretRequest { value: value.into(), description: None }).await?;
    let grant = SecretGrant { secret: "tokens/a".into(), hosts: vec![alias(origin.port()).parse()?] };
    let spec = CreateSandbox { secrets: [("TOKEN".to_owned(), grant)].into(), ..Default::default() };
    let sandbox = Sandbox::up(&world, &spec).await?;
    let other = Sandbox::plain(&world).await?;
    let ask = |mark: &str| {
        let url = format!("http://{}/{mark}", alias(origin.port()));
        format!("curl -sSf -m 20 -H \"X-Key: $TOKEN\" {url}")
    };
    sandbox.out(&ask("first")).await?;
    for (mark, restarts) in [("second", false), ("third", true)] {
        let is_filter = |argv: &[String]| argv.get(1).is_some_and(|verb| verb == "egress");
        let filters: Vec<_> = world.processes().into_iter().filter(|member| is_filter(&member.argv)).collect();
        ensure!(filters.len() == 1, "{filters:?}");
        if restarts {
            // Both at once: the next daemon starts another filter.
            world.kill9()?;
        }
        let pid = rustix::process::Pid::from_raw(filters[0].pid).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        if restarts {
            world.start_daemon().await?;
        }
        eventually("the network to be back", LONG, || async {
            let done = sandbox.sh(&ask(mark)).await.ok()?;
            (done.exit.code == 0).then_some(())
        })
        .await?;
        let request = origin.wait_for(LONG, |request| request.path.ends_with(mark)).await?;
        assert_eq!(request.headers["x-key"].to_str()?, value);
        // The policy is back as well.
        let curl = "curl -sS -m 20 -o /dev/null -w '%{http_code}'";
        let refused = other.sh(&format!("{curl} http://{}/", alias(origin.port()))).await?;
        assert_eq!(refused.stdout, "403");
    }
    for sandbox in [&sandbox, &other] {
        world.client().delete_sandbox(&sandbox.id).await?;
    }
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn stopping_and_starting_the_daemon_by_hand_keeps_sandboxes_and_their_processes() -> anyhow::Result<()> {
    let world = World::builder().env("HANDLER_PORT", "0").prepare()?;
    let before = world.cli(&["sandbox", "list"]).await?;
    assert_eq!(before.status.code(), Some(5), "{before:?}");
    assert!(show(&before.stderr).contains("handler daemon start"), "{before:?}");
    world.cli_ok(&["daemon", "start"]).await?;
    let again = world.cli(&["daemon", "start"]).await?;
    assert!(again.status.success() && show(&again.stderr).contains("already"), "{again:?}");
    world.cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"]).await?;
    let script = "echo begun; sleep 1; echo done; exec sleep 900";
    let number = world.cli_ok(&["sandbox", "exec", "--detach", "box", "--", "sh", "-c", script]).await?;
    let number: u32 = number.trim().parse()?;
    world.cli_ok(&["daemon", "stop"]).await?;
    assert_eq!(world.cli(&["status"]).await?.status.code(), Some(5));
    let alive = world.processes().iter().any(|member| member.argv.iter().any(|arg| arg.contains("sleep 900")));
    assert!(alive || world.processes().len() > 1, "{:?}", world.processes());
    world.cli_ok(&["daemon", "start"]).await?;
    let status = world.cli_ok(&["status"]).await?;
    assert!(status.contains('1'), "{status}");
    let sandbox = Sandbox { client: world.client(), id: "box".into() };
    let mut feed = sandbox.attach(number, None).await?;
    let seen = feed.until("done\n").await?;
    assert_eq!(seen, "begun\ndone\n");
    world.cli_ok(&["sandbox", "down", "box"]).await?;
    let log = world.cli_ok(&["daemon", "log"]).await?;
    assert!(log.contains("ready"), "{log}");
    world.cli_ok(&["daemon", "stop"]).await?;
    world.assert_clean(LONG).await
}
