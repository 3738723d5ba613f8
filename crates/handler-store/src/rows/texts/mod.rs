//! Tables `session_messages`, `session_indexed`, `session_turns`: what was said in sessions, for search, and what
//! their turns used. Everything here comes out of the logs and can be made again from them.
//!
//! Invariant: `session_indexed` says up to which event a log is in; messages, turns and that number change together.

mod query;
mod search;
mod usage;

use crate::db::{Store, StoreError};
use handler_types::SessionId;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

pub use search::{MessageHit, SearchFilter};
pub use usage::{UsageBy, UsageFilter, UsageSum};

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The session's title.
    Title,
    /// The person.
    User,
    /// The agent.
    Agent,
}

impl Role {
    /// As stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::User => "user",
            Self::Agent => "agent",
        }
    }

    fn from_stored(text: &str) -> Self {
        match text {
            "title" => Self::Title,
            "user" => Self::User,
            _ => Self::Agent,
        }
    }
}

/// One message, its text without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its first event.
    pub seq: u64,
    /// Who said it.
    pub role: Role,
    /// What.
    pub text: String,
}

/// What one turn used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnUsage {
    /// The event that ended it.
    pub seq: u64,
    /// `YYYY-MM-DD` in UTC.
    pub day: String,
    /// Tokens sent to the model.
    pub input: u64,
    /// Tokens the model made.
    pub output: u64,
    /// Tokens of `input` or beside it that came from a cache, as the agent counts.
    pub cached: u64,
    /// Cost in millionths of `currency`.
    pub cost: u64,
    /// Three letters; empty when the agent told no cost.
    pub currency: String,
}

/// How far a log is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Indexed {
    /// The last event looked at.
    pub seq: u64,
    /// Where the next one starts in the log's file.
    pub bytes: u64,
    /// The running cost the agent told last, in millionths of `currency`.
    pub cost: u64,
    /// Three letters, or empty.
    pub currency: String,
}

/// What a stretch of a log holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Messages that ended in it.
    pub messages: Vec<Message>,
    /// Turns that ended in it.
    pub turns: Vec<TurnUsage>,
    /// How far the log is in then.
    pub indexed: Indexed,
}

/// The tables.
#[derive(Debug, Clone)]
pub struct SessionTexts(pub(crate) Store);

impl SessionTexts {
    /// How far a session's log is in; the beginning when nothing is.
    ///
    /// # Errors
    /// The database failed.
    pub async fn indexed(&self, id: &SessionId) -> Result<Indexed, StoreError> {
        let id = id.clone();
        self.0.read(move |db| indexed(db, id.as_str())).await
    }

    /// Adds a stretch of a session's log. What is in already stays as it is.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a session that is gone, or the database failed.
    pub async fn add(&self, id: &SessionId, batch: Batch) -> Result<(), StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| add(db, id.as_str(), &batch).map_err(|error| gone(error, &id)))
            .await
    }

    /// Makes a session be found by its title.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a session that is gone, or the database failed.
    pub async fn set_title(&self, id: &SessionId, title: &str) -> Result<(), StoreError> {
        let (id, title) = (id.clone(), title.to_owned());
        self.0
            .write(move |db| set_title(db, id.as_str(), &title).map_err(|error| gone(error, &id)))
            .await
    }
}

fn gone(error: rusqlite::Error, id: &SessionId) -> StoreError {
    if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) {
        return StoreError::NotFound { id: id.to_string() };
    }
    error.into()
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A column that holds no negative number.
fn natural(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0))
}

fn indexed(db: &Connection, id: &str) -> Result<Indexed, StoreError> {
    let found = db
        .prepare_cached(
            "SELECT seq, bytes, cost, currency FROM session_indexed WHERE session_id = ?1",
        )?
        .query_row([id], |row| {
            Ok(Indexed {
                seq: natural(row, 0)?,
                bytes: natural(row, 1)?,
                cost: natural(row, 2)?,
                currency: row.get(3)?,
            })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

fn add(db: &mut Connection, id: &str, batch: &Batch) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    for message in &batch.messages {
        tx.prepare_cached(
            "INSERT INTO session_messages (session_id, seq, role, text) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT DO NOTHING",
        )?
        .execute((
            id,
            number(message.seq),
            message.role.as_str(),
            &message.text,
        ))?;
    }
    for turn in &batch.turns {
        tx.prepare_cached(
            "INSERT INTO session_turns (session_id, seq, day, input, output, cached, cost, currency) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
        )?
        .execute((
            id,
            number(turn.seq),
            &turn.day,
            number(turn.input),
            number(turn.output),
            number(turn.cached),
            number(turn.cost),
            &turn.currency,
        ))?;
    }
    let to = &batch.indexed;
    tx.prepare_cached(
        "INSERT INTO session_indexed (session_id, seq, bytes, cost, currency) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (session_id) DO UPDATE SET seq = ?2, bytes = ?3, cost = ?4, currency = ?5 WHERE seq <= ?2",
    )?
    .execute((
        id,
        number(to.seq),
        number(to.bytes),
        number(to.cost),
        &to.currency,
    ))?;
    tx.commit()
}

fn set_title(db: &mut Connection, id: &str, title: &str) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    tx.prepare_cached("DELETE FROM session_messages WHERE session_id = ?1 AND role = 'title'")?
        .execute([id])?;
    tx.prepare_cached(
        "INSERT INTO session_messages (session_id, seq, role, text) VALUES (?1, 0, 'title', ?2)",
    )?
    .execute((id, title))?;
    tx.commit()
}
