//! A very long history: opened at its end at once, read from any place, and no burden on the daemon.

use crate::sessions::log;
use crate::sessions::stage::{LONG, Stage};
use crate::sessions::viewer::{numbers, said};
use crate::support::is_soak;
use anyhow::{Context as _, ensure};
use handler_testkit::{World, eventually};
use handler_types::session::SessionState;
use std::io::Write as _;
use std::time::Instant;

/// How much the daemon may grow over a small daemon that serves the same session, KiB.
const GROWTH: u64 = 48 * 1024;

/// Puts more history behind a log's end, as a session of weeks has it.
fn lengthen(world: &World, id: &str, by: u64) -> anyhow::Result<u64> {
    let last = log::events(world, id)?.len() as u64;
    let path = log::folder(world, id).join("events.ndjson");
    let file = std::fs::File::options().append(true).open(path)?;
    let mut file = std::io::BufWriter::new(file);
    for seq in last + 1..=last + by {
        writeln!(
            file,
            r#"{{"seq":{seq},"t":"2026-01-01T00:00:00.000Z","kind":"update","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"filler {seq} "}}}}}}"#
        )?;
    }
    file.flush()?;
    Ok(last + by)
}

/// Memory of the daemon that is its own and no file's.
fn anonymous_kib(world: &World) -> anyhow::Result<u64> {
    let pid = world.daemon_pid().context("no daemon")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.context("RssAnon")?.parse()?)
}

#[tokio::test]
async fn a_long_history_is_opened_at_its_end_and_read_from_any_place() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a long history", &["pi"]).await? else {
        return Ok(());
    };
    let mut viewer = stage.open(&stage.request("pi")).await?;
    viewer.turn("PLAN:text:At first.").await?;
    let id = viewer.id.clone();
    drop(viewer);
    stage.client().stop_session(&id).await?;
    stage.reaches(&id, SessionState::Stopped).await?;
    let before = anonymous_kib(&stage.world)?;
    ensure!(stage.world.stop_daemon().await?.success());
    let count = if is_soak() { 1_000_000 } else { 50_000 };
    let last = lengthen(&stage.world, &id, count)?;
    stage.world.start_daemon().await?;

    // The first attachment starts the agent program as well; the second shows what opening costs.
    drop(stage.attach(&id, last).await?);
    let begun = Instant::now();
    let mut end = stage.attach(&id, last).await?;
    let opened = begun.elapsed();
    ensure!(said(&end.seen).is_empty(), "nothing is after the end");
    let (words, _) = end.turn("PLAN:text:At last.").await?;
    ensure!(words == "At last.", "{words}");
    let some = stage.attach(&id, last - 10).await?;
    ensure!(said(&some.seen).starts_with(&format!("filler {} ", last - 9)));
    ensure!(said(&some.seen).ends_with("At last."));
    let found = eventually("the newest words are found", LONG, || async {
        let query = [("q", "\"At last\""), ("session", id.as_str())];
        let hits = stage.client().search_sessions(&query).await.ok()?.items;
        (!hits.is_empty()).then_some(hits.len())
    })
    .await?;
    let grown = anonymous_kib(&stage.world)?.saturating_sub(before);
    // For who runs it by hand.
    writeln!(
        std::io::stderr(),
        "{count} events: attached at the end in {opened:?}; {found} found; the daemon grew {grown} KiB"
    )?;
    ensure!(grown < GROWTH, "the daemon grew {grown} KiB");
    if !is_soak() {
        let all = stage.attach(&id, 0).await?;
        ensure!(numbers(&all.seen).len() as u64 >= count, "all of it");
    }
    Ok(())
}
