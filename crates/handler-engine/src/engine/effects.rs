//! Performs the effects of the state machine. Each can be repeated; the outcome is always an event.

use super::owner::{Owner, filter_silent};
use super::shared::blocking;
use crate::driver::{Driver, InstancePlan};
use crate::error::EngineError;
use crate::filter::build_settings;
use crate::guest::{GuestCallError, GuestHandle};
use crate::lifecycle::{Effect, Event, Phase};
use crate::rows::Intent;
use handler_types::sandbox::SandboxState;
use std::sync::Arc;
use tokio::time::timeout;

impl Owner {
    /// Performs an effect and says what became of it.
    pub(super) async fn perform(&mut self, effect: Effect) -> Event {
        let result = self.probed(effect).await;
        match result {
            Ok(()) => Event::Done(effect),
            Err(error) => {
                self.note_failure(effect, error);
                Event::Failed(effect)
            }
        }
    }

    async fn probed(&mut self, effect: Effect) -> Result<(), EngineError> {
        let probe = self.shared.config.probe.clone();
        if let Some(probe) = &probe {
            probe.before(&self.id, effect).await?;
        }
        self.effect(effect).await?;
        if let Some(probe) = &probe {
            probe.after(&self.id, effect).await?;
        }
        Ok(())
    }

    /// The first failure is the one that is told.
    fn note_failure(&mut self, effect: Effect, error: EngineError) {
        tracing::warn!(sandbox = %self.id, ?effect, error = %error.detail(), "a step of a sandbox failed");
        if matches!(self.state.phase, Phase::Starting { .. } | Phase::Resuming) {
            self.row.error = Some(error.detail());
        }
        self.cause.get_or_insert(error);
    }

    async fn effect(&mut self, effect: Effect) -> Result<(), EngineError> {
        match effect {
            Effect::WriteIntent(intent) => self.write_intent(intent).await,
            Effect::MakeFolders => {
                let (folders, id) = (self.shared.folders.clone(), self.id.clone());
                blocking(move || folders.make(&id)).await?;
                Ok(())
            }
            Effect::PutFilter => self.first_put().await,
            Effect::StartInstance => self.start_instance().await,
            Effect::ConnectGuest => self.connect_guest().await,
            Effect::WriteRunning => {
                self.row.error = None;
                self.row.idled = false;
                self.write_rest(SandboxState::Running).await
            }
            Effect::CloseLink => {
                self.close_link();
                Ok(())
            }
            Effect::PauseInstance => self.freeze(true).await,
            Effect::ResumeInstance => self.freeze(false).await,
            Effect::StopInstance => self.end_instance(false).await,
            Effect::DestroyInstance => self.end_instance(true).await,
            Effect::RemoveFilter => self.remove_filter().await,
            Effect::RemoveRuntime => {
                let (folders, id) = (self.shared.folders.clone(), self.id.clone());
                blocking(move || folders.remove_runtime(&id)).await
            }
            Effect::RemoveKept => {
                let (folders, id) = (self.shared.folders.clone(), self.id.clone());
                blocking(move || folders.remove_kept(&id)).await
            }
            Effect::DeleteRow => {
                self.shared.config.rows.delete(&self.id).await?;
                Ok(())
            }
            Effect::WriteRest => self.write_rest(self.state.shown()).await,
            Effect::Wait { round } => {
                let factor = 4u32.saturating_pow(round);
                let pause = self.shared.config.timing.pause.saturating_mul(factor);
                tokio::time::sleep(pause).await;
                Ok(())
            }
        }
    }

    async fn write_intent(&mut self, intent: Intent) -> Result<(), EngineError> {
        self.row.intent = Some(intent);
        if intent == Intent::Create {
            self.shared.config.rows.insert(&self.row).await?;
        } else {
            if intent != Intent::Delete {
                self.row.error = None;
            }
            self.shared.config.rows.update(&self.row, false).await?;
        }
        Ok(())
    }

    async fn write_rest(&mut self, state: SandboxState) -> Result<(), EngineError> {
        self.row.state = state;
        self.row.intent = self.state.doomed.then_some(Intent::Delete);
        self.row.updated_ms = handler_base::clock::now_ms().max(self.row.updated_ms);
        if self.state.held.runs()
            && state == SandboxState::Failed
            && let Some(cause) = &self.cause
        {
            self.row.error = Some(cause.detail());
        }
        self.shared.config.rows.update(&self.row, false).await?;
        Ok(())
    }

    /// Gives the filter this sandbox's settings; answers its certificate.
    pub(super) async fn put_filter(&mut self, strict: bool) -> Result<String, EngineError> {
        let config = &self.shared.config;
        let listen = self.shared.folders.of(&self.id).egress_socket();
        let limit = config.timing.filter;
        let put = async {
            let resolver = config.resolver.as_ref();
            let (spec, label) = (&self.row.spec, &self.row.label);
            let settings = build_settings(spec, label, &listen, resolver, strict).await?;
            Ok(config.egress.put(&self.id, settings).await?)
        };
        timeout(limit, put)
            .await
            .unwrap_or_else(|_| Err(filter_silent(limit)))
    }

    async fn first_put(&mut self) -> Result<(), EngineError> {
        let result = self.put_filter(!self.is_adopting).await;
        match result {
            Ok(ca_pem) => {
                self.ca_pem = Some(ca_pem);
                Ok(())
            }
            // A filter that is away for a moment must not end a running sandbox: it is closed in, not open.
            Err(error) if self.is_adopting => {
                self.refresh_later(&error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn start_instance(&mut self) -> Result<(), EngineError> {
        let paths = self.shared.folders.of(&self.id);
        let plan = InstancePlan {
            id: self.id.clone(),
            owner: self.shared.config.owner.clone(),
            spec: self.row.spec.clone(),
            dir: paths.dir,
            runtime_dir: paths.runtime_dir,
            egress_dir: self.state.networked.then_some(paths.egress_dir),
            ca_pem: self.ca_pem.clone().filter(|_| self.state.networked),
        };
        let driver = self.shared.config.driver(&self.row.spec.backend)?;
        let limit = self.shared.config.timing.start;
        let instance =
            timeout(limit, driver.start(&plan))
                .await
                .map_err(|_| EngineError::Timeout {
                    step: "starting the instance",
                    limit,
                })??;
        self.row.instance = Some(instance);
        Ok(())
    }

    async fn connect_guest(&mut self) -> Result<(), EngineError> {
        let driver = self.shared.config.driver(&self.row.spec.backend)?;
        let Some(instance) = self.row.instance.clone() else {
            return Err(EngineError::Invalid("there is no instance".to_owned()));
        };
        let timing = self.shared.config.timing;
        let guest = tokio::select! {
            guest = GuestHandle::connect(&instance.guest_socket, timing.hello, timing.guest) => guest,
            () = driver.wait(&self.id, &instance) => {
                return Err(crate::driver::DriverError::Failed {
                    step: "guest".to_owned(),
                    message: "the instance ended before its guest answered".to_owned(),
                }
                .into());
            }
        };
        let guest = guest.map_err(GuestCallError::Lost)?;
        self.show_guest(Some(guest.clone()));
        self.guest = Some(guest);
        Ok(())
    }

    fn show_guest(&self, guest: Option<GuestHandle>) {
        // It is in the registry for as long as it has an owner.
        self.shared.with(&self.id, |entry| entry.guest = guest).ok();
    }

    fn close_link(&mut self) {
        self.show_guest(None);
        self.ended = None;
        if let Some(guest) = self.guest.take() {
            guest.close("the sandbox was stopped");
        }
    }

    async fn freeze(&mut self, is_freezing: bool) -> Result<(), EngineError> {
        let driver = self.shared.config.driver(&self.row.spec.backend)?;
        let Some(instance) = self.row.instance.clone() else {
            return Err(EngineError::Invalid("there is no instance".to_owned()));
        };
        let limit = self.shared.config.timing.freeze;
        let (step, done) = if is_freezing {
            ("pausing", driver.pause(&self.id, &instance))
        } else {
            ("resuming", driver.resume(&self.id, &instance))
        };
        timeout(limit, done)
            .await
            .map_err(|_| EngineError::Timeout { step, limit })??;
        Ok(())
    }

    async fn end_instance(&mut self, is_removal: bool) -> Result<(), EngineError> {
        let drivers = self.drivers_to_end()?;
        let config = &self.shared.config;
        let instance = self.row.instance.as_ref();
        let limit = config.timing.destroy;
        for driver in drivers {
            let ended = if is_removal {
                driver.destroy(&self.id, &config.owner, instance)
            } else {
                driver.stop(&self.id, &config.owner, instance)
            };
            timeout(limit, ended)
                .await
                .map_err(|_| EngineError::Timeout {
                    step: "removing the instance",
                    limit,
                })??;
        }
        self.row.instance = None;
        Ok(())
    }

    /// Its driver; of a row that cannot be read and names none, any may have something of it.
    fn drivers_to_end(&self) -> Result<Vec<Arc<dyn Driver>>, EngineError> {
        let config = &self.shared.config;
        match config.driver(&self.row.spec.backend) {
            Ok(driver) => Ok(vec![driver]),
            Err(_) if self.row.is_broken => Ok(config.drivers.clone()),
            Err(error) => Err(error),
        }
    }

    async fn remove_filter(&mut self) -> Result<(), EngineError> {
        self.ca_pem = None;
        let config = &self.shared.config;
        let limit = config.timing.filter;
        timeout(limit, config.egress.remove(&self.id))
            .await
            .map_err(|_| filter_silent(limit))??;
        Ok(())
    }
}
