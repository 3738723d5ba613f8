//! Table `sandboxes` through its public functions.

use crate::fixtures::{sandbox, sandbox_id, session_id, store};
use handler_store::StoreError;
use handler_store::rows::{Lookup, PageRequest, SandboxFilter, SandboxIntent, SandboxPatch};
use handler_types::sandbox::SandboxState;
use serde_json::json;

fn page(cursor: Option<String>, limit: u32) -> PageRequest {
    PageRequest {
        cursor,
        limit: Some(limit),
    }
}

#[tokio::test]
async fn a_row_is_read_back_as_it_was_written() {
    let temp = store();
    let sandboxes = temp.store.sandboxes();
    let mut row = sandbox(1);
    row.name = Some("café".to_owned());
    row.instance = Some(json!({"pid": 17}));
    row.warnings = vec!["no cgroup".to_owned()];
    row.error = Some("it \"failed\"".to_owned());
    row.session_id = Some(session_id(9));
    row.spec.labels.insert("team".into(), "a b".into());
    sandboxes.insert(row.clone()).await.expect("insert");
    assert_eq!(sandboxes.get(&row.id).await.expect("get"), Some(row));
    assert_eq!(sandboxes.get(&sandbox_id(2)).await.expect("get"), None);
}

#[tokio::test]
async fn a_name_and_an_id_are_given_once() {
    let temp = store();
    let sandboxes = temp.store.sandboxes();
    let mut one = sandbox(1);
    one.name = Some("web".to_owned());
    let mut two = sandbox(2);
    two.name = Some("web".to_owned());
    sandboxes.insert(one.clone()).await.expect("first");
    let error = sandboxes.insert(two.clone()).await.expect_err("same name");
    assert!(matches!(error, StoreError::NameTaken { name } if name == "web"));
    assert_eq!(sandboxes.get(&two.id).await.expect("get"), None);
    one.name = None;
    let error = sandboxes.insert(one.clone()).await.expect_err("same id");
    assert!(matches!(error, StoreError::IdTaken { .. }), "{error}");

    two.name = None;
    sandboxes.insert(two.clone()).await.expect("without a name");
    let rename = SandboxPatch {
        name: Some(Some("web".to_owned())),
        ..SandboxPatch::default()
    };
    let error = sandboxes.update(&two.id, rename.clone()).await;
    assert!(matches!(error, Err(StoreError::NameTaken { .. })));
    assert!(sandboxes.delete(&one.id).await.expect("delete"));
    sandboxes
        .update(&two.id, rename)
        .await
        .expect("name is free");
}

#[tokio::test]
async fn an_update_changes_what_it_names_and_nothing_else() {
    let temp = store();
    let sandboxes = temp.store.sandboxes();
    let mut row = sandbox(1);
    row.error = Some("old".to_owned());
    row.instance = Some(json!(1));
    sandboxes.insert(row.clone()).await.expect("insert");
    let patch = SandboxPatch {
        state: Some(SandboxState::Stopped),
        intent: Some(SandboxIntent::Stop),
        instance: Some(None),
        warnings: Some(vec!["w".to_owned()]),
        ..SandboxPatch::default()
    };
    let changed = sandboxes.update(&row.id, patch).await.expect("update");
    assert!(changed.updated_ms > row.updated_ms);
    row.state = SandboxState::Stopped;
    row.intent = SandboxIntent::Stop;
    row.instance = None;
    row.warnings = vec!["w".to_owned()];
    row.updated_ms = changed.updated_ms;
    assert_eq!(changed, row);
    assert_eq!(sandboxes.get(&row.id).await.expect("get"), Some(row));
    let missing = sandboxes
        .update(&sandbox_id(5), SandboxPatch::default())
        .await;
    assert!(matches!(missing, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn pages_show_every_row_once_newest_first() {
    let temp = store();
    let sandboxes = temp.store.sandboxes();
    for n in 0..25 {
        let mut row = sandbox(n);
        // Several rows share a millisecond: the id decides between them.
        row.created_ms = i64::try_from(n / 4).expect("small");
        sandboxes.insert(row).await.expect("insert");
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let got = sandboxes
            .list(SandboxFilter::default(), page(cursor, 10))
            .await
            .expect("page");
        assert!(got.items.len() <= 10);
        seen.extend(got.items.into_iter().map(|row| row.id));
        // A row made between two pages is newer than all of them and moves nothing.
        let mut newer = sandbox(100 + seen.len() as u64);
        newer.created_ms = 1000;
        sandboxes.insert(newer).await.expect("insert");
        cursor = got.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let expected: Vec<_> = (0..25).rev().map(sandbox_id).collect();
    assert_eq!(seen, expected);
    let error = sandboxes
        .list(SandboxFilter::default(), page(Some("nonsense".into()), 10))
        .await;
    assert!(matches!(error, Err(StoreError::BadCursor)));
}

#[tokio::test]
async fn filters_narrow_a_list_and_labels_follow_the_spec() {
    let temp = store();
    let sandboxes = temp.store.sandboxes();
    for n in 0..12 {
        let mut row = sandbox(n);
        row.name = Some(format!("n{n}"));
        row.state = if n % 2 == 0 {
            SandboxState::Running
        } else {
            SandboxState::Stopped
        };
        row.backend = if n % 3 == 0 { "podman" } else { "native" }.to_owned();
        row.spec.labels.insert("team".into(), format!("t{}", n % 4));
        if n < 6 {
            row.spec.labels.insert("old".into(), String::new());
        }
        sandboxes.insert(row).await.expect("insert");
    }
    let ids = async |filter: SandboxFilter| -> Vec<String> {
        let got = sandboxes
            .list(filter, PageRequest::default())
            .await
            .expect("page");
        got.items
            .into_iter()
            .map(|row| row.name.expect("named"))
            .collect()
    };
    let all = SandboxFilter::default;
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let state = Some(SandboxState::Running);
    assert_eq!(
        ids(SandboxFilter { state, ..all() }).await,
        ["n10", "n8", "n6", "n4", "n2", "n0"]
    );
    let backend = Some("podman".to_owned());
    assert_eq!(
        ids(SandboxFilter {
            state,
            backend,
            ..all()
        })
        .await,
        ["n6", "n0"]
    );
    let name = Some("n7".to_owned());
    assert_eq!(ids(SandboxFilter { name, ..all() }).await, ["n7"]);
    let labels = vec![label("team", "t1")];
    assert_eq!(
        ids(SandboxFilter { labels, ..all() }).await,
        ["n9", "n5", "n1"]
    );
    let search = Some("PROJECT-7".to_owned());
    assert_eq!(ids(SandboxFilter { search, ..all() }).await, ["n7"]);
    let search = Some("%".to_owned());
    assert_eq!(ids(SandboxFilter { search, ..all() }).await, [""; 0]);
    let labels = vec![label("team", "t1"), label("old", "")];
    assert_eq!(ids(SandboxFilter { labels, ..all() }).await, ["n5", "n1"]);

    let mut spec = sandbox(5).spec;
    spec.labels.insert("team".into(), "t2".into());
    let patch = SandboxPatch {
        spec: Some(spec),
        ..SandboxPatch::default()
    };
    sandboxes
        .update(&sandbox_id(5), patch)
        .await
        .expect("update");
    assert!(sandboxes.delete(&sandbox_id(9)).await.expect("delete"));
    let labels = vec![label("team", "t1")];
    assert_eq!(ids(SandboxFilter { labels, ..all() }).await, ["n1"]);
}

#[tokio::test]
async fn a_sandbox_is_found_by_id_name_or_prefix() {
    let temp = store();
    let sandboxes = temp.store.sandboxes();
    for n in 0..20 {
        sandboxes.insert(sandbox(n)).await.expect("insert");
    }
    let mut named = sandbox(0x1100_0000_0000_0000);
    // Its name is the prefix of all other ids: the exact name wins.
    named.name = Some("sb0000".to_owned());
    sandboxes.insert(named.clone()).await.expect("insert");

    let find = async |text: &str| sandboxes.find(text).await.expect("find");
    let exact = sandbox_id(3);
    assert!(matches!(find(exact.as_str()).await, Lookup::Found(row) if row.id == exact));
    assert!(matches!(find("sb0000").await, Lookup::Found(row) if row.id == named.id));
    assert!(matches!(find("sb11").await, Lookup::Found(row) if row.id == named.id));
    match find("sb00000000").await {
        Lookup::Ambiguous(ids) => assert_eq!(ids.len(), 10),
        other => panic!("{other:?}"),
    }
    for nothing in ["", "sb2", "nobody", "%", "sb%", "SB11", "\u{10ffff}"] {
        assert_eq!(find(nothing).await, Lookup::None, "{nothing}");
    }
}

#[tokio::test]
async fn reconcile_sees_every_row_and_a_session_its_own() {
    let temp = store();
    let sandboxes = temp.store.sandboxes();
    for n in (0..5).rev() {
        let mut row = sandbox(n);
        row.session_id = (n % 2 == 0).then(|| session_id(7));
        sandboxes.insert(row).await.expect("insert");
    }
    let all = sandboxes.all().await.expect("all");
    assert_eq!(
        all.iter().map(|row| row.created_ms).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    let own = sandboxes.of_session(&session_id(7)).await.expect("own");
    assert_eq!(
        own.iter().map(|row| row.created_ms).collect::<Vec<_>>(),
        [4, 2, 0]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_and_readers_at_once_lose_nothing() {
    let temp = store();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..100 {
        let sandboxes = temp.store.sandboxes();
        tasks.spawn(async move {
            sandboxes.insert(sandbox(n)).await.expect("insert");
            let patch = SandboxPatch {
                state: Some(SandboxState::Running),
                ..SandboxPatch::default()
            };
            sandboxes
                .update(&sandbox_id(n), patch)
                .await
                .expect("update");
            // What was answered is seen by the next read, whichever connection does it.
            let row = sandboxes.get(&sandbox_id(n)).await.expect("get");
            assert_eq!(row.expect("is there").state, SandboxState::Running);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("task");
    }
    assert_eq!(temp.store.sandboxes().all().await.expect("all").len(), 100);
}
