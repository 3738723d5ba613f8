//! Finding messages by their words, the latest first.

use super::{Role, SessionTexts, natural, query};
use crate::db::{StoreError, page_limit};
use crate::rows::{Conditions, PageRequest, from_word};
use handler_types::SessionId;
use handler_types::api::Page;
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, Row, params_from_iter};

/// Words round a find.
const WORDS: u32 = 24;

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchFilter {
    /// What was typed: all words must be in one message, the last one may go on; words in double quotes stand
    /// together. Case and accents do not matter.
    pub text: String,
    /// Only in this project folder.
    pub scope: Option<String>,
    /// Only in this session.
    pub session: Option<SessionId>,
    /// In archived sessions too.
    pub with_archived: bool,
}

/// A message that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHit {
    /// Its place among all messages.
    key: i64,
    /// Its session.
    pub session: SessionId,
    /// Its first event; 0 for a title.
    pub seq: u64,
    /// Who said it.
    pub role: Role,
    /// What stands round the find; each found word between `\u{2}` and `\u{3}`.
    pub snippet: String,
}

impl SessionTexts {
    /// Messages with these words, the latest first. Nothing is found by a text without letters or digits.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or the database failed.
    pub async fn search(
        &self,
        filter: SearchFilter,
        page: PageRequest,
    ) -> Result<Page<MessageHit>, StoreError> {
        self.0.read(move |db| search(db, &filter, &page)).await
    }
}

fn search(
    db: &Connection,
    filter: &SearchFilter,
    page: &PageRequest,
) -> Result<Page<MessageHit>, StoreError> {
    let limit = page_limit(page.limit);
    let Some((sql, values)) = statement(filter, page.cursor.as_deref(), limit)? else {
        return Ok(Page {
            items: Vec::new(),
            next_cursor: None,
        });
    };
    let mut found = db.prepare_cached(&sql)?;
    let mut rows = found.query(params_from_iter(values))?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        items.push(read(row)?);
    }
    let has_more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next_cursor = items
        .last()
        .filter(|_| has_more)
        .map(|hit: &MessageHit| hit.key.to_string());
    Ok(Page { items, next_cursor })
}

fn statement(
    filter: &SearchFilter,
    cursor: Option<&str>,
    limit: u32,
) -> Result<Option<(String, Vec<Sql>)>, StoreError> {
    let Some(expression) = query::expression(&filter.text) else {
        return Ok(None);
    };
    let mut conditions = Conditions::default();
    conditions.add("session_words MATCH ?", [Sql::Text(expression)]);
    if let Some(cursor) = cursor {
        let key: i64 = cursor.parse().map_err(|_| StoreError::BadCursor)?;
        conditions.add("session_words.rowid < ?", [Sql::Integer(key)]);
    }
    conditions.equals("s.scope", filter.scope.as_deref());
    conditions.equals(
        "m.session_id",
        filter.session.as_ref().map(SessionId::as_str),
    );
    if !filter.with_archived {
        conditions.add("s.archived = 0", []);
    }
    let Conditions { sql, mut values } = conditions;
    values.push(Sql::Integer(i64::from(limit) + 1));
    let sql = format!(
        "SELECT m.id, m.session_id, m.seq, m.role, \
         snippet(session_words, 0, char(2), char(3), '…', {WORDS}) \
         FROM session_words JOIN session_messages m ON m.id = session_words.rowid \
         JOIN sessions s ON s.id = m.session_id{sql} ORDER BY session_words.rowid DESC LIMIT ?"
    );
    Ok(Some((sql, values)))
}

fn read(row: &Row<'_>) -> Result<MessageHit, StoreError> {
    let session: String = row.get(1)?;
    Ok(MessageHit {
        key: row.get(0)?,
        session: from_word(session.clone(), "session_messages", &session, "session_id")?,
        seq: natural(row, 2)?,
        role: Role::from_stored(row.get_ref(3)?.as_str().unwrap_or_default()),
        snippet: row.get(4)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests_plan::{plan, schema};

    #[test]
    fn the_latest_finds_come_without_sorting() {
        let db = schema();
        let filter = SearchFilter {
            text: "word".into(),
            scope: Some("/p".into()),
            ..SearchFilter::default()
        };
        let (sql, values) = statement(&filter, Some("7"), 50)
            .expect("statement")
            .expect("words");
        let plan = plan(&db, &sql, &values);
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}
