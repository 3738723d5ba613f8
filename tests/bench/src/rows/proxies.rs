//! The filter against proxies that people know, in the same run: blind tunnels against tinyproxy, requests whose
//! secret is put in against mitmproxy with a script that does the same. Ours is asked at its Unix listener, where the
//! guest's forwarder stands; theirs over loopback TCP.

mod origin;
mod peer;
mod way;

use super::sandbox;
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{ms_since, pairs};
use crate::memory::resident_mib;
use crate::origin::{Origin, Wire};
use anyhow::{Context as _, ensure};
use handler_client::Client;
use handler_types::api::SecretRequest;
use handler_types::network::{Enforcement, HOST_ALIAS, NetworkPolicy};
use handler_types::sandbox::{CreateSandbox, SandboxView, SecretGrant};
use peer::Peer;
use std::time::Instant;
use way::Way;

/// What the origin must receive.
const VALUE: &str = "sk-value-0123456789abcdef0123456789abcdef";

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let world = context.world().await?;
    let client = world.client();
    let (origin, web) = (Origin::start()?, origin::start(VALUE)?);
    let view = sandbox(&client, origin.port(), web).await?;
    let phantom = sandbox::exec(&client, view.id.as_str(), &["printenv", "TOKEN"]).await?;
    let phantom = phantom.stdout.trim().to_owned();
    let listener = world
        .scratch()
        .folder("run")
        .join("eg")
        .join(view.id.as_str());
    let ours = |port: u16| Way::unix(listener.join("proxy.sock"), format!("{HOST_ALIAS}:{port}"));
    let filter = sandbox::filter_pid(&world)?;
    let folder = world.scratch().folder("run");
    let mut lines = match Peer::tinyproxy(&folder) {
        Ok(peer) => tunnels(context, &ours(origin.port()), &peer, origin.port(), filter).await?,
        Err(why) => vec![absent("tinyproxy", &why)],
    };
    lines.extend(match Peer::mitmproxy(&folder, &phantom, VALUE) {
        Ok(peer) => swaps(context, &ours(web), &peer, web, &phantom, filter).await?,
        Err(why) => vec![absent("mitmproxy", &why)],
    });
    Ok(lines)
}

fn absent(name: &str, why: &anyhow::Error) -> Line {
    let id = format!("proxies/{name}");
    Line::new(&id, &format!("filter against {name}"), Unit::Ms, &[])
        .without(name, &format!("{why:#}"))
}

/// One that may reach both, and whose secret goes to the second.
async fn sandbox(client: &Client, tunnel: u16, web: u16) -> anyhow::Result<SandboxView> {
    let secret = SecretRequest {
        value: VALUE.to_owned(),
        description: None,
    };
    client.set_secret("bench/proxies", &secret).await?;
    let grant = SecretGrant {
        secret: "bench/proxies".to_owned(),
        hosts: vec![format!("{HOST_ALIAS}:{web}").parse()?],
    };
    let request = CreateSandbox {
        network: Some(NetworkPolicy::Filtered {
            allow: vec![format!("{HOST_ALIAS}:{tunnel}").parse()?],
            enforcement: Enforcement::Enforce,
        }),
        secrets: [("TOKEN".to_owned(), grant)].into(),
        ..CreateSandbox::default()
    };
    client
        .create_sandbox(&request)
        .await
        .context("create a sandbox")
}

async fn tunnels(
    context: &Context,
    ours: &Way,
    peer: &Peer,
    port: u16,
    filter: u32,
) -> anyhow::Result<Vec<Line>> {
    let theirs = peer.way(port);
    let amount: u64 = context.pick(64 << 20, 4 << 20);
    let down = pairs(
        1,
        context.pick(30, 2),
        async || Wire::new(ours.tunnel()?).download(amount),
        async || Wire::new(theirs.tunnel()?).download(amount),
    )
    .await?;
    let first = |way: &Way| -> anyhow::Result<f64> {
        let began = Instant::now();
        Wire::new(way.tunnel()?).echo(1)?;
        Ok(ms_since(began))
    };
    let opened = pairs(
        5,
        context.pick(200, 5),
        async || first(ours),
        async || first(&theirs),
    )
    .await?;
    let many: usize = context.pick(2_000, 20);
    let (our_memory, our_time) = crowd(ours, many, filter)?;
    let (their_memory, their_time) = crowd(&theirs, many, peer.pid())?;
    let name = peer.name();
    Ok(vec![
        Line::new(
            "proxies/tunnel",
            "tunnel, to the sandbox",
            Unit::MbPerS,
            &down.ours,
        )
        .against(name, &down.theirs),
        Line::new(
            "proxies/open",
            "  opened, first round trip",
            Unit::Ms,
            &opened.ours,
        )
        .against(name, &opened.theirs),
        Line::new(
            "proxies/crowd",
            &format!("  {many} tunnels at once: opened"),
            Unit::Ms,
            &[our_time],
        )
        .against(name, &[their_time]),
        Line::new(
            "proxies/crowd-memory",
            "  … resident with them",
            Unit::Mib,
            &[our_memory],
        )
        .against(name, &[their_memory]),
    ])
}

/// Opens so many tunnels, each used once and kept; resident memory then, MiB, and how long it took, ms.
fn crowd(way: &Way, many: usize, pid: u32) -> anyhow::Result<(f64, f64)> {
    let began = Instant::now();
    let mut open = Vec::with_capacity(many);
    for _ in 0..many {
        let mut wire = Wire::new(way.tunnel()?);
        wire.echo(1)?;
        open.push(wire);
    }
    let took = ms_since(began);
    let memory = resident_mib(pid)?;
    for wire in &mut open {
        ensure!(wire.echo_again(1)?.len() == 1);
    }
    Ok((memory, took))
}

async fn swaps(
    context: &Context,
    ours: &Way,
    peer: &Peer,
    port: u16,
    phantom: &str,
    filter: u32,
) -> anyhow::Result<Vec<Line>> {
    let theirs = peer.way(port);
    let (mut ours_kept, mut theirs_kept) = (ours.requests(phantom)?, theirs.requests(phantom)?);
    let small = pairs(
        20,
        context.pick(500, 10),
        async || ours_kept.ask(0).map(|time| time * 1e3),
        async || theirs_kept.ask(0).map(|time| time * 1e3),
    )
    .await?;
    let amount: usize = context.pick(16 << 20, 1 << 20);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = |milliseconds: f64| amount as f64 / 1e3 / milliseconds;
    let big = pairs(
        1,
        context.pick(20, 2),
        async || ours_kept.ask(amount).map(rate),
        async || theirs_kept.ask(amount).map(rate),
    )
    .await?;
    let name = peer.name();
    Ok(vec![
        Line::new(
            "proxies/swap",
            "request with a secret put in",
            Unit::Us,
            &small.ours,
        )
        .against(name, &small.theirs)
        .promised(Target::Ratio(Bound::AtMost(0.1))),
        Line::new(
            "proxies/mask",
            "  answer looked through for it",
            Unit::MbPerS,
            &big.ours,
        )
        .against(name, &big.theirs)
        .promised(Target::Ratio(Bound::AtLeast(10.0))),
        Line::new(
            "proxies/memory",
            "  resident then",
            Unit::Mib,
            &[resident_mib(filter)?],
        )
        .against(name, &[resident_mib(peer.pid())?]),
    ])
}
