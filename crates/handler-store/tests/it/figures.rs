//! Measures the figures the design asks for and prints them. Run with
//! `cargo test -p handler-store [--release] --test it figures -- --ignored --nocapture --test-threads=1`.

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use crate::fixtures::{sandbox, store};
use handler_store::log::{EventLog, seq_of};
use handler_store::rows::{PageRequest, SandboxFilter};
use serde_json::json;
use std::time::{Duration, Instant};

fn build() -> &'static str {
    if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement, not a check"]
fn event_log_append_replay_and_seek() {
    const LINES: u64 = 1_000_000;
    let dir = tempfile::tempdir().expect("temp folder");
    let log = EventLog::open(&dir.path().join("events.ndjson")).expect("open");
    let event = json!({
        "kind": "acp", "direction": "from_agent",
        "message": {"jsonrpc": "2.0", "method": "session/update", "params": {
            "sessionId": "0123456789", "update": {"sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "a few words of an answer, as they come"}}}},
    });
    let event = event.as_object().expect("object");
    let times: Vec<Duration> = (0..10_000)
        .map(|_| {
            let start = Instant::now();
            log.append(event).expect("append");
            start.elapsed()
        })
        .collect();
    println!("{}: append, median of 10 000: {:?}", build(), median(times));
    let batch = vec![event.clone(); 1000];
    while log.last_seq() < LINES {
        log.append_batch(&batch).expect("batch");
    }
    for round in 1..=3 {
        let start = Instant::now();
        let mut reader = log.read_from(0, u64::MAX);
        let mut bytes = 0;
        while let Some(block) = reader.next_block().expect("block") {
            bytes += block.len();
        }
        let rate = bytes as f64 / 1e6 / start.elapsed().as_secs_f64();
        println!(
            "{}: replay by blocks, round {round}: {rate:.0} MB/s",
            build()
        );
        let start = Instant::now();
        let bytes: usize = log
            .read_from(0, u64::MAX)
            .map(|line| line.expect("line").len() + 1)
            .sum();
        let rate = bytes as f64 / 1e6 / start.elapsed().as_secs_f64();
        println!(
            "{}: replay by lines, round {round}: {rate:.0} MB/s",
            build()
        );
    }
    let times: Vec<Duration> = (0..1000)
        .map(|n| {
            let after = n * 997 % LINES;
            let start = Instant::now();
            let line = log.read_from(after, 1).next().expect("line").expect("read");
            let took = start.elapsed();
            assert_eq!(seq_of(&line), Some(after + 1));
            took
        })
        .collect();
    let worst = times.iter().max().copied();
    println!(
        "{}: seek in {LINES} lines: median {:?}, worst {worst:?}",
        build(),
        median(times)
    );
    let path = log.path().to_owned();
    drop(log);
    let start = Instant::now();
    drop(EventLog::open(&path).expect("open"));
    println!("{}: open with index: {:?}", build(), start.elapsed());
    std::fs::remove_file(path.with_extension("ndjson.idx")).expect("remove");
    let start = Instant::now();
    drop(EventLog::open(&path).expect("open"));
    println!("{}: open without index: {:?}", build(), start.elapsed());
}

#[tokio::test]
#[ignore = "a measurement, not a check"]
async fn first_page_of_ten_thousand_sandboxes() {
    let temp = store();
    let sandboxes = temp.store.sandboxes();
    let start = Instant::now();
    for n in 0..10_000 {
        let mut row = sandbox(n);
        row.spec.labels.insert("team".into(), format!("t{}", n % 7));
        sandboxes.insert(row).await.expect("insert");
    }
    println!("{}: insert: {:?} each", build(), start.elapsed() / 10_000);
    let labelled = SandboxFilter {
        labels: vec![("team".to_owned(), "t3".to_owned())],
        ..SandboxFilter::default()
    };
    for (name, filter) in [("all", SandboxFilter::default()), ("by label", labelled)] {
        let mut times = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            let page = sandboxes
                .list(filter.clone(), PageRequest::default())
                .await
                .expect("page");
            times.push(start.elapsed());
            assert_eq!(page.items.len(), 50);
        }
        println!("{}: first page, {name}: {:?}", build(), median(times));
    }
}
