//! Event logs: numbering, reading while appending, seeking, the index.

use handler_store::log::{EventLog, LogError, MAX_LINE, seq_of};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

pub(crate) fn event(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

pub(crate) fn text(n: u64) -> Map<String, Value> {
    event(json!({"kind": "text", "n": n, "text": format!("line {n}: ä\n\"quoted\"")}))
}

pub(crate) fn index_of(path: &Path) -> PathBuf {
    path.with_extension("ndjson.idx")
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temp folder");
    let path = dir.path().join("events.ndjson");
    (dir, path)
}

pub(crate) fn seqs(log: &EventLog, after: u64) -> Vec<u64> {
    log.read_from(after, u64::MAX)
        .map(|line| seq_of(&line.expect("line")).expect("number"))
        .collect()
}

#[test]
fn lines_are_numbered_timed_and_read_back() {
    let (_dir, path) = temp();
    let log = EventLog::open(&path).expect("open");
    assert_eq!(log.last_seq(), 0);
    assert!(seqs(&log, 0).is_empty());
    assert_eq!(log.append(&text(1)).expect("append"), 1);
    let batch = [text(2), event(json!({"z": null, "kind": "odd"})), text(4)];
    assert_eq!(log.append_batch(&batch).expect("batch"), 4);
    assert_eq!(log.append_batch(&[]).expect("nothing"), 4);
    let lines: Vec<Value> = log
        .read_from(0, u64::MAX)
        .map(|line| serde_json::from_slice(&line.expect("line")).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0]["seq"], 1);
    assert_eq!(lines[0]["kind"], "text");
    assert_eq!(lines[0]["text"], "line 1: ä\n\"quoted\"");
    assert!(lines[0]["t"].as_str().expect("time").ends_with('Z'));
    let keys: Vec<&String> = lines[2].as_object().expect("object").keys().collect();
    assert_eq!(keys, ["seq", "t", "kind", "z"]);
    assert_eq!(
        std::fs::read_to_string(&path)
            .expect("file")
            .lines()
            .count(),
        4
    );
}

#[test]
fn what_is_no_event_is_refused_and_uses_no_number() {
    let (_dir, path) = temp();
    let log = EventLog::open(&path).expect("open");
    for wrong in [
        json!({}),
        json!({"kind": 1}),
        json!({"kind": "x", "seq": 5}),
        json!({"kind": "x", "t": "now"}),
    ] {
        let batch = [text(1), event(wrong.clone())];
        let error = log.append_batch(&batch).expect_err("no event");
        assert!(matches!(error, LogError::NotAnEvent { .. }), "{wrong}");
    }
    let long = event(json!({"kind": "x", "text": "y".repeat(MAX_LINE)}));
    assert!(matches!(log.append(&long), Err(LogError::TooLong { .. })));
    assert_eq!(log.append(&text(1)).expect("append"), 1);
    let fits = event(json!({"kind": "x", "text": "y".repeat(MAX_LINE - 200)}));
    assert_eq!(log.append(&fits).expect("append"), 2);
    assert_eq!(log.append(&text(3)).expect("append"), 3);
    assert_eq!(seqs(&log, 0), [1, 2, 3]);
    drop(log);
    let log = EventLog::open(&path).expect("open again");
    assert_eq!(seqs(&log, 1), [2, 3]);
}

#[test]
fn reading_starts_after_any_number_and_ends_at_the_limit() {
    let (_dir, path) = temp();
    let log = EventLog::open(&path).expect("open");
    let events: Vec<_> = (1..=2000).map(text).collect();
    for chunk in events.chunks(7) {
        log.append_batch(chunk).expect("batch");
    }
    for after in [0, 1, 255, 256, 257, 511, 512, 513, 1000, 1998, 1999] {
        let got = seqs(&log, after);
        assert_eq!(got.first(), Some(&(after + 1)));
        assert_eq!(got.len() as u64, 2000 - after);
    }
    for after in [2000, 2001, u64::MAX] {
        assert!(seqs(&log, after).is_empty(), "{after}");
    }
    // By limited pieces, each from where the last ended.
    for limit in [0, 1, 100, 333, 5000, 1_000_000] {
        let mut after = 0;
        while after < 2000 {
            let mut reader = log.read_from(after, limit);
            let mut bytes = 0;
            let mut first = None;
            while let Some(block) = reader.next_block().expect("block") {
                bytes += block.len() as u64;
                for line in block.split_inclusive(|b| *b == b'\n') {
                    after += 1;
                    assert_eq!(seq_of(line), Some(after));
                    first.get_or_insert(line.len() as u64);
                }
            }
            let first = first.expect("at least one line");
            assert!(bytes <= limit.max(first), "{bytes} of {limit}");
        }
    }
    let last: Vec<u64> = log
        .tail(3)
        .map(|line| seq_of(&line.expect("line")).expect("number"))
        .collect();
    assert_eq!(last, [1998, 1999, 2000]);
    assert_eq!(log.tail(0).count(), 0);
    assert_eq!(log.tail(u64::MAX).count(), 2000);
}

#[test]
fn a_log_goes_on_where_it_ended_and_belongs_to_one() {
    let (_dir, path) = temp();
    let log = EventLog::open(&path).expect("open");
    log.append_batch(&(1..=600).map(text).collect::<Vec<_>>())
        .expect("batch");
    assert!(matches!(
        EventLog::open(&path),
        Err(LogError::AlreadyOpen { .. })
    ));
    log.sync().expect("sync");
    drop(log);
    let log = EventLog::open(&path).expect("open again");
    assert_eq!(log.last_seq(), 600);
    assert_eq!(log.append(&text(601)).expect("append"), 601);
    assert_eq!(seqs(&log, 598), [599, 600, 601]);
}

#[test]
fn a_missing_wrong_or_cut_index_is_made_anew() {
    let (_dir, path) = temp();
    let log = EventLog::open(&path).expect("open");
    log.append_batch(&(1..=3000).map(text).collect::<Vec<_>>())
        .expect("batch");
    drop(log);
    let index = index_of(&path);
    let good = std::fs::read(&index).expect("index");
    assert!(good.len() > 8 + 10 * 16, "about one entry per 256 lines");
    let mut shifted = good.clone();
    let last = shifted.len() - 8;
    shifted[last] ^= 1;
    let mut wrong_seq = good.clone();
    wrong_seq[8 + 5 * 16] = 0xc1;
    wrong_seq[8 + 5 * 16 + 1] = 0x04;
    let variants: Vec<Option<Vec<u8>>> = vec![
        None,
        Some(Vec::new()),
        Some(b"garbage that is no index".to_vec()),
        Some(good[..8].to_vec()),
        Some(good[..8 + 3 * 16].to_vec()),
        Some(good[..8 + 3 * 16 + 5].to_vec()),
        Some([good.as_slice(), &[0xff; 32]].concat()),
        Some(shifted),
        Some(wrong_seq),
    ];
    for (number, variant) in variants.into_iter().enumerate() {
        match variant {
            None => std::fs::remove_file(&index).expect("remove"),
            Some(bytes) => std::fs::write(&index, bytes).expect("write"),
        }
        let log = EventLog::open(&path).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(log.last_seq(), 3000);
        for after in [0, 256, 1216, 1230, 1500, 2999] {
            assert_eq!(seqs(&log, after).len() as u64, 3000 - after, "{number}");
        }
        drop(log);
        // The last variant is wrong in a place nobody looks at before it is needed.
        if number < 8 {
            assert_eq!(std::fs::read(&index).expect("index"), good, "{number}");
        }
    }
}

#[test]
fn readers_follow_a_writer_and_see_whole_lines_only() {
    const LINES: u64 = 5000;
    let (_dir, path) = temp();
    let log = EventLog::open(&path).expect("open");
    let reader = log.clone();
    let following = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("runtime");
        runtime.block_on(async move {
            let mut end = reader.watch();
            let mut after = 0;
            while after < LINES {
                end.wait_for(|end| end.seq > after).await.expect("writer");
                for line in reader.read_from(after, 10_000) {
                    let line = line.expect("line");
                    after += 1;
                    assert_eq!(seq_of(&line), Some(after));
                    serde_json::from_slice::<Value>(&line).expect("whole line");
                }
            }
        });
    });
    for n in 1..=LINES {
        log.append(&text(n)).expect("append");
    }
    following.join().expect("reader");
}
