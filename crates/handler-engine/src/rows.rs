//! What the engine writes down about a sandbox, and the door to the store that keeps it.
//!
//! Invariant: a row exists before anything of a sandbox does and goes after everything of it is gone. Its
//! intent says what was being done, so that reconcile can finish or undo it.

use crate::driver::Instance;
use async_trait::async_trait;
use handler_types::SandboxId;
use handler_types::sandbox::{SandboxSpec, SandboxState, SandboxView};
use serde::{Deserialize, Serialize};

/// What is being done to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Intent {
    /// It is being made; undone after a crash.
    Create,
    /// It is being started again; stopped after a crash.
    Start,
    /// It is being stopped; finished after a crash.
    Stop,
    /// It is being removed; finished after a crash.
    Delete,
    /// It is being frozen; after a crash it is as it is found.
    Pause,
    /// It is being thawed; after a crash it is as it is found.
    Resume,
}

/// One sandbox as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxRow {
    /// Its id.
    pub id: SandboxId,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// Free text shown in the filter's events.
    pub label: String,
    /// Its last state.
    pub state: SandboxState,
    /// What was being done; none: it is at rest.
    pub intent: Option<Intent>,
    /// Why it failed, or ended.
    pub error: Option<String>,
    /// The instance it runs in, if it runs.
    pub instance: Option<Instance>,
    /// When it is removed, milliseconds since the epoch; none: never.
    pub expires_ms: Option<i64>,
    /// It rests because nobody used it: who uses it may wake it.
    pub idled: bool,
    /// What is stored of it cannot be read (`error` says why): it can only be removed. Not stored.
    pub is_broken: bool,
    /// What of a removal or failed start is still there, in words. Not stored.
    pub remains: Vec<String>,
    /// Milliseconds since the epoch.
    pub created_ms: i64,
    /// Milliseconds since the epoch.
    pub updated_ms: i64,
}

impl SandboxRow {
    /// A row of a sandbox that does not exist yet; its id and times are still to be set.
    #[must_use]
    pub fn of(spec: SandboxSpec) -> Self {
        Self {
            id: SandboxId::from_random([0; 8]),
            spec,
            label: String::new(),
            state: SandboxState::Creating,
            intent: None,
            error: None,
            instance: None,
            expires_ms: None,
            idled: false,
            is_broken: false,
            remains: Vec::new(),
            created_ms: 0,
            updated_ms: 0,
        }
    }

    /// The name shown: the chosen one, else the id.
    #[must_use]
    pub fn name(&self) -> &str {
        self.spec.name.as_deref().unwrap_or(self.id.as_str())
    }

    /// What the API shows of it.
    #[must_use]
    pub fn view(&self) -> SandboxView {
        SandboxView {
            id: self.id.clone(),
            name: self.name().to_owned(),
            backend: self.spec.backend.clone(),
            state: self.state,
            error: self.error.clone(),
            warnings: self
                .instance
                .as_ref()
                .map(|instance| instance.warnings.clone())
                .unwrap_or_default(),
            scope: self.spec.scope.clone(),
            workdir: self.spec.workdir.clone(),
            network: self.spec.network.clone(),
            transparent: self
                .instance
                .as_ref()
                .and_then(|instance| instance.transparent.clone()),
            resources: self.spec.resources,
            lifetime: self.spec.lifetime,
            labels: self.spec.labels.clone(),
            image: self.spec.image.clone(),
            confinement: self.spec.confinement,
            runtime: self.spec.runtime.clone(),
            life: handler_types::lifetime::LifetimeView {
                expires_at: self.expires_ms.map(handler_base::clock::rfc3339),
                idle: self.spec.idle,
                used_at: None,
            },
            metadata: self.spec.metadata.clone(),
            project: self.spec.project.clone(),
            fork: self.spec.fork.clone(),
            remains: self.remains.clone(),
            created_at: handler_base::clock::rfc3339(self.created_ms),
            updated_at: handler_base::clock::rfc3339(self.updated_ms),
        }
    }
}

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// Another sandbox has this name.
    #[error("a sandbox named `{0}` exists already")]
    NameTaken(String),
    /// No room on the disk.
    #[error("no space left for the store: {0}")]
    NoSpace(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// The door to the store. Each call is one transaction; when it returns the change survives a crash.
#[async_trait]
pub trait SandboxRows: Send + Sync + std::fmt::Debug {
    /// Adds a row; refuses a name that is taken.
    async fn insert(&self, row: &SandboxRow) -> Result<(), RowError>;
    /// Replaces a row, its spec, name and end only when they changed. Done also when it does not exist.
    async fn update(&self, row: &SandboxRow, spec_changed: bool) -> Result<(), RowError>;
    /// Removes a row. Done also when it does not exist.
    async fn delete(&self, id: &SandboxId) -> Result<(), RowError>;
    /// All rows; one that cannot be read is among them as broken, with the reason as its error.
    async fn all(&self) -> Result<Vec<SandboxRow>, RowError>;
}
