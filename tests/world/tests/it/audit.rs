//! The way from a refusal to a list, entry by entry; and what is kept of it, which nobody changes unseen.

use crate::support::{LONG, Sandbox, alias, filtered, has_tools, tunnel_to, world};
use anyhow::Context as _;
use handler_client::audit::AuditWish;
use handler_testkit::{HttpOrigin, TcpOrigin, World, eventually};
use handler_types::audit::{Actor, AuditRecord, AuditVerdict, AuditWhat, PolicyChange};
use handler_types::egress::EgressDecision;
use handler_types::learn::{LearnView, LearnedHost};
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::sandbox::CreateSandbox;
use std::path::PathBuf;

async fn enforcing(world: &World, name: &str) -> anyhow::Result<Sandbox> {
    let spec = CreateSandbox {
        name: Some(name.into()),
        network: Some(filtered(&[])?),
        ..Default::default()
    };
    Sandbox::up(world, &spec).await
}

/// The status of a request from inside.
async fn status(sandbox: &Sandbox, host: &str) -> anyhow::Result<String> {
    let curl = format!("curl -sS -m 20 -o /dev/null -w '%{{http_code}}' http://{host}/");
    Ok(sandbox.sh(&curl).await?.stdout)
}

/// What was learnt of a host, once it is known with this decision.
async fn learnt(
    sandbox: &Sandbox,
    host: &str,
    decision: EgressDecision,
) -> anyhow::Result<LearnedHost> {
    eventually("the host to be learnt", LONG, || async {
        let view = sandbox.client.network_learn(&sandbox.id).await.ok()?;
        view.hosts
            .into_iter()
            .find(|learnt| learnt.host == host && learnt.decision == decision)
    })
    .await
}

/// Lines of the audit log that fit, once there are so many.
async fn kept(world: &World, wish: &AuditWish, count: usize) -> anyhow::Result<Vec<AuditRecord>> {
    eventually("lines of the audit log", LONG, || async {
        let page = world.client().audit(wish).await.ok()?;
        (page.records.len() >= count).then_some(page.records)
    })
    .await
}

fn changes(records: &[AuditRecord]) -> Vec<&PolicyChange> {
    records
        .iter()
        .filter_map(|record| match &record.what {
            AuditWhat::Policy { change } => Some(&**change),
            _ => None,
        })
        .collect()
}

fn files(world: &World) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(world.scratch().folder("data").join("audit"))? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    Ok(files)
}

async fn verdict(world: &World) -> anyhow::Result<AuditVerdict> {
    let output = world.cli(&["audit", "verify", "--json"]).await?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[tokio::test]
async fn what_was_denied_is_learnt_allowed_and_blocked_again() -> anyhow::Result<()> {
    if !has_tools("what_was_denied_is_learnt", &["curl", "python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let (origin, echo) = (HttpOrigin::start().await?, TcpOrigin::start().await?);
    let (web, tunnel) = (alias(origin.port()), alias(echo.port()));
    let sandbox = enforcing(&world, "learner").await?;
    assert_eq!(status(&sandbox, &web).await?, "403");
    assert_eq!(status(&sandbox, &web).await?, "403");
    let learnt_host = learnt(&sandbox, &web, EgressDecision::Denied).await?;
    assert_eq!(learnt_host.entry, Some(web.parse()?));
    assert!(!learnt_host.listed);
    let shown = world.cli_ok(&["network", "learn", "learner"]).await?;
    assert!(
        shown.contains("TO ALLOW IT") && shown.contains(&web),
        "{shown}"
    );
    // The beginning of the id will do, and everything that was learnt can be allowed at once.
    let prefix = &sandbox.id[..sandbox.id.len() - 1];
    let shown = world
        .cli_ok(&["network", "allow", prefix, "--learned"])
        .await?;
    assert!(shown.contains(&web), "{shown}");
    assert_eq!(status(&sandbox, &web).await?, "200");
    let learnt_host = learnt(&sandbox, &web, EgressDecision::Allowed).await?;
    assert!(learnt_host.listed && learnt_host.entry.is_none());
    assert!(learnt_host.count >= 3, "{learnt_host:?}");
    world
        .cli_ok(&["network", "allow", "learner", &tunnel])
        .await?;
    let program = tunnel_to(&tunnel);
    let process = sandbox
        .start(&format!("exec python3 -c \"{program}\""))
        .await?;
    let mut feed = sandbox.attach(process, None).await?;
    feed.until("open\n").await?;
    world
        .cli_ok(&["network", "block", "learner", &tunnel])
        .await?;
    let (rest, exit) = feed.rest().await?;
    assert_eq!((rest.as_slice(), exit.code), (&b"closed\n"[..], 0));
    assert_eq!(status(&sandbox, &web).await?, "200");
    let ended = AuditWish {
        sandbox: Some(sandbox.id.clone()),
        decision: Some(EgressDecision::Ended),
        host: Some(tunnel.clone()),
        ..AuditWish::default()
    };
    let ended = kept(&world, &ended, 1).await?;
    let AuditWhat::Egress { event } = &ended[0].what else {
        anyhow::bail!("{ended:?}");
    };
    let end = event.end.context("no end")?;
    assert_eq!((end.out_bytes, end.in_bytes), (4, 4));
    assert_eq!(event.reason.as_deref(), Some("policy"));
    Ok(())
}

#[tokio::test]
async fn the_enforcement_is_switched_and_what_has_no_list_says_what_to_do() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = enforcing(&world, "switched").await?;
    let shown = world.cli_ok(&["network", "log-only", "switched"]).await?;
    assert!(shown.starts_with("log-only"), "{shown}");
    let view = sandbox.client.sandbox(&sandbox.id).await?;
    let NetworkPolicy::Filtered { enforcement, .. } = view.network else {
        anyhow::bail!("{view:?}");
    };
    assert_eq!(enforcement, Enforcement::LogOnly);
    let shown = world.cli_ok(&["network", "enforce", "switched"]).await?;
    assert!(shown.starts_with("filtered"), "{shown}");
    let spec = CreateSandbox {
        name: Some("sealed".into()),
        network: Some(NetworkPolicy::None),
        ..Default::default()
    };
    Sandbox::up(&world, &spec).await?;
    for (args, wanted) in [
        (
            &["network", "allow", "sealed", "a.example:443"][..],
            "set `filtered` first",
        ),
        (&["network", "enforce", "sealed"], "set `filtered` first"),
        (
            &["network", "block", "switched", "a.example:443"],
            "not on the list",
        ),
        (
            &["network", "show", "nobody"],
            "no sandbox, session or agent `nobody`",
        ),
        (
            &["network", "allow", "switched", "a.example"],
            "has no port",
        ),
    ] {
        let output = world.cli(args).await?;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(wanted), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn changes_and_decisions_are_kept_over_a_killed_daemon_and_nobody_changes_them_unseen()
-> anyhow::Result<()> {
    if !has_tools("changes_and_decisions_are_kept", &["curl"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let origin = HttpOrigin::start().await?;
    let web = alias(origin.port());
    let sandbox = enforcing(&world, "audited").await?;
    status(&sandbox, &web).await?;
    world.cli_ok(&["network", "allow", "audited", &web]).await?;
    let about = AuditWish {
        sandbox: Some(sandbox.id.clone()),
        host: Some(web.clone()),
        ..AuditWish::default()
    };
    // Refused, and put on the list.
    let before = kept(&world, &about, 2).await?;
    let change = changes(&before).pop().context("no change")?;
    assert_eq!(change.added, [web.parse()?]);
    assert!(
        matches!(&change.actor, Actor::Client { name } if name.starts_with("handler/")),
        "{change:?}"
    );
    world.kill9()?;
    // Killed while it wrote a line.
    let path = files(&world)?.pop().context("no file")?;
    let whole = std::fs::read(&path)?;
    std::fs::write(&path, [&whole[..], b"{\"seq\":99,\"t\""].concat())?;
    world.start_daemon().await?;
    assert_eq!(status(&sandbox, &web).await?, "200");
    // Allowed, and ended; what was there before is neither lost nor there twice.
    let after = kept(&world, &about, 4).await?;
    assert_eq!(after[..2], before[..]);
    assert_eq!(after.len(), 4, "{after:#?}");
    let found = verdict(&world).await?;
    assert!(found.ok && found.missed == 0, "{found:?}");
    let torn = world.cli_ok(&["audit"]).await?;
    assert!(torn.contains("torn"), "{torn}");
    let exported = world.cli(&["audit", "export"]).await?.stdout;
    assert!(exported.starts_with(&whole));

    let mut bytes = std::fs::read(&path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes)?;
    let found = verdict(&world).await?;
    let broken = found.broken.context("nothing was noticed")?;
    assert!(!found.ok && broken.line > 0, "{broken:?}");
    assert!(!world.cli(&["audit", "verify"]).await?.status.success());
    Ok(())
}

#[tokio::test]
async fn lines_come_as_they_are_written_each_once() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = enforcing(&world, "followed").await?;
    let wish = AuditWish {
        sandbox: Some(sandbox.id.clone()),
        ..AuditWish::default()
    };
    let mut lines = world.client().follow_audit(&wish).await?;
    let mut seen = Vec::new();
    // Made; then one change after the other.
    for number in 0..5 {
        let line = tokio::time::timeout(LONG, lines.next()).await??;
        seen.push(line.context("the stream ended")?);
        let entry = format!("h{number}.example:443");
        world
            .cli_ok(&["network", "allow", "followed", &entry])
            .await?;
    }
    let added: Vec<String> = changes(&seen)
        .iter()
        .map(|change| change.added.iter().map(ToString::to_string).collect())
        .collect();
    let wanted = [
        "",
        "h0.example:443",
        "h1.example:443",
        "h2.example:443",
        "h3.example:443",
    ];
    assert_eq!(added, wanted);
    Ok(())
}

#[tokio::test]
async fn what_is_learnt_is_there_again_after_a_restart() -> anyhow::Result<()> {
    if !has_tools("what_is_learnt_is_there_again", &["curl"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let sandbox = enforcing(&world, "kept").await?;
    status(&sandbox, "asked.example").await?;
    learnt(&sandbox, "asked.example:80", EgressDecision::Denied).await?;
    world.restart().await?;
    let again = Sandbox {
        client: world.client(),
        ..sandbox
    };
    learnt(&again, "asked.example:80", EgressDecision::Denied).await?;
    let json = world
        .cli_ok(&["network", "learn", "kept", "--json"])
        .await?;
    let view: LearnView = serde_json::from_str(&json)?;
    assert_eq!(view.hosts.len(), 1, "{view:?}");
    Ok(())
}
