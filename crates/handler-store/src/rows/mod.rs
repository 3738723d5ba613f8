//! The tables, one file each: the rows as Rust values and the statements that read and write them.
//!
//! Lists go newest first by (creation time, id); a cursor is the place where the last page ended.

mod agents;
mod idempotency;
mod kv;
mod projects;
mod sandboxes;
mod sessions;
#[cfg(test)]
mod tests_plan;
mod texts;

use crate::db::{Cursor, StoreError};
use handler_types::api::Page;
use rusqlite::types::Value as Sql;

pub use agents::{AgentRow, Agents};
pub use idempotency::{Begin, Idempotency, MAX_KEPT_RESPONSE, Request, StoredResponse};
pub use kv::KeyValues;
pub use projects::{ProjectRow, Projects};
pub use sandboxes::{
    AllSandboxes, BrokenSandbox, SandboxFilter, SandboxIntent, SandboxPatch, SandboxRow, Sandboxes,
};
pub use sessions::{SessionFilter, SessionPatch, SessionRow, Sessions};
pub use texts::{
    Batch, Indexed, Message, MessageHit, Role, SearchFilter, SessionTexts, TurnUsage, UsageBy,
    UsageFilter, UsageSum,
};

pub(crate) use idempotency::forget_under_way;

/// Most candidates named when an id prefix fits several.
pub const MAX_CANDIDATES: usize = 10;

/// What a name or an id prefix leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup<T> {
    /// Exactly one.
    Found(T),
    /// Several: their ids, at most [`MAX_CANDIDATES`].
    Ambiguous(Vec<String>),
    /// Nothing.
    None,
}

/// Where a page starts and how long it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageRequest {
    /// `next_cursor` of the page before; absent: the newest.
    pub cursor: Option<String>,
    /// Most rows: 1 to 500, brought into that range; absent: 50.
    pub limit: Option<u32>,
}

/// A SELECT being put together: conditions joined by AND and their values.
#[derive(Debug, Default)]
struct Conditions {
    sql: String,
    values: Vec<Sql>,
}

impl Conditions {
    /// Adds a condition; each `?` in it takes one of the values.
    fn add(&mut self, condition: &str, values: impl IntoIterator<Item = Sql>) {
        self.sql.push_str(if self.sql.is_empty() {
            " WHERE "
        } else {
            " AND "
        });
        self.sql.push_str(condition);
        self.values.extend(values);
    }

    fn equals(&mut self, column: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(&format!("{column} = ?"), [Sql::Text(value.to_owned())]);
        }
    }

    fn after(&mut self, time: &str, id: &str, cursor: Option<&str>) -> Result<(), StoreError> {
        if let Some(text) = cursor {
            let cursor = Cursor::parse(text)?;
            self.add(
                &format!("({time}, {id}) < (?, ?)"),
                [Sql::Integer(cursor.created_ms), Sql::Text(cursor.id)],
            );
        }
        Ok(())
    }
}

/// Cuts a list that has one row more than the page when another page follows.
fn into_page<T>(mut rows: Vec<T>, limit: u32, key: impl Fn(&T) -> (i64, &str)) -> Page<T> {
    let limit = limit as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = rows.last().filter(|_| more).map(|row| {
        let (created_ms, id) = key(row);
        Cursor {
            created_ms,
            id: id.to_owned(),
        }
        .to_text()
    });
    Page {
        items: rows,
        next_cursor,
    }
}

/// The end of the range of all texts that start with `prefix`.
fn prefix_end(prefix: &str) -> String {
    format!("{prefix}\u{10ffff}")
}

/// Reads a JSON column.
fn from_json<T: serde::de::DeserializeOwned>(
    text: &str,
    table: &'static str,
    id: &str,
    column: &'static str,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::BadRow {
        table,
        id: id.to_owned(),
        column,
        detail: error.to_string(),
    })
}

/// Reads a column that holds the wire word of an enum.
fn from_word<T: serde::de::DeserializeOwned>(
    text: String,
    table: &'static str,
    id: &str,
    column: &'static str,
) -> Result<T, StoreError> {
    serde_json::from_value(serde_json::Value::String(text)).map_err(|error| StoreError::BadRow {
        table,
        id: id.to_owned(),
        column,
        detail: error.to_string(),
    })
}

/// The wire word of an enum without fields.
fn to_word<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    match serde_json::to_value(value)? {
        serde_json::Value::String(word) => Ok(word),
        other => Err(StoreError::Encode(serde::ser::Error::custom(format!(
            "{other} is not a word"
        )))),
    }
}
