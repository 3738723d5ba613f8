//! Table `sandboxes`: what exists or is about to, and what is wanted of it.
//!
//! Invariant: a row is written before anything of its sandbox is made and removed after all of it is
//! gone. Labels of the spec are kept a second time in `sandbox_labels`, in the same transaction.

mod query;
mod write;

use super::{Lookup, PageRequest};
use crate::db::{Store, StoreError};
use handler_types::api::Page;
use handler_types::sandbox::{SandboxSpec, SandboxState};
use handler_types::{SandboxId, SessionId};
use serde::{Deserialize, Serialize};

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
    /// When it is removed, milliseconds since the epoch; none: never.
    pub expires_ms: Option<i64>,
    /// It rests because nobody used it.
    pub idled: bool,
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
    /// Another end.
    pub expires_ms: Option<Option<i64>>,
    /// Whether it rests because nobody used it.
    pub idled: Option<bool>,
}

/// A row that cannot be read, with what can be read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenSandbox {
    /// Its id.
    pub id: SandboxId,
    /// Its backend, as far as it is known.
    pub backend: String,
    /// What is wrong.
    pub reason: String,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
}

/// Every row there is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AllSandboxes {
    /// Those that can be read, oldest first.
    pub rows: Vec<SandboxRow>,
    /// Those that cannot.
    pub broken: Vec<BrokenSandbox>,
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
    /// With this text in its name, id, project folder or image, whatever the case.
    pub search: Option<String>,
    /// Counting for this project.
    pub project: Option<String>,
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
        self.0.write(move |db| write::insert(db, &row)).await
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
        self.0.write(move |db| write::update(db, &id, &patch)).await
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
            .read(move |db| query::one(db, "s.id = ?1", id.as_str()))
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
        self.0.read(move |db| query::list(db, &filter, &page)).await
    }

    /// A page of ids alone, newest first: also of rows that cannot be read.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or the database failed.
    pub async fn list_ids(
        &self,
        filter: SandboxFilter,
        page: PageRequest,
    ) -> Result<Page<SandboxId>, StoreError> {
        self.0
            .read(move |db| query::list_ids(db, &filter, &page))
            .await
    }

    /// Finds by exact id, exact name, or a prefix of the id, in this order.
    ///
    /// # Errors
    /// The database failed, or the row cannot be read.
    pub async fn find(&self, text: &str) -> Result<Lookup<SandboxRow>, StoreError> {
        let text = text.to_owned();
        self.0.read(move |db| query::find(db, &text)).await
    }

    /// The sandboxes a session owns, newest first.
    ///
    /// # Errors
    /// The database failed, or a row cannot be read.
    pub async fn of_session(&self, id: &SessionId) -> Result<Vec<SandboxRow>, StoreError> {
        let id = id.clone();
        self.0.read(move |db| query::of_session(db, &id)).await
    }

    /// Every row, oldest first: what reconcile starts from.
    ///
    /// # Errors
    /// The database failed, or a row cannot be read.
    pub async fn all(&self) -> Result<Vec<SandboxRow>, StoreError> {
        self.0.read(query::all).await
    }

    /// Every row, those that cannot be read apart.
    ///
    /// # Errors
    /// The database failed.
    pub async fn all_even_broken(&self) -> Result<AllSandboxes, StoreError> {
        self.0.read(query::all_even_broken).await
    }
}
