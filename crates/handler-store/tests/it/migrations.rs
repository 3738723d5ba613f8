//! Databases of every older format become today's, with what was in them; others are left alone.

use crate::fixtures::sandbox_id;
use handler_store::{OpenError, Store};
use std::os::unix::fs::MetadataExt as _;

/// One dump per format that was ever released, oldest first.
const FIXTURES: &[(u32, &str)] = &[(1, include_str!("../fixtures/format-1.sql"))];

#[tokio::test]
async fn every_older_format_is_brought_up_with_its_rows() {
    for (format, dump) in FIXTURES {
        let dir = tempfile::tempdir().expect("temp folder");
        let path = dir.path().join("handler.db");
        let db = rusqlite::Connection::open(&path).expect("database");
        db.execute_batch(dump).expect("dump");
        drop(db);
        let store = Store::open(&path).unwrap_or_else(|error| panic!("format {format}: {error}"));
        let row = store
            .sandboxes()
            .get(&sandbox_id(1))
            .await
            .expect("read")
            .expect("the row of the dump");
        assert_eq!(row.name.as_deref(), Some("kept"));
        assert_eq!(row.spec.labels["team"], "a");
        assert_eq!(store.sessions().all().await.expect("sessions").len(), 1);
        assert_eq!(
            store.kv().get("greeting").await.expect("kv"),
            Some(serde_json::json!("hello"))
        );
    }
}

#[tokio::test]
async fn the_database_and_its_side_files_are_private() {
    let temp = crate::fixtures::store();
    temp.store.kv().set("a", &1.into()).await.expect("set");
    let mut seen = 0;
    for entry in std::fs::read_dir(temp.dir.path()).expect("list") {
        let entry = entry.expect("entry");
        let mode = entry.metadata().expect("meta").mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
        seen += 1;
    }
    assert!(seen >= 2, "the database and its log");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_kept() {
    let dir = tempfile::tempdir().expect("temp folder");
    let path = dir.path().join("handler.db");
    let text = "these are somebody's notes\n".repeat(100);
    std::fs::write(&path, &text).expect("write");
    let error = Store::open(&path).expect_err("not a database");
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
}

#[test]
fn a_database_of_a_newer_program_is_refused_and_kept() {
    let dir = tempfile::tempdir().expect("temp folder");
    let path = dir.path().join("handler.db");
    drop(Store::open(&path).expect("made"));
    let db = rusqlite::Connection::open(&path).expect("database");
    db.pragma_update(None, "user_version", 99).expect("newer");
    drop(db);
    let error = Store::open(&path).expect_err("newer");
    assert!(
        matches!(error, OpenError::Newer { found: 99, .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("use the newer program"),
        "{error}"
    );
    let db = rusqlite::Connection::open(&path).expect("database");
    let version: u32 = db
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("version");
    assert_eq!(version, 99);
}
