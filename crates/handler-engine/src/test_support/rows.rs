//! Rows in memory.

use crate::rows::{RowError, SandboxRow, SandboxRows};
use async_trait::async_trait;
use handler_types::SandboxId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows that live as long as any clone.
#[derive(Debug, Clone, Default)]
pub struct MemoryRows(Arc<Mutex<BTreeMap<SandboxId, SandboxRow>>>);

impl MemoryRows {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SandboxId, SandboxRow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All rows as they are now.
    #[must_use]
    pub fn now(&self) -> Vec<SandboxRow> {
        self.lock().values().cloned().collect()
    }

    /// Puts a row as it is, as if an earlier daemon had left it.
    pub fn put(&self, row: SandboxRow) {
        self.lock().insert(row.id.clone(), row);
    }
}

#[async_trait]
impl SandboxRows for MemoryRows {
    async fn insert(&self, row: &SandboxRow) -> Result<(), RowError> {
        let mut rows = self.lock();
        if let Some(name) = &row.spec.name
            && rows
                .values()
                .any(|other| other.spec.name.as_ref() == Some(name))
        {
            return Err(RowError::NameTaken(name.clone()));
        }
        if rows.contains_key(&row.id) {
            return Err(RowError::Failed(format!("{} exists already", row.id)));
        }
        rows.insert(row.id.clone(), row.clone());
        Ok(())
    }

    async fn update(&self, row: &SandboxRow, _spec_changed: bool) -> Result<(), RowError> {
        if let Some(known) = self.lock().get_mut(&row.id) {
            *known = row.clone();
        }
        Ok(())
    }

    async fn delete(&self, id: &SandboxId) -> Result<(), RowError> {
        self.lock().remove(id);
        Ok(())
    }

    async fn all(&self) -> Result<Vec<SandboxRow>, RowError> {
        Ok(self.now())
    }
}
