//! The engine's rows in the daemon's database. The label is kept as the owning session, when it is one.

use crate::driver::Instance;
use crate::rows::{Intent, RowError, SandboxRow, SandboxRows};
use async_trait::async_trait;
use handler_store::rows::{BrokenSandbox, SandboxIntent, SandboxPatch, SandboxRow as StoredRow};
use handler_store::{Store, StoreError};
use handler_types::SandboxId;
use handler_types::sandbox::{SandboxSpec, SandboxState};

/// Rows in SQLite.
#[derive(Debug, Clone)]
pub struct StoreRows(Store);

impl StoreRows {
    /// Over an open store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self(store)
    }
}

fn failed(error: StoreError) -> RowError {
    match error {
        StoreError::NameTaken { name } => RowError::NameTaken(name),
        StoreError::NoSpace => RowError::NoSpace(error.to_string()),
        other => {
            let cause = std::error::Error::source(&other).map(ToString::to_string);
            RowError::Failed(match cause {
                Some(cause) => format!("{other}: {cause}"),
                None => other.to_string(),
            })
        }
    }
}

/// What the store calls wanted, from what is being done and where it stands.
fn wanted(row: &SandboxRow) -> SandboxIntent {
    match (row.intent, row.state) {
        (Some(Intent::Delete), _) => SandboxIntent::Delete,
        (Some(Intent::Stop), _) => SandboxIntent::Stop,
        (Some(Intent::Create | Intent::Start | Intent::Pause | Intent::Resume), _)
        | (None, SandboxState::Running | SandboxState::Paused) => SandboxIntent::Run,
        (None, _) => SandboxIntent::Stop,
    }
}

/// The state to store: while something is being done, it says what.
fn stored_state(row: &SandboxRow) -> SandboxState {
    match row.intent {
        None => row.state,
        Some(Intent::Create) => SandboxState::Creating,
        Some(Intent::Start) => SandboxState::Starting,
        Some(Intent::Stop) => SandboxState::Stopping,
        Some(Intent::Delete) => SandboxState::Deleting,
        Some(Intent::Pause) => SandboxState::Pausing,
        Some(Intent::Resume) => SandboxState::Resuming,
    }
}

fn intent(stored: &StoredRow) -> Option<Intent> {
    match (stored.intent, stored.state) {
        (SandboxIntent::Delete, _) | (_, SandboxState::Deleting) => Some(Intent::Delete),
        (_, SandboxState::Creating) => Some(Intent::Create),
        (_, SandboxState::Starting) => Some(Intent::Start),
        (_, SandboxState::Stopping) => Some(Intent::Stop),
        (_, SandboxState::Pausing) => Some(Intent::Pause),
        (_, SandboxState::Resuming) => Some(Intent::Resume),
        (
            _,
            SandboxState::Running
            | SandboxState::Paused
            | SandboxState::Stopped
            | SandboxState::Failed,
        ) => None,
    }
}

fn instance_json(instance: Option<&Instance>) -> Result<Option<serde_json::Value>, RowError> {
    instance
        .map(serde_json::to_value)
        .transpose()
        .map_err(|error| RowError::Failed(error.to_string()))
}

fn read(stored: StoredRow) -> SandboxRow {
    // An instance in a form of another version is one that is not known: it is destroyed by its id.
    let instance = stored
        .instance
        .as_ref()
        .and_then(|json| serde_json::from_value(json.clone()).ok());
    SandboxRow {
        intent: intent(&stored),
        label: stored
            .session_id
            .map(|session| session.to_string())
            .unwrap_or_default(),
        id: stored.id,
        spec: stored.spec,
        state: stored.state,
        error: stored.error,
        instance,
        expires_ms: stored.expires_ms,
        idled: stored.idled,
        is_broken: false,
        remains: Vec::new(),
        created_ms: stored.created_ms,
        updated_ms: stored.updated_ms,
    }
}

#[async_trait]
impl SandboxRows for StoreRows {
    async fn insert(&self, row: &SandboxRow) -> Result<(), RowError> {
        let stored = StoredRow {
            id: row.id.clone(),
            name: row.spec.name.clone(),
            backend: row.spec.backend.clone(),
            spec: row.spec.clone(),
            state: stored_state(row),
            intent: wanted(row),
            instance: instance_json(row.instance.as_ref())?,
            warnings: row.view().warnings,
            error: row.error.clone(),
            session_id: row.label.parse().ok(),
            expires_ms: row.expires_ms,
            idled: row.idled,
            created_ms: row.created_ms,
            updated_ms: row.updated_ms,
        };
        self.0.sandboxes().insert(stored).await.map_err(failed)
    }

    async fn update(&self, row: &SandboxRow, spec_changed: bool) -> Result<(), RowError> {
        let patch = SandboxPatch {
            spec: spec_changed.then(|| row.spec.clone()),
            state: Some(stored_state(row)),
            intent: Some(wanted(row)),
            instance: Some(instance_json(row.instance.as_ref())?),
            warnings: Some(row.view().warnings),
            error: Some(row.error.clone()),
            name: spec_changed.then(|| row.spec.name.clone()),
            expires_ms: spec_changed.then_some(row.expires_ms),
            idled: Some(row.idled),
            ..SandboxPatch::default()
        };
        match self.0.sandboxes().update(&row.id, patch).await {
            Ok(_) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    async fn delete(&self, id: &SandboxId) -> Result<(), RowError> {
        self.0.sandboxes().delete(id).await.map_err(failed)?;
        Ok(())
    }

    async fn all(&self) -> Result<Vec<SandboxRow>, RowError> {
        let all = self.0.sandboxes().all_even_broken().await;
        let all = all.map_err(failed)?;
        let broken = all.broken.into_iter().map(broken_row);
        Ok(all.rows.into_iter().map(read).chain(broken).collect())
    }
}

/// What stands for a row that cannot be read.
fn broken_row(broken: BrokenSandbox) -> SandboxRow {
    let spec = SandboxSpec {
        backend: broken.backend,
        ..SandboxSpec::default()
    };
    SandboxRow {
        id: broken.id,
        state: SandboxState::Failed,
        error: Some(broken.reason),
        is_broken: true,
        created_ms: broken.created_ms,
        updated_ms: broken.created_ms,
        ..SandboxRow::of(spec)
    }
}
