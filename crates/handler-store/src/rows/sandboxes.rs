//! Table `sandboxes`: what exists or is about to, and what is wanted of it.
//!
//! Invariant: a row is written before anything of its sandbox is made and removed after all of it is
//! gone. Labels of the spec are kept a second time in `sandbox_labels`, in the same transaction.

use super::{Conditions, Lookup, MAX_CANDIDATES, PageRequest};
use super::{from_json, from_word, into_page, prefix_end, to_word};
use crate::db::{Store, StoreError, broken_unique, page_limit};
use handler_types::api::Page;
use handler_types::sandbox::{SandboxSpec, SandboxState};
use handler_types::{SandboxId, SessionId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params_from_iter};
use serde::{Deserialize, Serialize};

const TABLE: &str = "sandboxes";
const COLUMNS: &str = "s.id, s.name, s.backend, s.spec, s.state, s.intent, s.instance, s.warnings, \
                       s.error, s.session_id, s.created_ms, s.updated_ms";

/// What is wanted of a sandbox, whatever its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxIntent {
    /// It should run.
    Run,
    /// It should have no instance.
    Stop,
    /// It should be gone.
    Delete,
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxRow {
    /// Its id.
    pub id: SandboxId,
    /// Name chosen by the person, unique.
    pub name: Option<String>,
    /// Its backend.
    pub backend: String,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// Its state.
    pub state: SandboxState,
    /// What is wanted of it.
    pub intent: SandboxIntent,
    /// The started instance, in the engine's own form.
    pub instance: Option<serde_json::Value>,
    /// What could not be enforced.
    pub warnings: Vec<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// The session that owns it.
    pub session_id: Option<SessionId>,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
    /// Milliseconds since the epoch.
    pub updated_ms: i64,
}

/// Changes to a row; what is absent stays. Where a column may be empty, `Some(None)` empties it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SandboxPatch {
    /// Another name.
    pub name: Option<Option<String>>,
    /// Another spec (labels included).
    pub spec: Option<SandboxSpec>,
    /// Another state.
    pub state: Option<SandboxState>,
    /// Another intent.
    pub intent: Option<SandboxIntent>,
    /// Another instance.
    pub instance: Option<Option<serde_json::Value>>,
    /// Other warnings.
    pub warnings: Option<Vec<String>>,
    /// Another error.
    pub error: Option<Option<String>>,
    /// Another owner.
    pub session_id: Option<Option<SessionId>>,
}

/// Which rows a list shows; all conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxFilter {
    /// In this state.
    pub state: Option<SandboxState>,
    /// Of this backend.
    pub backend: Option<String>,
    /// With exactly this name.
    pub name: Option<String>,
    /// With each of these labels (key, value).
    pub labels: Vec<(String, String)>,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Sandboxes(pub(crate) Store);

impl Sandboxes {
    /// Adds a row.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`] and [`StoreError::IdTaken`], or the database failed.
    pub async fn insert(&self, row: SandboxRow) -> Result<(), StoreError> {
        self.0.write(move |db| insert(db, &row)).await
    }

    /// Changes a row, sets `updated_ms` to now and returns it as it is then.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::NameTaken`], or the database failed.
    pub async fn update(
        &self,
        id: &SandboxId,
        patch: SandboxPatch,
    ) -> Result<SandboxRow, StoreError> {
        let id = id.clone();
        self.0.write(move |db| update(db, &id, &patch)).await
    }

    /// Removes a row; says whether it was there.
    ///
    /// # Errors
    /// The database failed.
    pub async fn delete(&self, id: &SandboxId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| {
                let gone = db
                    .prepare_cached("DELETE FROM sandboxes WHERE id = ?1")?
                    .execute([id.as_str()])?;
                Ok(gone > 0)
            })
            .await
    }

    /// Reads a row.
    ///
    /// # Errors
    /// The database failed, or the row cannot be read.
    pub async fn get(&self, id: &SandboxId) -> Result<Option<SandboxRow>, StoreError> {
        let id = id.clone();
        self.0
            .read(move |db| one(db, "s.id = ?1", id.as_str()))
            .await
    }

    /// A page, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or the database failed.
    pub async fn list(
        &self,
        filter: SandboxFilter,
        page: PageRequest,
    ) -> Result<Page<SandboxRow>, StoreError> {
        self.0.read(move |db| list(db, &filter, &page)).await
    }

    /// Finds by exact id, exact name, or a prefix of the id, in this order.
    ///
    /// # Errors
    /// The database failed, or the row cannot be read.
    pub async fn find(&self, text: &str) -> Result<Lookup<SandboxRow>, StoreError> {
        let text = text.to_owned();
        self.0.read(move |db| find(db, &text)).await
    }

    /// The sandboxes a session owns, newest first.
    ///
    /// # Errors
    /// The database failed, or a row cannot be read.
    pub async fn of_session(&self, id: &SessionId) -> Result<Vec<SandboxRow>, StoreError> {
        let id = id.as_str().to_owned();
        self.0
            .read(move |db| {
                let sql = format!(
                    "SELECT {COLUMNS} FROM sandboxes s WHERE s.session_id = ? \
                     ORDER BY s.created_ms DESC, s.id DESC"
                );
                many(db, &sql, vec![Sql::Text(id)])
            })
            .await
    }

    /// Every row, oldest first: what reconcile starts from.
    ///
    /// # Errors
    /// The database failed, or a row cannot be read.
    pub async fn all(&self) -> Result<Vec<SandboxRow>, StoreError> {
        self.0
            .read(|db| {
                let sql = format!("SELECT {COLUMNS} FROM sandboxes s ORDER BY s.created_ms, s.id");
                many(db, &sql, Vec::new())
            })
            .await
    }
}

fn read(row: &Row<'_>) -> Result<SandboxRow, StoreError> {
    let key: String = row.get(0)?;
    let text = |column| row.get::<_, Option<String>>(column);
    let id = from_word(key.clone(), TABLE, &key, "id")?;
    let instance = text(6)?
        .map(|json| from_json(&json, TABLE, &key, "instance"))
        .transpose()?;
    let session_id = text(9)?
        .map(|word| from_word(word, TABLE, &key, "session_id"))
        .transpose()?;
    Ok(SandboxRow {
        id,
        name: row.get(1)?,
        backend: row.get(2)?,
        spec: from_json(row.get_ref(3)?.as_str().unwrap_or(""), TABLE, &key, "spec")?,
        state: from_word(row.get(4)?, TABLE, &key, "state")?,
        intent: from_word(row.get(5)?, TABLE, &key, "intent")?,
        instance,
        warnings: from_json(&row.get::<_, String>(7)?, TABLE, &key, "warnings")?,
        error: row.get(8)?,
        session_id,
        created_ms: row.get(10)?,
        updated_ms: row.get(11)?,
    })
}

fn one(db: &Connection, condition: &str, key: &str) -> Result<Option<SandboxRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM sandboxes s WHERE {condition}");
    db.prepare_cached(&sql)?
        .query_row([key], |row| Ok(read(row)))
        .optional()?
        .transpose()
}

fn many(db: &Connection, sql: &str, values: Vec<Sql>) -> Result<Vec<SandboxRow>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        out.push(read(row)?);
    }
    Ok(out)
}

fn taken(error: rusqlite::Error, name: Option<&str>, id: &SandboxId) -> StoreError {
    match (broken_unique(&error), name) {
        (Some("sandboxes.name"), Some(name)) => StoreError::NameTaken {
            name: name.to_owned(),
        },
        (Some("sandboxes.id"), _) => StoreError::IdTaken { id: id.to_string() },
        _ => error.into(),
    }
}

fn insert(db: &mut Connection, row: &SandboxRow) -> Result<(), StoreError> {
    let instance = row
        .instance
        .as_ref()
        .map(serde_json::to_string)
        .transpose()?;
    let tx = db.transaction()?;
    tx.prepare_cached(
        "INSERT INTO sandboxes (id, name, backend, spec, state, intent, instance, warnings, error, \
         session_id, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute((
        row.id.as_str(),
        &row.name,
        &row.backend,
        serde_json::to_string(&row.spec)?,
        to_word(&row.state)?,
        to_word(&row.intent)?,
        instance,
        serde_json::to_string(&row.warnings)?,
        &row.error,
        row.session_id.as_ref().map(SessionId::as_str),
        row.created_ms,
        row.updated_ms,
    ))
    .map_err(|error| taken(error, row.name.as_deref(), &row.id))?;
    put_labels(&tx, row)?;
    tx.commit()?;
    Ok(())
}

fn put_labels(tx: &Transaction<'_>, row: &SandboxRow) -> Result<(), StoreError> {
    let mut add = tx.prepare_cached(
        "INSERT INTO sandbox_labels (key, value, created_ms, sandbox_id) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (key, value) in &row.spec.labels {
        add.execute((key, value, row.created_ms, row.id.as_str()))?;
    }
    Ok(())
}

fn update(
    db: &mut Connection,
    id: &SandboxId,
    patch: &SandboxPatch,
) -> Result<SandboxRow, StoreError> {
    let (columns, mut values) = changes(patch)?;
    let tx = db.transaction()?;
    // The clock may be set back; a row never seems older than it was.
    let sql = format!("UPDATE sandboxes SET {columns}updated_ms = max(updated_ms, ?) WHERE id = ?");
    values.push(Sql::Integer(handler_base::clock::now_ms()));
    values.push(Sql::Text(id.to_string()));
    let name = patch.name.as_ref().and_then(Option::as_deref);
    let changed = tx
        .prepare_cached(&sql)?
        .execute(params_from_iter(values))
        .map_err(|error| taken(error, name, id))?;
    let row = match changed {
        0 => None,
        _ => one(&tx, "s.id = ?1", id.as_str())?,
    };
    let row = row.ok_or_else(|| StoreError::NotFound { id: id.to_string() })?;
    if patch.spec.is_some() {
        tx.prepare_cached("DELETE FROM sandbox_labels WHERE sandbox_id = ?1")?
            .execute([id.as_str()])?;
        put_labels(&tx, &row)?;
    }
    tx.commit()?;
    Ok(row)
}

/// The SET list of a patch (each item ends in a comma) and its values.
fn changes(patch: &SandboxPatch) -> Result<(String, Vec<Sql>), StoreError> {
    let optional = |value: Option<String>| value.map_or(Sql::Null, Sql::Text);
    let mut set = Vec::new();
    if let Some(name) = &patch.name {
        set.push(("name", optional(name.clone())));
    }
    if let Some(spec) = &patch.spec {
        set.push(("spec", Sql::Text(serde_json::to_string(spec)?)));
    }
    if let Some(state) = &patch.state {
        set.push(("state", Sql::Text(to_word(state)?)));
    }
    if let Some(intent) = &patch.intent {
        set.push(("intent", Sql::Text(to_word(intent)?)));
    }
    if let Some(instance) = &patch.instance {
        let json = instance.as_ref().map(serde_json::to_string).transpose()?;
        set.push(("instance", optional(json)));
    }
    if let Some(warnings) = &patch.warnings {
        set.push(("warnings", Sql::Text(serde_json::to_string(warnings)?)));
    }
    if let Some(error) = &patch.error {
        set.push(("error", optional(error.clone())));
    }
    if let Some(session) = &patch.session_id {
        let id = session.as_ref().map(SessionId::to_string);
        set.push(("session_id", optional(id)));
    }
    let columns = set
        .iter()
        .map(|(name, _)| format!("{name} = ?, "))
        .collect();
    Ok((columns, set.into_iter().map(|(_, value)| value).collect()))
}

/// The statement of a page. With a label the label's index leads, else the sandboxes' own.
fn page_statement(
    filter: &SandboxFilter,
    cursor: Option<&str>,
    limit: u32,
) -> Result<(String, Vec<Sql>), StoreError> {
    let mut conditions = Conditions::default();
    let mut labels = filter.labels.iter();
    let (from, time, id) = match labels.next() {
        None => ("sandboxes s", "s.created_ms", "s.id"),
        Some((key, value)) => {
            conditions.equals("l.key", Some(key));
            conditions.equals("l.value", Some(value));
            // CROSS JOIN keeps the label first, so that rows come in the order of the page.
            let from = "sandbox_labels l CROSS JOIN sandboxes s ON s.id = l.sandbox_id";
            (from, "l.created_ms", "l.sandbox_id")
        }
    };
    for (key, value) in labels {
        conditions.add(
            "EXISTS (SELECT 1 FROM sandbox_labels m WHERE m.key = ? AND m.value = ? \
             AND m.created_ms = s.created_ms AND m.sandbox_id = s.id)",
            [Sql::Text(key.clone()), Sql::Text(value.clone())],
        );
    }
    let state = filter.state.as_ref().map(to_word).transpose()?;
    conditions.equals("s.state", state.as_deref());
    conditions.equals("s.backend", filter.backend.as_deref());
    conditions.equals("s.name", filter.name.as_deref());
    conditions.after(time, id, cursor)?;
    let Conditions { sql, mut values } = conditions;
    values.push(Sql::Integer(i64::from(limit) + 1));
    let sql = format!("SELECT {COLUMNS} FROM {from}{sql} ORDER BY {time} DESC, {id} DESC LIMIT ?");
    Ok((sql, values))
}

fn list(
    db: &Connection,
    filter: &SandboxFilter,
    page: &PageRequest,
) -> Result<Page<SandboxRow>, StoreError> {
    let limit = page_limit(page.limit);
    let (sql, values) = page_statement(filter, page.cursor.as_deref(), limit)?;
    let rows = many(db, &sql, values)?;
    Ok(into_page(rows, limit, |row| {
        (row.created_ms, row.id.as_str())
    }))
}

fn find(db: &Connection, text: &str) -> Result<Lookup<SandboxRow>, StoreError> {
    if text.is_empty() {
        return Ok(Lookup::None);
    }
    for exact in ["s.id = ?1", "s.name = ?1"] {
        if let Some(row) = one(db, exact, text)? {
            return Ok(Lookup::Found(row));
        }
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM sandboxes s WHERE s.id >= ? AND s.id < ? ORDER BY s.id LIMIT ?"
    );
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

    fn plan_of(filter: &SandboxFilter, cursor: Option<&str>) -> String {
        let (sql, values) = page_statement(filter, cursor, 50).expect("statement");
        plan(&schema(), &sql, &values)
    }

    #[test]
    fn every_list_walks_an_index_and_sorts_nothing() {
        let label = |key: &str| (key.to_owned(), "v".to_owned());
        let cases = [
            (SandboxFilter::default(), "sandboxes_by_age"),
            (
                SandboxFilter {
                    state: Some(SandboxState::Running),
                    ..SandboxFilter::default()
                },
                "sandboxes_by_state",
            ),
            (
                SandboxFilter {
                    backend: Some("native".into()),
                    ..SandboxFilter::default()
                },
                "sandboxes_by_backend",
            ),
            (
                SandboxFilter {
                    name: Some("a".into()),
                    ..SandboxFilter::default()
                },
                "sqlite_autoindex_sandboxes_2",
            ),
            (
                SandboxFilter {
                    labels: vec![label("a")],
                    ..SandboxFilter::default()
                },
                "SEARCH l USING PRIMARY KEY",
            ),
            (
                SandboxFilter {
                    state: Some(SandboxState::Running),
                    labels: vec![label("a"), label("b")],
                    ..SandboxFilter::default()
                },
                "SEARCH l USING PRIMARY KEY",
            ),
        ];
        for (filter, index) in cases {
            for cursor in [None, Some("1.sb0102030405060708")] {
                let plan = plan_of(&filter, cursor);
                assert!(plan.contains(index), "{filter:?}: {plan}");
                assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
            }
        }
    }

    #[test]
    fn look_ups_search_and_never_scan() {
        let db = schema();
        let id_range = "SELECT s.id FROM sandboxes s WHERE s.id >= ? AND s.id < ? ORDER BY s.id";
        let text = |t: &str| Sql::Text(t.to_owned());
        for (sql, values) in [
            (id_range, vec![text("sb01"), text("sb02")]),
            ("SELECT id FROM sandboxes WHERE name = ?", vec![text("a")]),
            (
                "SELECT id FROM sandboxes WHERE session_id = ?",
                vec![text("s")],
            ),
        ] {
            let plan = plan(&db, sql, &values);
            assert!(plan.contains("SEARCH") && !plan.contains("SCAN"), "{plan}");
        }
    }
}
