//! What runs goes on while the daemon or the filter is away: commands, their output, network and secrets.

use crate::crash::chance;
use crate::support::{LONG, Piece, Sandbox, alias, has_tools, show, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{HttpOrigin, World, eventually};
use handler_types::api::{ExecRequest, SecretRequest};
use handler_types::sandbox::{CreateSandbox, SecretGrant};
use std::time::Duration;

#[tokio::test]
async fn a_command_goes_on_while_the_daemon_is_dead_and_not_a_byte_is_lost_or_doubled()
-> anyhow::Result<()> {
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let script = "seq 1 3000000; read x; echo got $x";
    let request = ExecRequest {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        open_stdin: true,
        ..Default::default()
    };
    let process = sandbox
        .client
        .start_process(&sandbox.id, &request)
        .await?
        .process;
    let mut all: Vec<u8> = Vec::new();
    for _ in 0..5 {
        // What this reader has is the only truth: it goes on from its own last byte.
        let mut feed = sandbox.attach(process, None).await?;
        let offset = usize::try_from(feed.offset)?;
        ensure!(
            offset <= all.len(),
            "bytes {} to {offset} were given up unread",
            all.len()
        );
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
    ensure!(
        usize::try_from(feed.offset)? <= all.len(),
        "bytes were given up unread"
    );
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
async fn a_killed_filter_comes_back_and_running_sandboxes_have_their_network_and_secrets_again()
-> anyhow::Result<()> {
    if !has_tools("a_killed_filter_comes_back", &["curl"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let origin = HttpOrigin::start().await?;
    let client = world.client();
    let value = "sk-value-0123456789abcdef0123456789abcdef0123456";
    client
        .set_secret(
            "tokens/a",
            &SecretRequest {
                value: value.into(),
                description: None,
            },
        )
        .await?;
    let grant = SecretGrant {
        secret: "tokens/a".into(),
        hosts: vec![alias(origin.port()).parse()?],
    };
    let spec = CreateSandbox {
        secrets: [("TOKEN".to_owned(), grant)].into(),
        ..Default::default()
    };
    let sandbox = Sandbox::up(&world, &spec).await?;
    let other = Sandbox::plain(&world).await?;
    let ask = |mark: &str| {
        let url = format!("http://{}/{mark}", alias(origin.port()));
        format!("curl -sSf -m 20 -H \"X-Key: $TOKEN\" {url}")
    };
    sandbox.out(&ask("first")).await?;
    for (mark, restarts) in [("second", false), ("third", true)] {
        let is_filter = |argv: &[String]| argv.get(1).is_some_and(|verb| verb == "egress");
        let filters: Vec<_> = world
            .processes()
            .into_iter()
            .filter(|member| is_filter(&member.argv))
            .collect();
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
        let request = origin
            .wait_for(LONG, |request| request.path.ends_with(mark))
            .await?;
        assert_eq!(request.headers["x-key"].to_str()?, value);
        // The policy is back as well.
        let curl = "curl -sS -m 20 -o /dev/null -w '%{http_code}'";
        let refused = other
            .sh(&format!("{curl} http://{}/", alias(origin.port())))
            .await?;
        assert_eq!(refused.stdout, "403");
    }
    for sandbox in [&sandbox, &other] {
        world.client().delete_sandbox(&sandbox.id).await?;
    }
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn stopping_and_starting_the_daemon_by_hand_keeps_sandboxes_and_their_processes()
-> anyhow::Result<()> {
    let world = World::builder().env("HANDLER_PORT", "0").prepare()?;
    let before = world.cli(&["sandbox", "list"]).await?;
    assert_eq!(before.status.code(), Some(5), "{before:?}");
    assert!(
        show(&before.stderr).contains("handler daemon start"),
        "{before:?}"
    );
    world.cli_ok(&["daemon", "start"]).await?;
    let again = world.cli(&["daemon", "start"]).await?;
    assert!(
        again.status.success() && show(&again.stderr).contains("already"),
        "{again:?}"
    );
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"])
        .await?;
    let script = "echo begun; sleep 1; echo done; exec sleep 900";
    let number = world
        .cli_ok(&[
            "sandbox", "exec", "--detach", "box", "--", "sh", "-c", script,
        ])
        .await?;
    let number: u32 = number.trim().parse()?;
    world.cli_ok(&["daemon", "stop"]).await?;
    assert_eq!(world.cli(&["status"]).await?.status.code(), Some(5));
    let alive = world
        .processes()
        .iter()
        .any(|member| member.argv.iter().any(|arg| arg.contains("sleep 900")));
    assert!(
        alive || world.processes().len() > 1,
        "{:?}",
        world.processes()
    );
    world.cli_ok(&["daemon", "start"]).await?;
    let status = world.cli_ok(&["status"]).await?;
    assert!(status.contains('1'), "{status}");
    let sandbox = Sandbox {
        client: world.client(),
        id: "box".into(),
    };
    let mut feed = sandbox.attach(number, None).await?;
    let seen = feed.until("done\n").await?;
    assert_eq!(seen, "begun\ndone\n");
    world.cli_ok(&["sandbox", "down", "box"]).await?;
    let log = world.cli_ok(&["daemon", "log"]).await?;
    assert!(log.contains("ready"), "{log}");
    world.cli_ok(&["daemon", "stop"]).await?;
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn a_command_followed_on_the_command_line_outlives_a_killed_daemon() -> anyhow::Result<()> {
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let script = "i=1; while [ $i -le 60 ]; do seq $((i*1000)) $((i*1000+999)); i=$((i+1)); sleep 0.05; done; exit 3";
    let mut command = tokio::process::Command::from(world.command());
    command
        .args(["sandbox", "exec", &sandbox.id, "sh", "-c", script])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let following = tokio::spawn(command.spawn()?.wait_with_output());
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(800)).await;
        world.kill9()?;
        tokio::time::sleep(chance(Duration::from_millis(200))).await;
        world.start_daemon().await?;
    }
    let output = tokio::time::timeout(LONG, following).await???;
    let wanted: String = (1000..=60_999).map(|line| format!("{line}\n")).collect();
    assert_eq!(output.status.code(), Some(3), "{}", show(&output.stderr));
    assert_eq!(output.stdout.len(), wanted.len());
    assert!(output.stdout == wanted.as_bytes(), "the bytes differ");
    Ok(())
}

#[tokio::test]
async fn what_a_dead_viewer_had_not_acknowledged_is_there_for_the_next_one() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let request = ExecRequest {
        argv: ["sh", "-c", "seq 1 20000"].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    let process = sandbox
        .client
        .start_process(&sandbox.id, &request)
        .await?
        .process;
    let path = format!(
        "/v1/sandboxes/{}/processes/{process}/attach?ack=client",
        sandbox.id
    );
    for _ in 0..2 {
        // It was sent everything and dies without a word: nothing of it counts as seen.
        let socket = sandbox.client.socket(&path, "process.v1").await?;
        sandbox.ended(process).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(socket);
    }
    let mut feed = sandbox.attach(process, None).await?;
    assert_eq!(feed.offset, 0);
    let (all, exit) = feed.rest().await?;
    let wanted: String = (1..=20_000).map(|line| format!("{line}\n")).collect();
    assert_eq!(exit.code, 0);
    assert!(all == wanted.as_bytes(), "the bytes differ");
    Ok(())
}
