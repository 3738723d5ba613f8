//! Tables `sessions` and `kv` through their public functions.

use crate::fixtures::{session, session_id, store};
use handler_store::StoreError;
use handler_store::rows::{Lookup, PageRequest, SessionFilter, SessionPatch};
use handler_types::session::SessionState;
use serde_json::json;

#[tokio::test]
async fn a_session_is_written_changed_read_and_removed() {
    let temp = store();
    let sessions = temp.store.sessions();
    let mut row = session(1);
    sessions.insert(row.clone()).await.expect("insert");
    assert!(matches!(
        sessions.insert(row.clone()).await,
        Err(StoreError::IdTaken { .. })
    ));
    let patch = SessionPatch {
        state: Some(SessionState::Running),
        document: Some(json!({"title": "new"})),
        ..SessionPatch::default()
    };
    let changed = sessions.update(&row.id, patch).await.expect("update");
    row.state = SessionState::Running;
    row.document = json!({"title": "new"});
    row.updated_ms = changed.updated_ms;
    assert_eq!(changed, row);
    assert_eq!(sessions.get(&row.id).await.expect("get"), Some(row.clone()));
    assert!(sessions.delete(&row.id).await.expect("delete"));
    assert!(!sessions.delete(&row.id).await.expect("delete again"));
    assert!(matches!(
        sessions.update(&row.id, SessionPatch::default()).await,
        Err(StoreError::NotFound { .. })
    ));
}

#[tokio::test]
async fn sessions_are_listed_by_scope_and_state_and_found_by_prefix() {
    let temp = store();
    let sessions = temp.store.sessions();
    for n in 0..30 {
        let mut row = session(n);
        if n % 20 == 3 {
            row.state = SessionState::Failed;
        }
        sessions.insert(row).await.expect("insert");
    }
    let filter = SessionFilter {
        scope: Some("/home/ada/code/project-3".to_owned()),
        ..SessionFilter::default()
    };
    let request = PageRequest {
        limit: Some(2),
        cursor: None,
    };
    let first = sessions.list(filter.clone(), request).await.expect("page");
    let ids: Vec<_> = first.items.iter().map(|row| row.created_ms).collect();
    assert_eq!(ids, [23, 13]);
    let rest = PageRequest {
        limit: Some(2),
        cursor: first.next_cursor,
    };
    let second = sessions.list(filter.clone(), rest).await.expect("page");
    assert_eq!(second.items.len(), 1);
    assert_eq!(second.next_cursor, None);
    let failed = SessionFilter {
        state: Some(SessionState::Failed),
        ..filter
    };
    let failed = sessions
        .list(failed, PageRequest::default())
        .await
        .expect("page");
    let ids: Vec<_> = failed.items.iter().map(|row| row.created_ms).collect();
    assert_eq!(ids, [23, 3]);

    let id = session_id(0x1c);
    assert!(matches!(
        sessions.find(id.as_str()).await.expect("find"),
        Lookup::Found(row) if row.id == id
    ));
    assert!(matches!(
        sessions.find("s_000000000000001").await.expect("find"),
        Lookup::Ambiguous(ids) if ids.len() == 10
    ));
    assert_eq!(sessions.find("s_1").await.expect("find"), Lookup::None);
    // `_` is a letter here, not a pattern.
    assert_eq!(sessions.find("sX0").await.expect("find"), Lookup::None);
}

#[tokio::test]
async fn a_small_setting_is_kept_over_a_restart() {
    let temp = store();
    let path = temp.dir.path().join("handler.db");
    let kv = temp.store.kv();
    assert_eq!(kv.get("a").await.expect("get"), None);
    kv.set("a", &json!({"n": 1})).await.expect("set");
    kv.set("a", &json!([2])).await.expect("set over");
    temp.store.clone().close().await;
    assert!(matches!(kv.get("a").await, Err(StoreError::Closed)));
    assert!(matches!(
        kv.set("a", &json!(3)).await,
        Err(StoreError::Closed)
    ));
    let again = handler_store::Store::open(&path).expect("open again");
    assert_eq!(again.kv().get("a").await.expect("get"), Some(json!([2])));
    assert!(again.kv().remove("a").await.expect("remove"));
    assert!(!again.kv().remove("a").await.expect("remove again"));
}
