//! A sandbox's settings in the egress filter while it runs: another policy, or a filter that knows nothing any more.

use super::owner::Owner;
use crate::error::EngineError;
use crate::lifecycle::Phase;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::SandboxView;
use std::time::Duration;
use tokio::time::Instant;

/// Until settings that could not be put are tried again.
const AGAIN: Duration = Duration::from_secs(1);

impl Owner {
    /// Another policy: live while it runs, written down always.
    pub(super) async fn set_network(
        &mut self,
        policy: NetworkPolicy,
    ) -> Result<SandboxView, EngineError> {
        let old = std::mem::replace(&mut self.row.spec.network, policy);
        let result = self.apply_network(&old).await;
        match result {
            Ok(()) => {
                self.publish();
                Ok(self.row.view())
            }
            Err(error) => {
                self.row.spec.network = old;
                Err(error)
            }
        }
    }

    async fn apply_network(&mut self, old: &NetworkPolicy) -> Result<(), EngineError> {
        let networked = self.row.spec.network.needs_egress();
        let runs = matches!(self.state.phase, Phase::Running | Phase::Paused);
        if runs && networked != old.needs_egress() {
            return Err(EngineError::NetworkSwitch);
        }
        let is_open = |policy: &NetworkPolicy| matches!(policy, NetworkPolicy::Open);
        if runs && is_open(&self.row.spec.network) != is_open(old) {
            // Where `open` is a route of its own, the filter is not what holds such a sandbox.
            let driver = self.shared.config.driver(&self.row.spec.backend)?;
            if driver.capabilities().await.open_network {
                return Err(EngineError::NetworkSwitch);
            }
        }
        self.shared
            .config
            .driver(&self.row.spec.backend)?
            .accept(&self.row.spec)?;
        if runs && networked {
            self.put_filter(true).await?;
        }
        let written = self.shared.config.rows.update(&self.row, true).await;
        if let Err(error) = written {
            if runs && networked {
                let new = std::mem::replace(&mut self.row.spec.network, old.clone());
                let undone = self.put_filter(false).await;
                self.row.spec.network = new;
                if let Err(error) = undone {
                    self.refresh_later(&error);
                }
            }
            return Err(error.into());
        }
        self.state.networked = networked;
        Ok(())
    }

    /// Puts the settings again; later once more when that fails.
    pub(super) async fn refresh_filter(&mut self) {
        let runs = matches!(self.state.phase, Phase::Running | Phase::Paused);
        if !runs || !self.state.networked {
            return;
        }
        match self.put_filter(false).await {
            Ok(ca_pem) => {
                if self.ca_pem.as_ref().is_some_and(|known| *known != ca_pem) {
                    tracing::warn!(
                        sandbox = %self.id,
                        "the filter has a new authority; programs inside do not trust it until a restart"
                    );
                }
                self.ca_pem = Some(ca_pem);
            }
            Err(error) => self.refresh_later(&error),
        }
    }

    /// Puts the settings now, if they are in force; later once more when that fails.
    pub(super) async fn renew_filter(&mut self) -> Result<SandboxView, EngineError> {
        let runs = matches!(self.state.phase, Phase::Running | Phase::Paused);
        if runs
            && self.state.networked
            && let Err(error) = self.put_filter(false).await
        {
            self.refresh_later(&error);
            return Err(error);
        }
        Ok(self.row.view())
    }

    pub(super) fn refresh_later(&mut self, error: &EngineError) {
        tracing::warn!(sandbox = %self.id, error = %error.detail(), "the filter has no settings for a running sandbox");
        self.refresh = Some(Instant::now() + AGAIN);
    }
}
