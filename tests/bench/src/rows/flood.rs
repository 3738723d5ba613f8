//! A program that prints a gigabyte while its viewer stands still: the daemon must not keep it. What the viewer
//! missed is left out, counted, and made good by a redraw.

use super::{sandbox, terminal};
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::mb_per_s;
use crate::memory::resident_mib;
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use handler_client::{Client, Socket};
use std::time::{Duration, Instant};

/// How often the daemon's memory is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Has a program print so many bytes to a terminal, from the moment its viewer is there: what came earlier would be
/// in the viewer's first screen, and neither shown nor left out.
async fn begin(client: &Client, id: &str, amount: u64) -> anyhow::Result<Socket> {
    let script = format!("stty -echo; printf ready; read go; exec head -c {amount} /dev/zero");
    let mut socket = terminal::open(client, id, &["sh", "-c", &script]).await?;
    let mut seen = Vec::new();
    while !seen.ends_with(b"ready") {
        seen.extend_from_slice(&terminal::shown(&mut socket).await?);
    }
    socket.send_binary(Bytes::from_static(b"\n")).await?;
    Ok(socket)
}

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let world = context.world().await?;
    let client = world.client();
    let pid = world.daemon_pid().context("no daemon")?;
    let view = sandbox::create(&client, None).await?;
    sandbox::exec(&client, view.id.as_str(), &["true"]).await?;
    let amount: u64 = context.pick(1 << 30, 16 << 20);
    let before = resident_mib(pid)?;
    let mut socket = begin(&client, view.id.as_str(), amount).await?;
    let mut highest = before;
    let stalled = Instant::now();
    while stalled.elapsed() < Duration::from_millis(context.pick(5_000, 500)) {
        tokio::time::sleep(LOOK).await;
        highest = highest.max(resident_mib(pid)?);
    }
    let while_stalled = highest - before;
    let began = Instant::now();
    let mut looked = began;
    let (mut read, mut left_out) = (0, 0);
    while let Some((skipped, bytes)) = terminal::output(&mut socket).await? {
        read += bytes.len() as u64;
        left_out += skipped;
        if looked.elapsed() >= LOOK {
            highest = highest.max(resident_mib(pid)?);
            looked = Instant::now();
        }
    }
    let rate = mb_per_s(read, began.elapsed());
    let all = read + left_out;
    ensure!(
        all == amount,
        "{all} of {amount} bytes came or were left out"
    );
    Ok(vec![
        Line::new(
            "flood/growth",
            "flood, stalled viewer: daemon grows",
            Unit::Mib,
            &[highest - before],
        )
        .promised(Target::Value(Bound::AtMost(16.0)))
        .noted(format!(
            "{} MiB, {} of them left out; {while_stalled:.1} MiB while stalled",
            amount >> 20,
            left_out >> 20
        )),
        Line::new("flood/rate", "  read out afterwards", Unit::MbPerS, &[rate]),
    ])
}
