//! Table `sessions`: every conversation the daemon knows, running or not. Its events are in its log
//! file; `document` is the session room's own form of the rest.

use super::{Conditions, Lookup, MAX_CANDIDATES, PageRequest};
use super::{from_json, from_word, into_page, prefix_end, to_word};
use crate::db::{Store, StoreError, broken_unique, page_limit};
use handler_types::api::Page;
use handler_types::session::SessionState;
use handler_types::{AgentId, SessionId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter};
use std::collections::BTreeMap;

const TABLE: &str = "sessions";
const COLUMNS: &str =
    "id, scope, harness, provider, state, document, created_ms, updated_ms, agent_id";

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Project folder.
    pub scope: String,
    /// Harness name.
    pub harness: String,
    /// Provider name; empty: on an account, which the document names.
    pub provider: String,
    /// Its state.
    pub state: SessionState,
    /// The rest, in the session room's own form.
    pub document: serde_json::Value,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
    /// Milliseconds since the epoch.
    pub updated_ms: i64,
    /// The agent it belongs to, which may be gone.
    pub agent: Option<AgentId>,
}

/// Changes to a row; what is absent stays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionPatch {
    /// Another provider.
    pub provider: Option<String>,
    /// Another state.
    pub state: Option<SessionState>,
    /// Another document, whole.
    pub document: Option<serde_json::Value>,
}

/// Which rows a list shows; all conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionFilter {
    /// Of exactly this project folder.
    pub scope: Option<String>,
    /// In this state.
    pub state: Option<SessionState>,
    /// Of this agent.
    pub agent: Option<AgentId>,
    /// Only those that are put away, or only those that are not.
    pub archived: Option<bool>,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Sessions(pub(crate) Store);

impl Sessions {
    /// Adds a row.
    ///
    /// # Errors
    /// [`StoreError::IdTaken`], or the database failed.
    pub async fn insert(&self, row: SessionRow) -> Result<(), StoreError> {
        self.0.write(move |db| insert(db, &row)).await
    }

    /// Changes a row, sets `updated_ms` to now and returns it as it is then.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or the database failed.
    pub async fn update(
        &self,
        id: &SessionId,
        patch: SessionPatch,
    ) -> Result<SessionRow, StoreError> {
        let id = id.clone();
        self.0.write(move |db| update(db, &id, &patch)).await
    }

    /// Removes a row; says whether it was there. Its log file is the caller's.
    ///
    /// # Errors
    /// The database failed.
    pub async fn delete(&self, id: &SessionId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| {
                let gone = db
                    .prepare_cached("DELETE FROM sessions WHERE id = ?1")?
                    .execute([id.as_str()])?;
                Ok(gone > 0)
            })
            .await
    }

    /// Reads a row.
    ///
    /// # Errors
    /// The database failed, or the row cannot be read.
    pub async fn get(&self, id: &SessionId) -> Result<Option<SessionRow>, StoreError> {
        let id = id.clone();
        self.0.read(move |db| one(db, id.as_str())).await
    }

    /// A page, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or the database failed.
    pub async fn list(
        &self,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionRow>, StoreError> {
        self.0.read(move |db| list(db, &filter, &page)).await
    }

    /// Finds by id or a prefix of it.
    ///
    /// # Errors
    /// The database failed, or the row cannot be read.
    pub async fn find(&self, text: &str) -> Result<Lookup<SessionRow>, StoreError> {
        let text = text.to_owned();
        self.0.read(move |db| find(db, &text)).await
    }

    /// How many sessions there are on each account, and when one of them was changed last (milliseconds since the
    /// epoch).
    ///
    /// # Errors
    /// The database failed.
    pub async fn on_accounts(&self) -> Result<BTreeMap<String, (u64, i64)>, StoreError> {
        self.0.read(on_accounts).await
    }

    /// Every row, oldest first: what the daemon starts from.
    ///
    /// # Errors
    /// The database failed, or a row cannot be read.
    pub async fn all(&self) -> Result<Vec<SessionRow>, StoreError> {
        self.0
            .read(|db| {
                let sql = format!("SELECT {COLUMNS} FROM sessions ORDER BY created_ms, id");
                many(db, &sql, Vec::new())
            })
            .await
    }
}

fn read(row: &Row<'_>) -> Result<SessionRow, StoreError> {
    let key: String = row.get(0)?;
    Ok(SessionRow {
        id: from_word(key.clone(), TABLE, &key, "id")?,
        scope: row.get(1)?,
        harness: row.get(2)?,
        provider: row.get(3)?,
        state: from_word(row.get(4)?, TABLE, &key, "state")?,
        document: from_json(
            row.get_ref(5)?.as_str().unwrap_or(""),
            TABLE,
            &key,
            "document",
        )?,
        created_ms: row.get(6)?,
        updated_ms: row.get(7)?,
        agent: row
            .get::<_, Option<String>>(8)?
            .map(|agent| from_word(agent, TABLE, &key, "agent_id"))
            .transpose()?,
    })
}

fn on_accounts(db: &Connection) -> Result<BTreeMap<String, (u64, i64)>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT json_extract(document, '$.account'), count(*), max(updated_ms) FROM sessions \
         WHERE provider = '' GROUP BY 1",
    )?;
    let mut rows = statement.query([])?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let count: i64 = row.get(1)?;
        if let Some(account) = row.get::<_, Option<String>>(0)? {
            found.insert(
                account,
                (u64::try_from(count).unwrap_or_default(), row.get(2)?),
            );
        }
    }
    Ok(found)
}

fn one(db: &Connection, id: &str) -> Result<Option<SessionRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1");
    db.prepare_cached(&sql)?
        .query_row([id], |row| Ok(read(row)))
        .optional()?
        .transpose()
}

fn many(db: &Connection, sql: &str, values: Vec<Sql>) -> Result<Vec<SessionRow>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        out.push(read(row)?);
    }
    Ok(out)
}

fn insert(db: &Connection, row: &SessionRow) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO sessions (id, scope, harness, provider, state, document, created_ms, updated_ms, \
         agent_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute((
        row.id.as_str(),
        &row.scope,
        &row.harness,
        &row.provider,
        to_word(&row.state)?,
        serde_json::to_string(&row.document)?,
        row.created_ms,
        row.updated_ms,
        row.agent.as_ref().map(AgentId::as_str),
    ))
    .map_err(|error| match broken_unique(&error) {
        Some("sessions.id") => StoreError::IdTaken {
            id: row.id.to_string(),
        },
        _ => error.into(),
    })?;
    Ok(())
}

fn update(
    db: &mut Connection,
    id: &SessionId,
    patch: &SessionPatch,
) -> Result<SessionRow, StoreError> {
    let state = patch.state.as_ref().map(to_word).transpose()?;
    let document = patch
        .document
        .as_ref()
        .map(serde_json::to_string)
        .transpose()?;
    let tx = db.transaction()?;
    tx.prepare_cached(
        "UPDATE sessions SET provider = coalesce(?1, provider), state = coalesce(?2, state), \
         document = coalesce(?3, document), updated_ms = max(updated_ms, ?4) WHERE id = ?5",
    )?
    .execute((
        &patch.provider,
        state,
        document,
        handler_base::clock::now_ms(),
        id.as_str(),
    ))?;
    let row = one(&tx, id.as_str())?.ok_or_else(|| StoreError::NotFound { id: id.to_string() })?;
    tx.commit()?;
    Ok(row)
}

fn page_statement(
    filter: &SessionFilter,
    cursor: Option<&str>,
    limit: u32,
) -> Result<(String, Vec<Sql>), StoreError> {
    let mut conditions = Conditions::default();
    let state = filter.state.as_ref().map(to_word).transpose()?;
    conditions.equals("scope", filter.scope.as_deref());
    conditions.equals("state", state.as_deref());
    conditions.equals("agent_id", filter.agent.as_ref().map(AgentId::as_str));
    if let Some(archived) = filter.archived {
        // Nearly all are not put away: any other condition has the better index (a plus keeps this one's from use).
        let is_only = conditions.sql.is_empty();
        let condition = if is_only {
            "archived = ?"
        } else {
            "+archived = ?"
        };
        conditions.add(condition, [Sql::Integer(i64::from(archived))]);
    }
    conditions.after("created_ms", "id", cursor)?;
    let Conditions { sql, mut values } = conditions;
    values.push(Sql::Integer(i64::from(limit) + 1));
    let sql =
        format!("SELECT {COLUMNS} FROM sessions{sql} ORDER BY created_ms DESC, id DESC LIMIT ?");
    Ok((sql, values))
}

fn list(
    db: &Connection,
    filter: &SessionFilter,
    page: &PageRequest,
) -> Result<Page<SessionRow>, StoreError> {
    let limit = page_limit(page.limit);
    let (sql, values) = page_statement(filter, page.cursor.as_deref(), limit)?;
    let rows = many(db, &sql, values)?;
    Ok(into_page(rows, limit, |row| {
        (row.created_ms, row.id.as_str())
    }))
}

fn find(db: &Connection, text: &str) -> Result<Lookup<SessionRow>, StoreError> {
    if text.is_empty() {
        return Ok(Lookup::None);
    }
    if let Some(row) = one(db, text)? {
        return Ok(Lookup::Found(row));
    }
    let sql =
        format!("SELECT {COLUMNS} FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?");
    let most = i64::try_from(MAX_CANDIDATES).unwrap_or(i64::MAX);
    let values = vec![
        Sql::Text(text.to_owned()),
        Sql::Text(prefix_end(text)),
        Sql::Integer(most),
    ];
    let mut rows = many(db, &sql, values)?;
    Ok(match rows.len() {
        0 => Lookup::None,
        1 => Lookup::Found(rows.remove(0)),
        _ => Lookup::Ambiguous(rows.iter().map(|row| row.id.to_string()).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests_plan::{plan, schema};

    #[test]
    fn every_list_walks_an_index_and_sorts_nothing() {
        let db = schema();
        let scope = Some("/home/ada/code".to_owned());
        let state = Some(SessionState::Running);
        let agent = Some(AgentId::from_random([7; 8]));
        let here = Some(false);
        for (scope, state, agent, archived, index) in [
            (None, None, None, None, "sessions_by_age"),
            (None, None, None, here, "sessions_by_archived"),
            (scope.clone(), None, None, None, "sessions_by_scope"),
            (scope.clone(), None, None, here, "sessions_by_scope"),
            (None, state, None, None, "sessions_by_state"),
            (None, state, None, here, "sessions_by_state"),
            (None, None, agent.clone(), None, "sessions_by_agent"),
            (None, None, agent, here, "sessions_by_agent"),
            (scope, state, None, None, "sessions_by_s"),
        ] {
            let filter = SessionFilter {
                scope,
                state,
                agent,
                archived,
            };
            for cursor in [None, Some("1.s_0102030405060708")] {
                let (sql, values) = page_statement(&filter, cursor, 50).expect("statement");
                let plan = plan(&db, &sql, &values);
                assert!(plan.contains(index), "{filter:?}: {plan}");
                assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
            }
        }
    }
}
