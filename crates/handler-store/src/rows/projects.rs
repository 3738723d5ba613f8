//! Table `projects`: folders and what was said of them.
//!
//! Invariant: a project and the agents it is made with are written in one step, and go in one.

use super::agents::{self, AgentRow};
use super::{from_json, from_word};
use crate::db::{Store, StoreError, broken_unique};
use handler_types::ProjectId;
use handler_types::project::ProjectSettings;
use rusqlite::{Connection, OptionalExtension as _, Row};

const TABLE: &str = "projects";
const COLUMNS: &str = "id, document, created_ms, updated_ms, used_ms";

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectRow {
    /// Its id.
    pub id: ProjectId,
    /// What was said; the folder is canonical and no other project's.
    pub settings: ProjectSettings,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
    /// Milliseconds since the epoch.
    pub updated_ms: i64,
    /// When a session of its agents last started, milliseconds since the epoch.
    pub used_ms: Option<i64>,
}

/// The table.
#[derive(Debug, Clone)]
pub struct Projects(pub(crate) Store);

impl Projects {
    /// Adds a project and its first agents, all or none.
    ///
    /// # Errors
    /// [`StoreError::FolderTaken`], [`StoreError::NameTaken`], [`StoreError::IdTaken`], or the database failed.
    pub async fn insert(&self, row: ProjectRow, agents: Vec<AgentRow>) -> Result<(), StoreError> {
        self.0
            .write(move |db| {
                let tx = db.transaction()?;
                insert(&tx, &row)?;
                for agent in &agents {
                    agents::insert(&tx, agent)?;
                }
                Ok(tx.commit()?)
            })
            .await
    }

    /// Says something else of it, whole, and returns it as it is then.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::FolderTaken`], or the database failed.
    pub async fn update(
        &self,
        id: &ProjectId,
        settings: ProjectSettings,
    ) -> Result<ProjectRow, StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| {
                let tx = db.transaction()?;
                write(&tx, &id, &settings)?;
                let row = one(&tx, &id)?.ok_or_else(|| missing(&id))?;
                tx.commit()?;
                Ok(row)
            })
            .await
    }

    /// Notes that it is used now.
    ///
    /// # Errors
    /// The database failed.
    pub async fn touch(&self, id: &ProjectId) -> Result<(), StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| {
                db.prepare_cached("UPDATE projects SET used_ms = ?1 WHERE id = ?2")?
                    .execute((handler_base::clock::now_ms(), id.as_str()))?;
                Ok(())
            })
            .await
    }

    /// Removes it with its agents; says whether it was there.
    ///
    /// # Errors
    /// The database failed.
    pub async fn delete(&self, id: &ProjectId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.0
            .write(move |db| {
                let gone = db
                    .prepare_cached("DELETE FROM projects WHERE id = ?1")?
                    .execute([id.as_str()])?;
                Ok(gone > 0)
            })
            .await
    }

    /// Reads one.
    ///
    /// # Errors
    /// The database failed, or the row cannot be read.
    pub async fn get(&self, id: &ProjectId) -> Result<Option<ProjectRow>, StoreError> {
        let id = id.clone();
        self.0.read(move |db| one(db, &id)).await
    }

    /// Every project, last used first; those never used by their age, newest first.
    ///
    /// # Errors
    /// The database failed, or a row cannot be read.
    pub async fn all(&self) -> Result<Vec<ProjectRow>, StoreError> {
        self.0
            .read(|db| {
                let sql = format!(
                    "SELECT {COLUMNS} FROM projects ORDER BY coalesce(used_ms, created_ms) DESC, id"
                );
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

fn missing(id: &ProjectId) -> StoreError {
    StoreError::NotFound { id: id.to_string() }
}

fn read(row: &Row<'_>) -> Result<ProjectRow, StoreError> {
    let key: String = row.get(0)?;
    let document = row.get_ref(1)?.as_str().unwrap_or("");
    Ok(ProjectRow {
        settings: from_json(document, TABLE, &key, "document")?,
        id: from_word(key.clone(), TABLE, &key, "id")?,
        created_ms: row.get(2)?,
        updated_ms: row.get(3)?,
        used_ms: row.get(4)?,
    })
}

pub(super) fn one(db: &Connection, id: &ProjectId) -> Result<Option<ProjectRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM projects WHERE id = ?1");
    db.prepare_cached(&sql)?
        .query_row([id.as_str()], |row| Ok(read(row)))
        .optional()?
        .transpose()
}

fn taken(error: rusqlite::Error, settings: &ProjectSettings, id: &ProjectId) -> StoreError {
    match broken_unique(&error) {
        Some("projects.folder") => StoreError::FolderTaken {
            folder: settings.folder.clone(),
        },
        Some("projects.id") => StoreError::IdTaken { id: id.to_string() },
        _ => error.into(),
    }
}

fn insert(db: &Connection, row: &ProjectRow) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO projects (id, folder, document, created_ms, updated_ms, used_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute((
        row.id.as_str(),
        &row.settings.folder,
        serde_json::to_string(&row.settings)?,
        row.created_ms,
        row.updated_ms,
        row.used_ms,
    ))
    .map_err(|error| taken(error, &row.settings, &row.id))?;
    Ok(())
}

/// Writes the settings of a project that is there.
pub(super) fn write(
    db: &Connection,
    id: &ProjectId,
    settings: &ProjectSettings,
) -> Result<(), StoreError> {
    db.prepare_cached(
        "UPDATE projects SET folder = ?1, document = ?2, updated_ms = max(updated_ms, ?3) WHERE id = ?4",
    )?
    .execute((
        &settings.folder,
        serde_json::to_string(settings)?,
        handler_base::clock::now_ms(),
        id.as_str(),
    ))
    .map_err(|error| taken(error, settings, id))?;
    Ok(())
}
