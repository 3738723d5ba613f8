//! Table `idempotency`: the same request is done once.

use crate::fixtures::store;
use handler_store::Store;
use handler_store::rows::{Begin, MAX_KEPT_RESPONSE, Request, StoredResponse};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn request(key: &str) -> Request {
    Request {
        key: key.to_owned(),
        method: "POST".to_owned(),
        path: "/v1/sandboxes".to_owned(),
    }
}

fn response(body: Vec<u8>) -> StoredResponse {
    StoredResponse {
        status: 201,
        content_type: Some("application/json".to_owned()),
        body,
    }
}

#[tokio::test]
async fn a_request_goes_from_fresh_to_replay() {
    let temp = store();
    let table = temp.store.idempotency();
    let begin = async |hash: u8| table.begin(request("k"), [hash; 32]).await.expect("begin");
    assert_eq!(begin(1).await, Begin::Fresh);
    assert_eq!(begin(1).await, Begin::InProgress);
    assert_eq!(begin(2).await, Begin::Mismatch);
    let answer = response(b"{\"id\":1}".to_vec());
    table
        .finish(request("k"), answer.clone())
        .await
        .expect("finish");
    assert_eq!(begin(1).await, Begin::Replay(answer));
    assert_eq!(begin(2).await, Begin::Mismatch);
    let mut elsewhere = request("k");
    elsewhere.path = "/v1/sessions".to_owned();
    assert_eq!(
        table.begin(elsewhere, [2; 32]).await.expect("begin"),
        Begin::Fresh
    );
}

#[tokio::test]
async fn a_forgotten_request_may_come_again() {
    let temp = store();
    let table = temp.store.idempotency();
    for _ in 0..2 {
        let begun = table.begin(request("k"), [1; 32]).await.expect("begin");
        assert_eq!(begun, Begin::Fresh);
        table.forget(request("k")).await.expect("forget");
    }
}

#[tokio::test]
async fn an_empty_answer_is_kept_and_a_huge_one_is_not() {
    let temp = store();
    let table = temp.store.idempotency();
    for (key, body, kept) in [
        ("empty", Vec::new(), true),
        ("large", vec![7; MAX_KEPT_RESPONSE], true),
        ("huge", vec![7; MAX_KEPT_RESPONSE + 1], false),
    ] {
        table.begin(request(key), [1; 32]).await.expect("begin");
        let answer = response(body);
        table
            .finish(request(key), answer.clone())
            .await
            .expect("finish");
        let expected = if kept {
            Begin::Replay(answer)
        } else {
            Begin::AnswerNotKept { status: 201 }
        };
        let begun = table.begin(request(key), [1; 32]).await.expect("begin");
        assert!(begun == expected, "{key}");
    }
}

#[tokio::test]
async fn answers_live_for_a_day() {
    let temp = store();
    let table = temp.store.idempotency();
    let begin = async |now| {
        table
            .begin_at(request("k"), [1; 32], now)
            .await
            .expect("begin")
    };
    assert_eq!(begin(0).await, Begin::Fresh);
    assert_eq!(begin(DAY_MS).await, Begin::InProgress);
    assert_eq!(begin(DAY_MS + 1).await, Begin::Fresh);
    assert_eq!(table.expire(2 * DAY_MS).await.expect("expire"), 0);
    assert_eq!(table.expire(2 * DAY_MS + 2).await.expect("expire"), 1);
}

#[tokio::test]
async fn a_restart_keeps_answers_and_forgets_what_was_under_way() {
    let temp = store();
    let path = temp.dir.path().join("handler.db");
    let table = temp.store.idempotency();
    for key in ["done", "under way"] {
        table.begin(request(key), [1; 32]).await.expect("begin");
    }
    table
        .finish(request("done"), response(b"x".to_vec()))
        .await
        .expect("finish");
    temp.store.close().await;
    let again = Store::open(&path).expect("open again");
    let table = again.idempotency();
    let done = table.begin(request("done"), [1; 32]).await.expect("begin");
    assert_eq!(done, Begin::Replay(response(b"x".to_vec())));
    let other = table
        .begin(request("under way"), [9; 32])
        .await
        .expect("begin");
    assert_eq!(other, Begin::Fresh);
}
