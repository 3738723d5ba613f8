//! The `podman` and `docker` drivers: sandboxes as containers of an engine that is installed.
//!
//! One driver, two engines: what they share goes through Docker's API, what only Podman can say through its own.
//! The guest is PID 1 of each container. `README.md` says what these backends guarantee and refuse.

mod api;
mod beneath;
mod check;
mod containers;
mod destroy;
mod ending;
mod error;
mod identity;
pub mod images;
mod info;
mod labels;
mod link;
mod observe;
mod paths;
mod plan;
mod prepare;
mod render_docker;
mod render_podman;
mod sources;
mod start;
mod strays;
mod transparent;

pub use api::{Answer, Flavour, OciApi, OciSource, OciUse};
pub use error::OciError;

use crate::native::process::{Process, ProcessId};
use async_trait::async_trait;
use handler_engine::driver::{
    Driver, DriverError, FolderOwner, Instance, InstancePlan, InstanceStats, ObservedInstance,
};
use handler_engine::images::ImageStore;
use handler_engine::shared_folder;
use handler_types::SandboxId;
use handler_types::api::HostCheck;
use handler_types::lifetime::Capabilities;
use handler_types::sandbox::SandboxSpec;
use info::{EngineInfo, InfoCache};
use plan::{Etc, ImageEnv};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Settings of a driver.
#[derive(Debug, Clone)]
pub struct OciConfig {
    /// The `handler-guest` program on this host, statically linked, readable by everyone.
    pub guest_program: PathBuf,
    /// The daemon's state folder: here is remembered that an engine was used.
    pub state_dir: PathBuf,
    /// Another file of certificate authorities to trust inside (the daemon's `SSL_CERT_FILE`).
    pub extra_ca_file: Option<PathBuf>,
}

impl OciConfig {
    /// The usual settings.
    #[must_use]
    pub fn new(guest_program: PathBuf, state_dir: PathBuf) -> Self {
        Self {
            guest_program,
            state_dir,
            extra_ca_file: None,
        }
    }
}

/// Operates `podman` or `docker`.
#[derive(Debug)]
pub struct OciDriver {
    config: OciConfig,
    api: OciApi,
    info: InfoCache,
    checks: check::Cache,
    memory: Mutex<Memory>,
    images: Arc<images::OciImages>,
}

/// What is learned once and holds for the life of the process.
#[derive(Debug, Default)]
struct Memory {
    /// The runtime that works where the engine's own choice does not.
    runtime: Option<String>,
    /// Users of images, by id.
    etc: HashMap<String, Etc>,
    /// Variables of images, by id.
    envs: HashMap<String, ImageEnv>,
}

/// Images remembered at most; beyond, all are forgotten and learned again.
const MOST_IMAGES: usize = 256;

/// The driver's own words for an instance, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    /// The container's id.
    container: String,
    /// PID 1 as the host sees it; none: it is not visible here.
    #[serde(default)]
    process: Option<ProcessId>,
    /// The home's folder on the host.
    home: PathBuf,
    /// Containers inside may have left files of other ids in the home.
    #[serde(default)]
    foreign_files: bool,
}

fn reference(instance: &Instance) -> Option<Reference> {
    serde_json::from_value(instance.reference.clone()).ok()
}

impl OciDriver {
    /// Makes a driver; the engine is not touched before it is needed.
    #[must_use]
    pub fn new(flavour: Flavour, source: OciSource, config: OciConfig) -> Self {
        let api = OciApi::new(flavour, source);
        Self {
            config,
            images: Arc::new(images::OciImages::new(api.clone())),
            api,
            info: InfoCache::default(),
            checks: check::Cache::default(),
            memory: Mutex::default(),
        }
    }

    /// The connection to the engine, for its images and for the shutdown.
    #[must_use]
    pub fn api(&self) -> &OciApi {
        &self.api
    }

    fn name(&self) -> &'static str {
        self.api.flavour().name()
    }

    async fn info(&self) -> Result<EngineInfo, DriverError> {
        self.info
            .get(&self.api)
            .await
            .map_err(|error| error.at("ask the engine"))
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn preferred_runtime(&self) -> Option<String> {
        self.memory().runtime.clone()
    }

    fn prefer_runtime(&self, name: &str) {
        self.memory().runtime = Some(name.to_owned());
    }

    fn known_etc(&self, image: &str) -> Option<Etc> {
        self.memory().etc.get(image).cloned()
    }

    fn learn_etc(&self, image: &str, etc: Etc) {
        let mut memory = self.memory();
        if memory.etc.len() >= MOST_IMAGES {
            memory.etc.clear();
        }
        memory.etc.insert(image.to_owned(), etc);
    }

    /// Variables of an image that ours are joined with. Asked once by id.
    async fn image_env(&self, engine: &OciUse, image: &str) -> Result<ImageEnv, DriverError> {
        if let Some(known) = self.memory().envs.get(image) {
            return Ok(known.clone());
        }
        let seen = engine.inspect_image(image).await;
        let seen = seen.map_err(|error| OciError::from(error).at("look at the image"))?;
        let env = seen
            .config
            .and_then(|config| config.env)
            .unwrap_or_default();
        let found = ImageEnv::of(&env);
        let mut memory = self.memory();
        if memory.envs.len() >= MOST_IMAGES {
            memory.envs.clear();
        }
        memory.envs.insert(image.to_owned(), found.clone());
        Ok(found)
    }

    /// What goes before a command that is to read and remove files of ids inside sandboxes: an ordinary user cannot,
    /// Podman can.
    fn inner_ids(&self) -> &'static [&'static str] {
        let is_root = rustix::process::geteuid().is_root();
        match self.api.flavour() {
            Flavour::Podman if !is_root => &["podman", "unshare"],
            _ => &[],
        }
    }

    fn mark(&self) -> PathBuf {
        self.config.state_dir.join(format!("{}-used", self.name()))
    }

    /// Remembers, also for later daemons, that this engine may hold something of ours.
    fn mark_used(&self) -> Result<(), DriverError> {
        if self.was_used() {
            return Ok(());
        }
        std::fs::write(self.mark(), "")
            .map_err(|error| prepare::disk_error("remember that the engine is used", &error))
    }

    /// Whether there can be anything of ours: an engine that was never used is not started to look.
    fn was_used(&self) -> bool {
        self.mark().exists()
    }
}

#[async_trait]
impl Driver for OciDriver {
    fn backend(&self) -> &'static str {
        self.name()
    }

    fn owner(&self, scope: Option<&str>) -> Option<FolderOwner> {
        let identity = identity::Identity::decide(scope);
        let (uid, gid) = (identity.uid, identity.gid);
        identity.is_foreign().then_some(FolderOwner { uid, gid })
    }

    async fn folder_size(&self, folder: &Path) -> Result<u64, DriverError> {
        shared_folder::size(self.inner_ids(), folder).await
    }

    async fn empty_folder(&self, folder: &Path) -> Result<(), DriverError> {
        match self.inner_ids() {
            [] => shared_folder::empty(folder).await,
            by => shared_folder::empty_by(by, folder).await,
        }
    }

    fn images(&self) -> Option<Arc<dyn ImageStore>> {
        Some(self.images.clone())
    }

    async fn check(&self) -> Vec<HostCheck> {
        self.checks.get(self).await
    }

    fn accept(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        // What is not known yet is asked when it starts, before anything is made.
        plan::check(spec, self.name(), self.info.seen().as_ref())
    }

    async fn start(&self, plan: &InstancePlan) -> Result<Instance, DriverError> {
        start::start(self, plan).await
    }

    async fn is_alive(&self, _id: &SandboxId, instance: &Instance) -> bool {
        observe::is_alive(self, instance).await
    }

    async fn capabilities(&self) -> Capabilities {
        match self.info.get(&self.api).await {
            Ok(info) => info.capabilities(),
            Err(_) => Capabilities::default(),
        }
    }

    async fn pause(&self, _id: &SandboxId, instance: &Instance) -> Result<(), DriverError> {
        observe::set_paused(self, instance, true).await
    }

    async fn resume(&self, _id: &SandboxId, instance: &Instance) -> Result<(), DriverError> {
        observe::set_paused(self, instance, false).await
    }

    async fn is_paused(&self, _id: &SandboxId, instance: &Instance) -> bool {
        observe::is_paused(self, instance).await
    }

    async fn stats(&self, _id: &SandboxId, instance: &Instance) -> InstanceStats {
        observe::stats(self, instance).await
    }

    async fn log(&self, _id: &SandboxId, instance: &Instance, lines: usize) -> Option<Vec<String>> {
        observe::log(self, instance, lines).await
    }

    async fn stop(
        &self,
        id: &SandboxId,
        owner: &str,
        instance: Option<&Instance>,
    ) -> Result<(), DriverError> {
        destroy::stop(self, id, owner, instance.and_then(reference)).await
    }

    async fn wait(&self, _id: &SandboxId, instance: &Instance) {
        observe::ended(self, instance).await;
    }

    async fn destroy(
        &self,
        id: &SandboxId,
        owner: &str,
        instance: Option<&Instance>,
    ) -> Result<(), DriverError> {
        destroy::destroy(self, id, owner, instance.and_then(reference)).await
    }

    async fn list_owned(&self, owner: &str) -> Vec<ObservedInstance> {
        observe::owned(self, owner).await
    }
}

/// PID 1 of an instance, when it is visible here and still the same.
fn process_of(reference: &Reference) -> Option<Process> {
    reference.process.and_then(Process::open)
}
