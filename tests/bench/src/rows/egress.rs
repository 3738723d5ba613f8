//! A blind tunnel through the filter, against one plain relay: throughput and added latency. The client
//! stands where the guest's forwarder would: at the filter's Unix listener.

use super::sandbox;
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{Pairs, ms_since, pairs};
use crate::origin::{Origin, Wire};
use crate::processor::used_ms;
use crate::relay::Relay;
use anyhow::{Context as _, ensure};
use handler_types::network::{Enforcement, HOST_ALIAS, NetworkPolicy};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest answer to CONNECT.
const MAX_HEAD: usize = 4096;
/// How long a silent wire is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Both ways to the origin.
#[derive(Debug)]
struct Ways {
    filter: PathBuf,
    relay: PathBuf,
    target: String,
    filter_pid: u32,
    relay_pid: u32,
}

impl Ways {
    /// What filter and relay have used of the processor.
    fn processor_ms(&self) -> anyhow::Result<(f64, f64)> {
        Ok((used_ms(self.filter_pid)?, used_ms(self.relay_pid)?))
    }

    fn plain(&self) -> anyhow::Result<UnixStream> {
        connect(&self.relay)
    }

    /// A tunnel that stands.
    fn tunnel(&self) -> anyhow::Result<UnixStream> {
        let mut stream = connect(&self.filter)?;
        let target = &self.target;
        write!(
            stream,
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
        )?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            ensure!(
                stream.read(&mut byte)? == 1 && head.len() < MAX_HEAD,
                "no answer to CONNECT"
            );
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head);
        ensure!(
            head.starts_with("HTTP/1.1 200"),
            "the filter answered {:?}",
            head.lines().next()
        );
        Ok(stream)
    }
}

fn connect(path: &Path) -> anyhow::Result<UnixStream> {
    let stream = UnixStream::connect(path).with_context(|| path.display().to_string())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let world = context.world().await?;
    let client = world.client();
    let origin = Origin::start()?;
    let target = format!("{HOST_ALIAS}:{}", origin.port());
    let allow = vec![target.parse()?];
    let network = NetworkPolicy::Filtered {
        allow,
        enforcement: Enforcement::Enforce,
    };
    let view = sandbox::create(&client, Some(network)).await?;
    let run = world.scratch().folder("run");
    let relay = Relay::start(&run.join("relay.sock"), &origin.address())?;
    let ways = Ways {
        filter: run.join("eg").join(view.id.as_str()).join("proxy.sock"),
        relay: run.join("relay.sock"),
        target,
        filter_pid: sandbox::filter_pid(&world)?,
        relay_pid: relay.pid(),
    };
    let mut lines = throughput(context, &ways).await?;
    lines.extend(latency(context, &ways).await?);
    Ok(lines)
}

async fn throughput(context: &Context, ways: &Ways) -> anyhow::Result<Vec<Line>> {
    // Many short rounds: a busy moment of the machine then falls on both sides.
    let amount: u64 = context.pick(64 << 20, 16 << 20);
    let rounds = context.pick(60, 2);
    let before = ways.processor_ms()?;
    let down = pairs(
        1,
        rounds,
        async || Wire::new(ways.tunnel()?).download(amount),
        async || Wire::new(ways.plain()?).download(amount),
    )
    .await?;
    let between = ways.processor_ms()?;
    let up = pairs(
        1,
        rounds,
        async || Wire::new(ways.tunnel()?).upload(amount),
        async || Wire::new(ways.plain()?).upload(amount),
    )
    .await?;
    let after = ways.processor_ms()?;
    let rate = |id: &str, what: &str, pairs: &Pairs| {
        Line::new(id, what, Unit::MbPerS, &pairs.ours)
            .against("plain relay", &pairs.theirs)
            .promised(Target::Ratio(Bound::AtLeast(0.8)))
    };
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let gigabytes = amount as f64 * (rounds + 1) as f64 / 1e9;
    let cost = |id: &str, from: (f64, f64), to: (f64, f64)| {
        Line::new(
            id,
            "  processor time",
            Unit::MsPerGb,
            &[(to.0 - from.0) / gigabytes],
        )
        .against("plain relay", &[(to.1 - from.1) / gigabytes])
    };
    Ok(vec![
        rate("egress/down", "egress tunnel, to the sandbox", &down),
        cost("egress/down-cost", before, between),
        rate("egress/up", "egress tunnel, from the sandbox", &up),
        cost("egress/up-cost", between, after),
    ])
}

async fn latency(context: &Context, ways: &Ways) -> anyhow::Result<Vec<Line>> {
    let mut tunnel = Wire::new(ways.tunnel()?);
    let mut plain = Wire::new(ways.plain()?);
    tunnel.echo(100)?;
    plain.echo(100)?;
    let mut trips = Pairs::default();
    for _ in 0..context.pick(50, 5) {
        trips.ours.extend(tunnel.echo_again(100)?);
        trips.theirs.extend(plain.echo_again(100)?);
    }
    let opened = pairs(
        5,
        context.pick(300, 20),
        async || {
            let began = Instant::now();
            let mut wire = Wire::new(ways.tunnel()?);
            wire.echo(1)?;
            Ok(ms_since(began))
        },
        async || {
            let began = Instant::now();
            let mut wire = Wire::new(ways.plain()?);
            wire.echo(1)?;
            Ok(ms_since(began))
        },
    )
    .await?;
    Ok(vec![
        Line::new(
            "egress/latency",
            "egress tunnel, round trip",
            Unit::Us,
            &trips.ours,
        )
        .against("plain relay", &trips.theirs)
        .promised(Target::Added(Bound::AtMost(100.0))),
        Line::new(
            "egress/open",
            "  opened, first round trip",
            Unit::Ms,
            &opened.ours,
        )
        .against("plain relay", &opened.theirs),
    ])
}
