//! The sealed store: what it keeps, and what it says when its files are not what they were.

use handler_store::SecretStore;
use handler_store::secrets::{MAX_VALUE, SecretError};
use handler_types::SecretValue;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const PLANTED: &str = "sk-planted-0123456789";

pub(crate) struct TempSecrets {
    pub(crate) store: SecretStore,
    pub(crate) dir: tempfile::TempDir,
}

impl TempSecrets {
    fn file(&self) -> PathBuf {
        self.dir.path().join("data/secrets.json.sealed")
    }

    fn key(&self) -> PathBuf {
        self.dir.path().join("config/secrets.key")
    }
}

pub(crate) fn secrets() -> TempSecrets {
    let dir = tempfile::tempdir().expect("temp folder");
    for folder in ["data", "config"] {
        std::fs::create_dir(dir.path().join(folder)).expect("folder");
    }
    let store = SecretStore::new(
        dir.path().join("data/secrets.json.sealed"),
        dir.path().join("config/secrets.key"),
    );
    TempSecrets { store, dir }
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.to_owned())
}

/// The whole chain of an error, as a log would have it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn a_value_is_kept_listed_changed_and_removed() {
    let temp = secrets();
    let store = &temp.store;
    assert_eq!(store.get("a/b").await.expect("empty"), None);
    assert!(store.list().await.expect("empty").is_empty());
    assert!(!store.remove("a/b").await.expect("empty"));
    assert!(!temp.key().exists(), "no key before it is needed");

    let first = store
        .set("a/b", value(PLANTED), Some("for tests".into()))
        .await
        .expect("set");
    assert_eq!(first.path, "a/b");
    store.set("z", value("other"), None).await.expect("set");
    let got = store.get("a/b").await.expect("get").expect("is there");
    assert_eq!(got.expose(), PLANTED);

    let again = store.set("a/b", value("new"), None).await.expect("set");
    assert_eq!(again.created_at, first.created_at);
    assert_eq!(again.description.as_deref(), Some("for tests"));
    let list = store.list().await.expect("list");
    let paths: Vec<&str> = list.iter().map(|view| view.path.as_str()).collect();
    assert_eq!(paths, ["a/b", "z"]);

    let reopened = SecretStore::new(temp.file(), temp.key());
    let got = reopened.get("a/b").await.expect("get").expect("is there");
    assert_eq!(got.expose(), "new");
    assert!(reopened.remove("a/b").await.expect("remove"));
    assert_eq!(store.get("a/b").await.expect("get"), None);
    for file in [temp.file(), temp.key()] {
        let mode = std::fs::metadata(&file).expect("meta").mode() & 0o777;
        assert_eq!(mode, 0o600, "{file:?}");
    }
}

#[tokio::test]
async fn no_file_and_no_text_shows_a_value() {
    let temp = secrets();
    temp.store
        .set("a", value(PLANTED), None)
        .await
        .expect("set");
    let mut files = 0;
    for folder in ["data", "config"] {
        for entry in std::fs::read_dir(temp.dir.path().join(folder)).expect("list") {
            let bytes = std::fs::read(entry.expect("entry").path()).expect("read");
            let found = bytes
                .windows(PLANTED.len())
                .any(|part| part == PLANTED.as_bytes());
            assert!(!found);
            files += 1;
        }
    }
    assert!(files >= 2);
    let list = temp.store.list().await.expect("list");
    assert!(!format!("{list:?} {:?}", temp.store).contains(PLANTED));
}

#[tokio::test]
async fn bounds_are_kept() {
    let temp = secrets();
    let store = &temp.store;
    for (text, fits) in [
        (String::new(), false),
        ("x".to_owned(), true),
        ("x".repeat(MAX_VALUE), true),
        ("x".repeat(MAX_VALUE + 1), false),
    ] {
        let set = store.set("a", SecretValue::new(text), None).await;
        assert_eq!(set.is_ok(), fits, "{set:?}");
    }
    for path in ["", "../a", "a/../b", "/a", ".a"] {
        let set = store.set(path, value("x"), None).await;
        assert!(
            matches!(set, Err(SecretError::InvalidPath { .. })),
            "{path}"
        );
        assert!(store.get(path).await.is_err(), "{path}");
        assert!(store.remove(path).await.is_err(), "{path}");
    }
    let long = Some("x".repeat(501));
    assert!(store.set("b", value("x"), long).await.is_err());
}

fn edit(path: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let text = std::fs::read(path).expect("read");
    let mut json = serde_json::from_slice(&text).expect("JSON");
    change(&mut json);
    std::fs::write(path, json.to_string()).expect("write");
}

#[tokio::test]
async fn every_change_from_outside_is_noticed_and_nothing_is_overwritten() {
    let temp = secrets();
    let store = &temp.store;
    store.set("a", value(PLANTED), None).await.expect("set");
    store
        .set("b", value("other"), Some("d".into()))
        .await
        .expect("set");
    let good = std::fs::read(temp.file()).expect("read");
    let changes: [fn(&mut serde_json::Value); 6] = [
        |json| {
            let a = json["entries"]["a"].take();
            json["entries"]["a"] = json["entries"]["b"].take();
            json["entries"]["b"] = a;
        },
        |json| {
            json["entries"].as_object_mut().expect("map").remove("b");
        },
        |json| json["entries"]["c"] = json["entries"]["b"].clone(),
        |json| json["entries"]["b"]["description"] = "else".into(),
        |json| json["entries"]["b"]["createdMs"] = 1.into(),
        |json| json["entries"]["a"]["value"] = "AAAA".into(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        std::fs::write(temp.file(), &good).expect("write");
        edit(&temp.file(), change);
        let changed = std::fs::read(temp.file()).expect("read");
        let errors = [
            store.get("a").await.map(|_| ()).expect_err("get"),
            store.list().await.map(|_| ()).expect_err("list"),
            store
                .set("z", value("x"), None)
                .await
                .map(|_| ())
                .expect_err("set"),
            store.remove("a").await.map(|_| ()).expect_err("remove"),
        ];
        for error in errors {
            assert!(
                matches!(error, SecretError::Unopenable { .. }),
                "{number}: {error}"
            );
            assert!(!chain(&error).contains(PLANTED));
        }
        assert_eq!(std::fs::read(temp.file()).expect("read"), changed);
    }
}

#[tokio::test]
async fn bytes_flipped_anywhere_never_panic_and_never_pass() {
    let temp = secrets();
    temp.store
        .set("a", value(PLANTED), None)
        .await
        .expect("set");
    let good = std::fs::read(temp.file()).expect("read");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x04;
        std::fs::write(temp.file(), &bad).expect("write");
        match temp.store.get("a").await {
            Err(error) => assert!(!chain(&error).contains(PLANTED)),
            // White space is no content: the value is then the right one.
            Ok(got) => assert_eq!(
                got.expect("is there").expose(),
                PLANTED,
                "byte {at} was {:?}",
                char::from(good[at])
            ),
        }
    }
    for cut in [0, 1, good.len() / 2, good.len() - 2] {
        std::fs::write(temp.file(), &good[..cut]).expect("write");
        assert!(temp.store.get("a").await.is_err(), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_wrong_missing_or_open_key_is_said() {
    let temp = secrets();
    let store = &temp.store;
    store.set("a", value(PLANTED), None).await.expect("set");
    let key = std::fs::read_to_string(temp.key()).expect("key");
    let sealed = std::fs::read(temp.file()).expect("read");

    std::fs::remove_file(temp.key()).expect("remove");
    for error in [
        store.get("a").await.map(|_| ()).expect_err("get"),
        store
            .set("b", value("x"), None)
            .await
            .map(|_| ())
            .expect_err("set"),
    ] {
        assert!(matches!(error, SecretError::KeyMissing { .. }), "{error}");
    }
    assert!(!temp.key().exists(), "no second key is made");

    let write = |text: &str, mode: u32| {
        std::fs::write(temp.key(), text).expect("write");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(temp.key(), mode).expect("chmod");
    };
    write(&"0".repeat(64), 0o600);
    let error = store.get("a").await.expect_err("another key");
    assert!(matches!(error, SecretError::Unopenable { .. }), "{error}");
    for text in ["", "abc", &"g".repeat(64), &format!("{key}x"), &key[1..]] {
        write(text, 0o600);
        let error = store.get("a").await.expect_err("no key");
        assert!(matches!(error, SecretError::BadKey { .. }), "{error}");
    }
    for mode in [0o640, 0o604, 0o620] {
        write(&key, mode);
        let error = store.get("a").await.expect_err("open to others");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        assert!(!chain(&error).contains(key.trim()));
    }
    assert_eq!(std::fs::read(temp.file()).expect("read"), sealed);
    write(&key, 0o600);
    let got = store.get("a").await.expect("get").expect("is there");
    assert_eq!(got.expose(), PLANTED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_once_are_all_kept() {
    let temp = secrets();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..24 {
        // Half of them through a store of their own, as another program would.
        let store = match n % 2 {
            0 => temp.store.clone(),
            _ => SecretStore::new(temp.file(), temp.key()),
        };
        tasks.spawn(async move {
            let set = store.set(&format!("n{n}"), value("x"), None).await;
            set.expect("set");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("task");
    }
    assert_eq!(temp.store.list().await.expect("list").len(), 24);
}
