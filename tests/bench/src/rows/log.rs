//! The event log, called directly: append one event, replay all, seek to a number.

use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::{mb_per_s, ms_since, us_since};
use anyhow::{Context as _, ensure};
use handler_store::EventLog;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

/// Bytes the plain reader reads at once, as the log's own reader.
const BLOCK: usize = 256 * 1024;

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let folder = tempfile::tempdir()?;
    let mut lines = vec![append(context, folder.path())?];
    let path = folder.path().join("long.ndjson");
    let count = context.pick(1_000_000, 50_000);
    let log = fill(&path, count)?;
    lines.push(replay(context, &log, &path)?);
    lines.push(seek(context, &log, count)?);
    drop(log);
    lines.push(open(context, &path)?);
    Ok(lines)
}

/// An event as an agent's chunk of a message makes it: about 300 bytes.
fn event(number: u64) -> Map<String, Value> {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(3);
    let message = json!({
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": { "sessionId": "0123456789abcdef", "update": { "n": number, "text": text } },
    });
    let fields = [
        ("kind", json!("acp")),
        ("from", json!("agent")),
        ("message", message),
    ];
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// One event appended, against the same bytes written to a file as they are.
fn append(context: &Context, folder: &Path) -> anyhow::Result<Line> {
    let log = EventLog::open(&folder.join("short.ndjson"))?;
    let plain = File::options()
        .create(true)
        .append(true)
        .open(folder.join("plain"))?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let event = event(0);
    let bytes = serde_json::to_vec(&event)?;
    for round in 0..context.pick(20_000, 1_000) {
        let began = Instant::now();
        log.append(&event)?;
        let our = us_since(began);
        let began = Instant::now();
        std::io::Write::write_all(&mut &plain, &bytes)?;
        let their = us_since(began);
        if round >= 100 {
            ours.push(our);
            theirs.push(their);
        }
    }
    Ok(
        Line::new("log/append", "event log: append", Unit::Us, &ours)
            .against("plain write", &theirs)
            .promised(Target::Value(Bound::AtMost(50.0))),
    )
}

fn fill(path: &Path, count: u64) -> anyhow::Result<EventLog> {
    let log = EventLog::open(path)?;
    let batch: Vec<_> = (0..1000).map(event).collect();
    for _ in 0..count / 1000 {
        log.append_batch(&batch)?;
    }
    ensure!(
        log.last_seq() == count,
        "{} events instead of {count}",
        log.last_seq()
    );
    Ok(log)
}

/// All events read, against the file read as it is.
fn replay(context: &Context, log: &EventLog, path: &Path) -> anyhow::Result<Line> {
    let bytes = log.end().bytes;
    let plain = File::open(path)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..context.pick(9, 3) {
        let began = Instant::now();
        let mut reader = log.read_from(0, u64::MAX);
        let mut read = 0;
        while let Some(block) = reader.next_block()? {
            read += block.len() as u64;
        }
        ensure!(read == bytes, "{read} of {bytes} bytes replayed");
        let our = mb_per_s(bytes, began.elapsed());
        let began = Instant::now();
        read_plain(&plain, bytes)?;
        let their = mb_per_s(bytes, began.elapsed());
        if round > 0 {
            ours.push(our);
            theirs.push(their);
        }
    }
    let amount = bytes / 1_000_000;
    Ok(
        Line::new("log/replay", "event log: replay", Unit::MbPerS, &ours)
            .against("plain read", &theirs)
            .promised(Target::Value(Bound::AtLeast(300.0)))
            .noted(format!("{amount} MB, in the page cache")),
    )
}

fn read_plain(file: &File, bytes: u64) -> anyhow::Result<()> {
    let mut buffer = vec![0; BLOCK];
    let mut at = 0;
    while at < bytes {
        let read = file.read_at(&mut buffer, at)?;
        ensure!(read > 0, "the file is shorter than the log");
        at += read as u64;
    }
    Ok(())
}

/// The event with a number read, numbers spread over the whole log.
fn seek(context: &Context, log: &EventLog, count: u64) -> anyhow::Result<Line> {
    let mut samples = Vec::new();
    // A step that has no factor in common with the count reaches every part in no order.
    let step = 618_033;
    let mut number = 0;
    for _ in 0..context.pick(2_000, 200) {
        number = (number + step) % count;
        let began = Instant::now();
        let line = log.read_from(number, 1).next().context("no such event")??;
        samples.push(ms_since(began));
        let found = handler_store::log::seq_of(&line);
        ensure!(
            found == Some(number + 1),
            "event {found:?} instead of {}",
            number + 1
        );
    }
    Ok(Line::new("log/seek", "event log: seek", Unit::Ms, &samples)
        .promised(Target::Value(Bound::AtMost(10.0)))
        .noted(format!("in {count} events")))
}

fn open(context: &Context, path: &Path) -> anyhow::Result<Line> {
    let mut samples = Vec::new();
    for _ in 0..context.pick(20, 3) {
        let began = Instant::now();
        let log = EventLog::open(path)?;
        samples.push(ms_since(began));
        drop(log);
    }
    Ok(Line::new(
        "log/open",
        "  open a long log",
        Unit::Ms,
        &samples,
    ))
}
