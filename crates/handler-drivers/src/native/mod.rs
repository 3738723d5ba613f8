//! The `native` driver: sandboxes out of kernel namespaces, with nothing to install.
//!
//! A sandbox is one PID 1 (`handler-guest`, started by its own launcher), known by pid and start time.
//! Killing it ends everything inside. The daemon is its sub-reaper; after a daemon restart the
//! instances go on and are found again by their arguments in `/proc` and by their cgroup folders.
//! `README.md` says what this backend guarantees and refuses.

mod advice;
mod api;
pub(crate) mod ca;
mod cgroup;
mod check;
mod destroy;
pub(crate) mod environment;
pub(crate) mod files;
mod images;
pub(crate) mod java;
mod live;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod process;
mod start;
pub(crate) mod system;
pub(crate) mod transparent;

use async_trait::async_trait;
use cgroup::{CgroupFolders, Controller};
use handler_engine::driver::{
    Driver, DriverError, Instance, InstancePlan, InstanceStats, ObservedInstance,
};
use handler_engine::images::ImageStore;
pub use handler_images::StoreConfig;
use handler_types::SandboxId;
use handler_types::api::HostCheck;
use handler_types::lifetime::Capabilities;
use handler_types::sandbox::{Confinement, Resources, SandboxSpec};
use images::Images;
use process::{Process, ProcessId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// What users call it.
pub const BACKEND: &str = "native";

/// Settings of the driver.
#[derive(Debug, Clone)]
pub struct NativeConfig {
    /// The `handler-guest` program on this host, statically linked.
    pub guest_program: PathBuf,
    /// Folder whose file system sandboxes fill; its free space is checked.
    pub state_dir: PathBuf,
    /// Another file of certificate authorities to trust inside (the daemon's `SSL_CERT_FILE`).
    pub extra_ca_file: Option<PathBuf>,
    /// Folders that no mount may show, lie in or contain: the daemon's state and secrets.
    pub private: Vec<PathBuf>,
    /// Most open files of a process inside.
    pub open_files: u64,
    /// Where images are kept and whom registries are believed by; none: sandboxes start from the host's folders only.
    pub images: Option<StoreConfig>,
}

impl NativeConfig {
    /// The usual settings.
    #[must_use]
    pub fn new(guest_program: PathBuf, state_dir: PathBuf) -> Self {
        Self {
            guest_program,
            state_dir,
            extra_ca_file: None,
            private: Vec::new(),
            open_files: 1 << 20,
            images: None,
        }
    }
}

/// Operates the `native` backend.
#[derive(Debug)]
pub struct NativeDriver {
    config: NativeConfig,
    cgroups: CgroupFolders,
    checks: check::Cache,
    images: Images,
    transparent: transparent::Probe,
}

impl NativeDriver {
    /// Makes the driver. From here on this process takes in the PID 1s whose launchers have ended.
    #[must_use]
    pub fn new(config: NativeConfig) -> Self {
        // Without it, ended PID 1s are left to the machine's init, which is as good but slower.
        if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            tracing::warn!(%error, "cannot become sub-reaper");
        }
        Self {
            images: Images::open(&config),
            config,
            cgroups: CgroupFolders::of_this_process(),
            checks: check::Cache::default(),
            transparent: transparent::Probe::default(),
        }
    }
}

/// The driver's own words for an instance, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(flatten)]
    process: ProcessId,
    /// cgroup folders made for it.
    #[serde(default)]
    cgroups: Vec<PathBuf>,
}

fn reference(instance: &Instance) -> Option<Reference> {
    serde_json::from_value(instance.reference.clone()).ok()
}

fn process_of(instance: &Instance) -> Option<Process> {
    reference(instance).and_then(|reference| Process::open(reference.process))
}

#[async_trait]
impl Driver for NativeDriver {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    async fn capabilities(&self) -> Capabilities {
        let can = |controller| self.cgroups.obstacle(controller).is_none();
        let transparent = self.transparent.can(&self.config).await;
        Capabilities {
            host_root: true,
            memory_limit: can(Controller::Memory),
            cpu_limit: can(Controller::Cpu),
            pids_limit: can(Controller::Pids),
            pause: self.cgroups.freezer_obstacle().is_none(),
            images: self.images.can(&self.config).await,
            image_mounts: self.images.can(&self.config).await,
            display: true,
            transparent,
            transparent_auto: transparent,
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Vec<HostCheck> {
        self.checks.get(&self.config, &self.cgroups).await
    }

    fn accept(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        if spec.backend != BACKEND {
            return Err(DriverError::Invalid(format!(
                "{} is not {BACKEND}",
                spec.backend
            )));
        }
        if spec.confinement != Confinement::Strict || spec.runtime.is_some() {
            return Err(DriverError::Unenforceable(
                "native sandboxes are always strict and have no runtime to choose; use the podman or docker backend"
                    .to_owned(),
            ));
        }
        self.images.accept(spec)?;
        transparent::accept(spec)?;
        plan::check_spec(spec, &self.config.private)?;
        let limits = cgroup::limits_of(&spec.resources).map_err(DriverError::Invalid)?;
        if !spec.strict_limits {
            return Ok(());
        }
        let missing = limits.iter().filter(|limit| limit.asked).find_map(|limit| {
            self.cgroups
                .obstacle(limit.controller)
                .map(|why| (*limit, why))
        });
        missing.map_or(Ok(()), |(limit, why)| {
            Err(start::unenforceable(&limit, &why))
        })
    }

    async fn start(&self, plan: &InstancePlan) -> Result<Instance, DriverError> {
        self.accept(&plan.spec)?;
        start::start(self, plan).await
    }

    async fn is_alive(&self, _id: &SandboxId, instance: &Instance) -> bool {
        process_of(instance).is_some_and(|process| !process.has_ended())
    }

    async fn pause(&self, _id: &SandboxId, instance: &Instance) -> Result<(), DriverError> {
        live::freeze(instance, true).await
    }

    async fn resume(&self, _id: &SandboxId, instance: &Instance) -> Result<(), DriverError> {
        live::freeze(instance, false).await
    }

    async fn is_paused(&self, _id: &SandboxId, instance: &Instance) -> bool {
        reference(instance).is_some_and(|reference| cgroup::is_paused(&reference.cgroups))
    }

    async fn stats(&self, _id: &SandboxId, instance: &Instance) -> InstanceStats {
        live::stats(&self.cgroups, instance)
    }

    async fn set_resources(
        &self,
        _id: &SandboxId,
        instance: &Instance,
        resources: &Resources,
    ) -> Result<(), DriverError> {
        live::set_resources(&self.cgroups, instance, resources)
    }

    async fn wait(&self, _id: &SandboxId, instance: &Instance) {
        if let Some(process) = process_of(instance) {
            process.ended().await;
        }
    }

    async fn destroy(
        &self,
        id: &SandboxId,
        owner: &str,
        instance: Option<&Instance>,
    ) -> Result<(), DriverError> {
        self.stop(id, owner, instance).await?;
        self.images.release(owner, id)
    }

    /// Ends the processes; the home lies in the sandbox's own folder, and its images stay taken.
    async fn stop(
        &self,
        id: &SandboxId,
        owner: &str,
        instance: Option<&Instance>,
    ) -> Result<(), DriverError> {
        let reference = instance.and_then(reference);
        destroy::destroy(&self.cgroups, id, owner, reference.as_ref()).await
    }

    fn images(&self) -> Option<Arc<dyn ImageStore>> {
        self.images.store()
    }

    async fn list_owned(&self, owner: &str) -> Vec<ObservedInstance> {
        let mut found: BTreeMap<SandboxId, (String, bool)> = BTreeMap::new();
        for id in self.images.sandboxes(owner) {
            found.insert(id, ("images it uses".to_owned(), false));
        }
        for id in self.cgroups.sandboxes(owner) {
            if let Ok(id) = id.parse() {
                found.insert(id, ("cgroup".to_owned(), true));
            }
        }
        for owned in observe::owned(owner) {
            let Ok(id) = owned.sandbox.parse() else {
                continue;
            };
            let kind = if owned.is_init { "PID 1" } else { "launcher" };
            let what = format!("{kind}, process {}", owned.process.pid);
            found.insert(id, (what, true));
        }
        found
            .into_iter()
            .map(|(id, (what, running))| ObservedInstance { id, what, running })
            .collect()
    }
}
