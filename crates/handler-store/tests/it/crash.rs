//! The database when its program is killed.

use crate::children::{child, part};
use crate::fixtures::{sandbox, sandbox_id};
use handler_store::Store;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;

const KILLED: &str = "crash::a_killed_daemon_loses_no_row_it_was_told_is_kept";

#[tokio::test]
async fn a_killed_daemon_loses_no_row_it_was_told_is_kept() {
    if let Some(path) = part("insert") {
        insert_until_killed(path).await;
        return;
    }
    let dir = tempfile::tempdir().expect("temp folder");
    let path = dir.path().join("handler.db");
    for round in 1..=3 {
        let mut writer = child(KILLED, "insert", &path, "").spawn().expect("child");
        let lines = BufReader::new(writer.stdout.take().expect("stdout")).lines();
        let mut told = None;
        for line in lines {
            let line = line.expect("line");
            // The test harness prints its own words in front of the first line.
            let Some((_, number)) = line.split_once("=> ") else {
                continue;
            };
            told = Some(number.parse::<u64>().expect("number"));
            if told >= Some(round * 40) {
                writer.kill().expect("kill -9");
            }
        }
        writer.wait().expect("reaped");
        let told = told.expect("the child wrote rows");
        let store = Store::open(&path).expect("open after the kill");
        let rows = store.sandboxes().all().await.expect("all");
        assert!(rows.len() as u64 > told, "{} rows, {told} told", rows.len());
        for n in 0..=told {
            let row = store.sandboxes().get(&sandbox_id(n)).await.expect("get");
            assert!(row.is_some(), "row {n}");
        }
        store.close().await;
    }
}

async fn insert_until_killed(path: PathBuf) {
    let store = Store::open(&path).expect("open");
    let first = store.sandboxes().all().await.expect("all").len() as u64;
    for n in first.. {
        store.sandboxes().insert(sandbox(n)).await.expect("insert");
        let mut out = std::io::stdout().lock();
        writeln!(out, "=> {n}").expect("parent");
        out.flush().expect("parent");
    }
}
