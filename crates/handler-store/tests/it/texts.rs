//! Search and usage of sessions.

use crate::fixtures::{session, session_id, store};
use handler_store::rows::{
    Batch, Indexed, Message, PageRequest, Role, SearchFilter, SessionTexts, TurnUsage, UsageBy,
    UsageFilter,
};
use handler_store::{Store, StoreError};

fn message(seq: u64, role: Role, text: &str) -> Message {
    Message {
        seq,
        role,
        text: text.to_owned(),
    }
}

fn turn(seq: u64, day: &str, input: u64, cost: u64) -> TurnUsage {
    TurnUsage {
        seq,
        day: day.to_owned(),
        input,
        output: 10,
        cached: 1,
        cost,
        currency: "USD".to_owned(),
    }
}

async fn filled(store: &Store) -> SessionTexts {
    let texts = store.session_texts();
    for n in 1..=3 {
        store.sessions().insert(session(n)).await.expect("session");
        let batch = Batch {
            messages: vec![
                message(
                    2,
                    Role::User,
                    &format!("Please add a --json flag, number {n}"),
                ),
                message(
                    5,
                    Role::Agent,
                    "Größe und Café: done, the flag lists everything",
                ),
            ],
            turns: vec![
                turn(9, "2026-11-30", 100 * n, 5),
                turn(12, "2026-12-01", 1, 7),
            ],
            indexed: Indexed {
                seq: 12,
                bytes: 1000,
                cost: 12,
                currency: "USD".to_owned(),
            },
        };
        texts.add(&session_id(n), batch).await.expect("added");
    }
    texts
}

async fn found(texts: &SessionTexts, filter: SearchFilter) -> Vec<(u64, u64)> {
    let page = texts
        .search(filter, PageRequest::default())
        .await
        .expect("search");
    let number = |hit: &handler_store::rows::MessageHit| {
        let n = (1..=3)
            .find(|n| session_id(*n) == hit.session)
            .expect("a session of ours");
        (n, hit.seq)
    };
    page.items.iter().map(number).collect()
}

fn words(text: &str) -> SearchFilter {
    SearchFilter {
        text: text.to_owned(),
        ..SearchFilter::default()
    }
}

#[tokio::test]
async fn messages_are_found_by_words_the_latest_first() {
    let temp = store();
    let texts = filled(&temp.store).await;
    assert_eq!(
        found(&texts, words("json flag")).await,
        [(3, 2), (2, 2), (1, 2)]
    );
    assert_eq!(
        found(&texts, words("GROSSE")).await,
        [],
        "a letter is not two"
    );
    assert_eq!(found(&texts, words("grosse")).await, []);
    assert_eq!(
        found(&texts, words("größe cafe")).await,
        [(3, 5), (2, 5), (1, 5)],
        "accents do not matter"
    );
    assert_eq!(found(&texts, words("number 2")).await, [(2, 2)]);
    assert_eq!(
        found(&texts, words("\"flag lists\" everyth")).await.len(),
        3,
        "the last word may go on"
    );
    assert_eq!(found(&texts, words("\"lists flag\"")).await, []);
    assert_eq!(found(&texts, words("\"")).await, []);
    let one = SearchFilter {
        session: Some(session_id(2)),
        ..words("flag")
    };
    assert_eq!(found(&texts, one).await, [(2, 5), (2, 2)]);
    let hit = texts
        .search(
            words("json"),
            PageRequest {
                cursor: None,
                limit: Some(1),
            },
        )
        .await
        .expect("search");
    assert!(hit.items[0].snippet.contains("\u{2}json\u{3}"), "{hit:?}");
    let next = PageRequest {
        cursor: hit.next_cursor,
        limit: Some(5),
    };
    assert_eq!(
        texts
            .search(words("json"), next)
            .await
            .expect("next")
            .items
            .len(),
        2
    );
    let bad = PageRequest {
        cursor: Some("x".to_owned()),
        limit: None,
    };
    assert!(matches!(
        texts.search(words("json"), bad).await,
        Err(StoreError::BadCursor)
    ));
}

#[tokio::test]
async fn what_is_removed_or_renamed_is_not_found() {
    let temp = store();
    let texts = filled(&temp.store).await;
    texts
        .set_title(&session_id(1), "Eine Überschrift")
        .await
        .expect("title");
    assert_eq!(found(&texts, words("überschrift")).await, [(1, 0)]);
    texts
        .set_title(&session_id(1), "another")
        .await
        .expect("title");
    assert_eq!(found(&texts, words("überschrift")).await, []);
    assert!(
        temp.store
            .sessions()
            .delete(&session_id(3))
            .await
            .expect("delete")
    );
    assert_eq!(found(&texts, words("json")).await, [(2, 2), (1, 2)]);
    assert_eq!(
        texts
            .usage(UsageBy::Session, UsageFilter::default())
            .await
            .expect("usage")
            .len(),
        2
    );
    let gone = texts.add(&session_id(3), Batch::default()).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
}

#[tokio::test]
async fn archived_sessions_are_found_when_asked_for() {
    let temp = store();
    let texts = filled(&temp.store).await;
    let mut row = temp
        .store
        .sessions()
        .get(&session_id(2))
        .await
        .expect("get")
        .expect("row");
    row.document["archived"] = true.into();
    let patch = handler_store::rows::SessionPatch {
        document: Some(row.document),
        ..Default::default()
    };
    temp.store
        .sessions()
        .update(&session_id(2), patch)
        .await
        .expect("update");
    assert_eq!(found(&texts, words("json")).await, [(3, 2), (1, 2)]);
    let all = SearchFilter {
        with_archived: true,
        ..words("json")
    };
    assert_eq!(found(&texts, all).await.len(), 3);
}

#[tokio::test]
async fn turns_are_summed_by_what_is_asked() {
    let temp = store();
    let texts = filled(&temp.store).await;
    let days = texts
        .usage(UsageBy::Day, UsageFilter::default())
        .await
        .expect("usage");
    let days: Vec<_> = days
        .iter()
        .map(|day| (day.key.as_str(), day.turns, day.input, day.cost))
        .collect();
    assert_eq!(days, [("2026-12-01", 3, 3, 21), ("2026-11-30", 3, 600, 15)]);
    let first = UsageFilter {
        to: Some("2026-11-30".to_owned()),
        ..UsageFilter::default()
    };
    let sums = texts.usage(UsageBy::Harness, first).await.expect("usage");
    assert_eq!((sums.len(), sums[0].turns, sums[0].output), (1, 3, 30));
    // Added again after a crash: nothing counts twice.
    let indexed = texts.indexed(&session_id(1)).await.expect("indexed");
    assert_eq!((indexed.seq, indexed.cost), (12, 12));
    let again = Batch {
        messages: vec![message(2, Role::User, "again")],
        turns: vec![turn(9, "2026-11-30", 9999, 5)],
        indexed: Indexed {
            seq: 9,
            bytes: 900,
            cost: 5,
            currency: "USD".to_owned(),
        },
    };
    texts.add(&session_id(1), again).await.expect("added");
    assert_eq!(
        texts.indexed(&session_id(1)).await.expect("indexed"),
        indexed
    );
    let of_one = UsageFilter {
        session: Some(session_id(1)),
        ..UsageFilter::default()
    };
    let sums = texts.usage(UsageBy::Session, of_one).await.expect("usage");
    assert_eq!((sums[0].turns, sums[0].input), (2, 101));
}
