//! Table `idempotency`: answers kept for a day, so that a request sent again is not done again.
//!
//! ```text
//! begin → Fresh ─ finish → kept (Replay, or AnswerNotKept when too large)
//!            └─── forget → as if it never came
//! ```
//!
//! Requests under way when a daemon ended are forgotten when the next one opens the store.

use crate::db::{Store, StoreError};
use rusqlite::{Connection, OptionalExtension as _};

/// How long answers are kept, milliseconds.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// Longest body kept with its answer, bytes.
pub const MAX_KEPT_RESPONSE: usize = 4 * 1024 * 1024;

/// What makes two requests the same one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// The `Idempotency-Key`.
    pub key: String,
    /// HTTP method.
    pub method: String,
    /// Path with query.
    pub path: String,
}

/// What is to be done with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// It is new: do it, then [`Idempotency::finish`] or [`Idempotency::forget`].
    Fresh,
    /// It was done: give this answer.
    Replay(StoredResponse),
    /// It was done; its answer was longer than [`MAX_KEPT_RESPONSE`].
    AnswerNotKept {
        /// Its HTTP status.
        status: u16,
    },
    /// It is being done now.
    InProgress,
    /// The key was used for a request with another body.
    Mismatch,
}

/// A kept answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// Body.
    pub body: Vec<u8>,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Idempotency(pub(crate) Store);

impl Idempotency {
    /// Asks what to do with a request whose body has this hash; a fresh one is noted as under way.
    ///
    /// # Errors
    /// The database failed.
    pub async fn begin(&self, request: Request, body_hash: [u8; 32]) -> Result<Begin, StoreError> {
        self.begin_at(request, body_hash, handler_base::clock::now_ms())
            .await
    }

    /// [`Self::begin`] at a time the caller gives (milliseconds since the epoch).
    ///
    /// # Errors
    /// The database failed.
    pub async fn begin_at(
        &self,
        request: Request,
        body_hash: [u8; 32],
        now_ms: i64,
    ) -> Result<Begin, StoreError> {
        self.0
            .write(move |db| begin(db, &request, &body_hash, now_ms))
            .await
    }

    /// Keeps the answer of a request that was begun.
    ///
    /// # Errors
    /// The database failed.
    pub async fn finish(
        &self,
        request: Request,
        response: StoredResponse,
    ) -> Result<(), StoreError> {
        let body = (response.body.len() <= MAX_KEPT_RESPONSE).then_some(response.body);
        self.0
            .write(move |db| {
                db.prepare_cached(
                    "UPDATE idempotency SET status = ?4, content_type = ?5, response = ?6 \
                     WHERE key = ?1 AND method = ?2 AND path = ?3",
                )?
                .execute((
                    request.key,
                    request.method,
                    request.path,
                    response.status,
                    response.content_type,
                    body,
                ))?;
                Ok(())
            })
            .await
    }

    /// Forgets a request that was begun and did nothing, so that it may be sent again.
    ///
    /// # Errors
    /// The database failed.
    pub async fn forget(&self, request: Request) -> Result<(), StoreError> {
        self.0.write(move |db| remove(db, &request)).await
    }

    /// Removes answers older than a day; returns how many. To be called now and then.
    ///
    /// # Errors
    /// The database failed.
    pub async fn expire(&self, now_ms: i64) -> Result<usize, StoreError> {
        self.0
            .write(move |db| {
                Ok(db
                    .prepare_cached("DELETE FROM idempotency WHERE created_ms < ?1")?
                    .execute([now_ms.saturating_sub(KEPT_MS)])?)
            })
            .await
    }
}

/// Removes requests an ended daemon left under way: nobody will finish them.
pub(crate) fn forget_under_way(db: &Connection) -> rusqlite::Result<usize> {
    db.execute("DELETE FROM idempotency WHERE status IS NULL", [])
}

fn remove(db: &Connection, request: &Request) -> Result<(), StoreError> {
    db.prepare_cached("DELETE FROM idempotency WHERE key = ?1 AND method = ?2 AND path = ?3")?
        .execute((&request.key, &request.method, &request.path))?;
    Ok(())
}

struct Kept {
    hash: Vec<u8>,
    status: Option<u16>,
    content_type: Option<String>,
    body: Option<Vec<u8>>,
    created_ms: i64,
}

fn kept(db: &Connection, request: &Request) -> Result<Option<Kept>, StoreError> {
    Ok(db
        .prepare_cached(
            "SELECT body_hash, status, content_type, response, created_ms FROM idempotency \
             WHERE key = ?1 AND method = ?2 AND path = ?3",
        )?
        .query_row((&request.key, &request.method, &request.path), |row| {
            Ok(Kept {
                hash: row.get(0)?,
                status: row.get(1)?,
                content_type: row.get(2)?,
                body: row.get(3)?,
                created_ms: row.get(4)?,
            })
        })
        .optional()?)
}

fn begin(
    db: &mut Connection,
    request: &Request,
    hash: &[u8; 32],
    now_ms: i64,
) -> Result<Begin, StoreError> {
    let tx = db.transaction()?;
    if let Some(kept) = kept(&tx, request)? {
        if kept.created_ms >= now_ms.saturating_sub(KEPT_MS) {
            return Ok(answer(kept, hash));
        }
        remove(&tx, request)?;
    }
    tx.prepare_cached(
        "INSERT INTO idempotency (key, method, path, body_hash, created_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute((&request.key, &request.method, &request.path, hash, now_ms))?;
    tx.commit()?;
    Ok(Begin::Fresh)
}

fn answer(kept: Kept, hash: &[u8; 32]) -> Begin {
    if kept.hash != hash {
        return Begin::Mismatch;
    }
    match (kept.status, kept.body) {
        (None, _) => Begin::InProgress,
        (Some(status), None) => Begin::AnswerNotKept { status },
        (Some(status), Some(body)) => Begin::Replay(StoredResponse {
            status,
            content_type: kept.content_type,
            body,
        }),
    }
}
