//! Table `agents`: what sessions open on, in projects and outside.
//!
//! Invariant: names in a project differ, whatever the case; a project's default agent is one of its own or none.

use super::{from_json, from_word, projects};
use crate::db::{Store, StoreError, broken_unique};
use handler_types::agent::AgentSettings;
use handler_types::{AgentId, ProjectId};
use rusqlite::{Connection, OptionalExtension as _, Row};

const TABLE: &str = "agents";
const COLUMNS: &str = "id, project_id, document, created_ms, updated_ms, used_ms";

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRow {
    /// Its id.
    pub id: AgentId,
    /// The project it is an agent of; none: outside projects.
    pub project: Option<ProjectId>,
    /// How it is set up.
    pub settings: AgentSettings,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
    /// Milliseconds since the epoch.
    pub updated_ms: i64,
    /// When a session of it last started, milliseconds since the epoch.
    pub used_ms: Option<i64>,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Agents(pub(crate) Store);

impl Agents {
    /// Adds an agent; in a project also as its default.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without its project, [`StoreError::NameTaken`], [`StoreError::IdTaken`], or the
    /// database failed.
    pub async fn insert(&self, row: AgentRow, is_default: bool) -> Result<(), StoreError> {
        self.0
            .write(move |db| {
                let tx = db.transaction()?;
                if let Some(project) = &row.project {
                    let found = projects::one(&tx, project)?;
                    found.ok_or_else(|| StoreError::NotFound {
                        id: project.to_string(),
                    })?;
                }
                insert(&tx, &row)?;
                if is_default {
                    make_default(&tx, &row)?;
                }
                Ok(tx.commit()?)
            })
            .await
    }

    /// Sets it up anew, whole, and returns it as it is then; also as its project's default.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::NameTaken`], or the database failed.
    pub async fn update(
        &self,
        id: &AgentId,
        settings: AgentSettings,
        is_default: bool,
    ) -> Result<AgentRow, StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| {
                let tx = db.transaction()?;
                let row = update(&tx, &id, &settings)?;
                if is_default {
                    make_default(&tx, &row)?;
                }
                tx.commit()?;
                Ok(row)
            })
            .await
    }

    /// Notes that it is used now.
    ///
    /// # Errors
    /// The database failed.
    pub async fn touch(&self, id: &AgentId) -> Result<(), StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| {
                db.prepare_cached("UPDATE agents SET used_ms = ?1 WHERE id = ?2")?
                    .execute((handler_base::clock::now_ms(), id.as_str()))?;
                Ok(())
            })
            .await
    }

    /// Removes it; it is then no project's default. Says whether it was there.
    ///
    /// # Errors
    /// The database failed.
    pub async fn delete(&self, id: &AgentId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| {
                let tx = db.transaction()?;
                let Some(row) = one(&tx, &id)? else {
                    return Ok(false);
                };
                if let Some(id) = &row.project
                    && let Some(mut project) = projects::one(&tx, id)?
                    && project.settings.default_agent.as_ref() == Some(&row.id)
                {
                    project.settings.default_agent = None;
                    projects::write(&tx, id, &project.settings)?;
                }
                tx.prepare_cached("DELETE FROM agents WHERE id = ?1")?
                    .execute([id.as_str()])?;
                tx.commit()?;
                Ok(true)
            })
            .await
    }

    /// Reads one.
    ///
    /// # Errors
    /// The database failed, or the row cannot be read.
    pub async fn get(&self, id: &AgentId) -> Result<Option<AgentRow>, StoreError> {
        let id = id.clone();
        self.0.read(move |db| one(db, &id)).await
    }

    /// Every agent, oldest first.
    ///
    /// # Errors
    /// The database failed, or a row cannot be read.
    pub async fn all(&self) -> Result<Vec<AgentRow>, StoreError> {
        self.0
            .read(|db| {
                let sql = format!("SELECT {COLUMNS} FROM agents ORDER BY created_ms, id");
                let mut statement = db.prepare_cached(&sql)?;
                let mut rows = statement.query([])?;
                let mut out = Vec::new();
                while let Some(row) = rows.next()? {
                    out.push(read(row)?);
                }
                Ok(out)
            })
            .await
    }
}

fn read(row: &Row<'_>) -> Result<AgentRow, StoreError> {
    let key: String = row.get(0)?;
    let project: Option<String> = row.get(1)?;
    let document = row.get_ref(2)?.as_str().unwrap_or("");
    Ok(AgentRow {
        project: project
            .map(|project| from_word(project, TABLE, &key, "project_id"))
            .transpose()?,
        settings: from_json(document, TABLE, &key, "document")?,
        id: from_word(key.clone(), TABLE, &key, "id")?,
        created_ms: row.get(3)?,
        updated_ms: row.get(4)?,
        used_ms: row.get(5)?,
    })
}

fn one(db: &Connection, id: &AgentId) -> Result<Option<AgentRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM agents WHERE id = ?1");
    db.prepare_cached(&sql)?
        .query_row([id.as_str()], |row| Ok(read(row)))
        .optional()?
        .transpose()
}

fn name_key(settings: &AgentSettings) -> Option<String> {
    settings.name.as_ref().map(|name| name.to_lowercase())
}

fn taken(error: rusqlite::Error, settings: &AgentSettings, id: &AgentId) -> StoreError {
    match broken_unique(&error) {
        Some("agents.id") => StoreError::IdTaken { id: id.to_string() },
        Some(columns) if columns.contains("agents.name_key") => StoreError::NameTaken {
            name: settings.name.clone().unwrap_or_default(),
        },
        _ => error.into(),
    }
}

/// Adds a row whose project, if it has one, is there.
pub(super) fn insert(db: &Connection, row: &AgentRow) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO agents (id, project_id, name_key, document, created_ms, updated_ms, used_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute((
        row.id.as_str(),
        row.project.as_ref().map(ProjectId::as_str),
        name_key(&row.settings),
        serde_json::to_string(&row.settings)?,
        row.created_ms,
        row.updated_ms,
        row.used_ms,
    ))
    .map_err(|error| taken(error, &row.settings, &row.id))?;
    Ok(())
}

fn update(db: &Connection, id: &AgentId, settings: &AgentSettings) -> Result<AgentRow, StoreError> {
    db.prepare_cached(
        "UPDATE agents SET name_key = ?1, document = ?2, updated_ms = max(updated_ms, ?3) WHERE id = ?4",
    )?
    .execute((
        name_key(settings),
        serde_json::to_string(settings)?,
        handler_base::clock::now_ms(),
        id.as_str(),
    ))
    .map_err(|error| taken(error, settings, id))?;
    one(db, id)?.ok_or_else(|| StoreError::NotFound { id: id.to_string() })
}

fn make_default(db: &Connection, row: &AgentRow) -> Result<(), StoreError> {
    if let Some(id) = &row.project
        && let Some(mut project) = projects::one(db, id)?
    {
        project.settings.default_agent = Some(row.id.clone());
        projects::write(db, id, &project.settings)?;
    }
    Ok(())
}
