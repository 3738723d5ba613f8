//! Changing a sandbox: name, labels, data, time to live, idle policy, limits. Written down before it counts.

use super::command::SandboxUpdate;
use super::owner::Owner;
use crate::driver::DriverError;
use crate::error::EngineError;
use crate::lifecycle::Phase;
use handler_types::lifetime::IdleAction;
use handler_types::sandbox::{Resources, SandboxView};
use tokio::time::timeout;

impl Owner {
    /// Changes all of it or nothing.
    pub(super) async fn update(
        &mut self,
        update: SandboxUpdate,
    ) -> Result<SandboxView, EngineError> {
        if self.state.doomed || self.row.is_broken {
            return Err(self.wrong_state("it can only be removed"));
        }
        let old = self.row.clone();
        let result = self.apply(update).await;
        if result.is_err() {
            self.row = old.clone();
            self.publish();
        }
        result?;
        self.shared.timers.expire(&self.id, self.row.expires_ms);
        if self.row.spec.idle != old.spec.idle {
            self.set_idle_timer();
        }
        self.publish();
        Ok(self.row.view())
    }

    async fn apply(&mut self, update: SandboxUpdate) -> Result<(), EngineError> {
        let resources = update.resources;
        self.note(update)?;
        self.check_idle().await?;
        let old = match resources {
            Some(resources) if resources != self.row.spec.resources => {
                Some(self.set_resources(resources).await?)
            }
            _ => None,
        };
        let written = self.shared.config.rows.update(&self.row, true).await;
        if let Err(error) = written {
            if let Some(old) = old
                && let Err(error) = self.limit_instance(old).await
            {
                tracing::warn!(sandbox = %self.id, error = %error.detail(), "limits that were not written down hold until it is stopped");
            }
            return Err(error.into());
        }
        Ok(())
    }

    fn note(&mut self, update: SandboxUpdate) -> Result<(), EngineError> {
        if let Some(name) = update.name {
            self.shared.take_name(&self.id, name.as_deref())?;
            self.row.spec.name = name;
        }
        let spec = &mut self.row.spec;
        if let Some(labels) = update.labels {
            spec.labels = labels;
        }
        if let Some(metadata) = update.metadata {
            spec.metadata = metadata;
        }
        if let Some(ttl) = update.ttl_seconds {
            spec.ttl_seconds = ttl;
            self.row.expires_ms = ttl.map(super::expiry);
        }
        if let Some(idle) = update.idle {
            spec.idle = idle;
        }
        Ok(())
    }

    async fn check_idle(&mut self) -> Result<(), EngineError> {
        let spec = &self.row.spec;
        let pauses = spec
            .idle
            .is_some_and(|idle| idle.action == IdleAction::Pause);
        if pauses
            && !self
                .shared
                .config
                .driver(&spec.backend)?
                .capabilities()
                .await
                .pause
        {
            return Err(super::cannot_pause(&spec.backend));
        }
        Ok(())
    }

    /// Other limits, live while it has an instance; gives the old ones.
    async fn set_resources(&mut self, resources: Resources) -> Result<Resources, EngineError> {
        let old = std::mem::replace(&mut self.row.spec.resources, resources);
        let driver = self.shared.config.driver(&self.row.spec.backend)?;
        driver.accept(&self.row.spec)?;
        if self.state.is_up() {
            self.shared.admit_more(&self.row)?;
        }
        self.limit_instance(resources).await?;
        Ok(old)
    }

    async fn limit_instance(&mut self, resources: Resources) -> Result<(), EngineError> {
        if !matches!(self.state.phase, Phase::Running | Phase::Paused) {
            return Ok(());
        }
        let Some(instance) = &self.row.instance else {
            return Ok(());
        };
        let driver = self.shared.config.driver(&self.row.spec.backend)?;
        let limit = self.shared.config.timing.freeze;
        let set = timeout(limit, driver.set_resources(&self.id, instance, &resources));
        match set.await {
            Ok(Err(DriverError::Unenforceable(why))) => {
                Err(self.wrong_state(&format!("{why}; stop it first")))
            }
            Ok(result) => Ok(result?),
            Err(_) => Err(EngineError::Timeout {
                step: "changing its limits",
                limit,
            }),
        }
    }
}
