//! Looking at a sandbox without using it: what is read here never wakes one and never counts as use.

use super::Engine;
use crate::driver::InstanceStats;
use handler_types::SandboxId;
use std::time::Duration;
use tokio::time::timeout;

/// How long a backend may take to say what an instance uses.
const PATIENCE: Duration = Duration::from_secs(5);

impl Engine {
    /// What the host charges to a sandbox's instance; none when it has none, or its backend does not say in time.
    pub async fn stats(&self, id: &SandboxId) -> Option<InstanceStats> {
        let row = self.shared.with(id, |entry| entry.row.clone()).ok()?;
        let instance = row.instance.as_ref()?;
        let driver = self.shared.config.driver(&row.spec.backend).ok()?;
        let stats = timeout(PATIENCE, driver.stats(id, instance)).await.ok()?;
        (stats != InstanceStats::default()).then_some(stats)
    }

    /// The last lines the backend kept of the instance's own output; none when it keeps none.
    pub async fn instance_log(&self, id: &SandboxId, lines: usize) -> Option<Vec<String>> {
        let row = self.shared.with(id, |entry| entry.row.clone()).ok()?;
        let instance = row.instance.as_ref()?;
        let driver = self.shared.config.driver(&row.spec.backend).ok()?;
        timeout(PATIENCE, driver.log(id, instance, lines))
            .await
            .ok()?
    }
}
