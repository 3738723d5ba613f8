//! The seam between the engine and the drivers: small, so that engines × features stays engines + features.
//!
//! A driver makes, starts, observes and removes *instances* and says how to reach the guest. Commands,
//! files and terminals are the guest's. Every call is idempotent, so that reconcile can repeat it.

use crate::images::ImageStore;
use async_trait::async_trait;
use handler_types::SandboxId;
use handler_types::api::HostCheck;
use handler_types::lifetime::Capabilities;
use handler_types::network::TransparentView;
use handler_types::sandbox::{Resources, SandboxSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the engine gives a driver to start one instance.
#[derive(Debug, Clone)]
pub struct InstancePlan {
    /// The sandbox.
    pub id: SandboxId,
    /// Whose it is: a short text unique to this daemon's state folder, put on everything that is made.
    pub owner: String,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// The sandbox's own folder on disk (exists, 0700); what lies there lives until it is removed.
    pub dir: PathBuf,
    /// The sandbox's own runtime folder with a short path (exists, 0700), for sockets.
    pub runtime_dir: PathBuf,
    /// Folder with `proxy.sock` of the egress filter; none: the sandbox has no way out.
    pub egress_dir: Option<PathBuf>,
    /// Certificate of the sandbox's own authority (PEM), to be trusted inside besides the system's.
    pub ca_pem: Option<String>,
}

/// A started instance.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The driver's own words for it, stored with the sandbox and given back later.
    pub reference: serde_json::Value,
    /// Where the guest listens (Unix socket).
    pub guest_socket: PathBuf,
    /// What could not be enforced and was done without, in words.
    pub warnings: Vec<String>,
    /// Whether programs that ignore proxy variables are caught; absent in instances older than the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transparent: Option<TransparentView>,
}

/// Something of ours that exists on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedInstance {
    /// The sandbox it belongs to.
    pub id: SandboxId,
    /// What it is, for the log.
    pub what: String,
    /// Whether it runs (or is frozen); false: only what a stopped sandbox keeps.
    pub running: bool,
}

/// How much an instance uses, as the host sees it. A figure that cannot be had is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InstanceStats {
    /// Memory of all its processes and their page cache charged to it, bytes.
    pub memory_bytes: Option<u64>,
    /// CPU time so far, milliseconds.
    pub cpu_ms: Option<u64>,
    /// Bytes of its writable layer and home on disk.
    pub disk_bytes: Option<u64>,
    /// Processes.
    pub processes: Option<u32>,
}

/// Why a driver could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The spec asks for something this backend cannot enforce. Nothing was made.
    #[error("{0}")]
    Unenforceable(String),
    /// The spec is wrong. Nothing was made.
    #[error("{0}")]
    Invalid(String),
    /// This host cannot run instances; the text says why and what to do. Nothing was made.
    #[error("{0}")]
    HostNotReady(String),
    /// No room on a disk.
    #[error("{0}")]
    NoSpace(String),
    /// A step failed; what was made has been removed.
    #[error("{step}: {message}")]
    Failed {
        /// The step.
        step: String,
        /// The cause.
        message: String,
    },
}

/// User and group of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderOwner {
    /// User id on the host.
    pub uid: u32,
    /// Group id on the host.
    pub gid: u32,
}

/// Operates one backend.
#[async_trait]
pub trait Driver: Send + Sync + std::fmt::Debug {
    /// The name users choose, e.g. `native`.
    fn backend(&self) -> &'static str;

    /// What `handler doctor` prints. Cheap enough to be called often (results may be cached for seconds).
    async fn check(&self) -> Vec<HostCheck>;

    /// Refuses a spec that cannot be enforced fully, before anything is made.
    fn accept(&self, spec: &SandboxSpec) -> Result<(), DriverError>;

    /// Makes and starts the instance. When it fails, nothing is left.
    async fn start(&self, plan: &InstancePlan) -> Result<Instance, DriverError>;

    /// Whether the instance (as stored) is still the one that was started, alive.
    async fn is_alive(&self, id: &SandboxId, instance: &Instance) -> bool;

    /// What this backend can do on this host. Cheap (cached); asked before `accept` decides and shown to people.
    async fn capabilities(&self) -> Capabilities;

    /// Whose the sandbox's own folders on the host must be, where that is not the daemon's user.
    fn owner(&self, _scope: Option<&str>) -> Option<FolderOwner> {
        None
    }

    /// Bytes on disk of a host folder that instances write to, files of their inner ids included. Links are not
    /// followed and other file systems not entered.
    async fn folder_size(&self, folder: &Path) -> Result<u64, DriverError> {
        crate::shared_folder::size(&[], folder).await
    }

    /// Empties such a folder; it stays. One that something is mounted in is refused.
    async fn empty_folder(&self, folder: &Path) -> Result<(), DriverError> {
        crate::shared_folder::empty(folder).await
    }

    /// The backend's images; none: it has none.
    fn images(&self) -> Option<Arc<dyn ImageStore>> {
        None
    }

    /// Freezes all processes of the instance. Idempotent.
    async fn pause(&self, _id: &SandboxId, _instance: &Instance) -> Result<(), DriverError> {
        Err(DriverError::Unenforceable(format!(
            "{} cannot pause sandboxes",
            self.backend()
        )))
    }

    /// Thaws what [`Driver::pause`] froze. Idempotent.
    async fn resume(&self, _id: &SandboxId, _instance: &Instance) -> Result<(), DriverError> {
        Err(DriverError::Unenforceable(format!(
            "{} cannot pause sandboxes",
            self.backend()
        )))
    }

    /// Whether the instance is frozen now.
    async fn is_paused(&self, _id: &SandboxId, _instance: &Instance) -> bool {
        false
    }

    /// Other limits for a living instance, at once and whole; what cannot be set now is refused and changes nothing.
    async fn set_resources(
        &self,
        _id: &SandboxId,
        _instance: &Instance,
        _resources: &Resources,
    ) -> Result<(), DriverError> {
        Err(DriverError::Unenforceable(format!(
            "{} cannot change the limits of a sandbox that runs",
            self.backend()
        )))
    }

    /// What the instance uses, as the host sees it.
    async fn stats(&self, _id: &SandboxId, _instance: &Instance) -> InstanceStats {
        InstanceStats::default()
    }

    /// The last lines the backend kept of the instance's own output (a container's log); none: it keeps none.
    async fn log(
        &self,
        _id: &SandboxId,
        _instance: &Instance,
        _lines: usize,
    ) -> Option<Vec<String>> {
        None
    }

    /// Ends all processes of the instance but keeps what it wrote (its writable layer), so that the next
    /// [`Driver::start`] of the same sandbox goes on from there. Done when it returns. A frozen instance is ended
    /// as well; where the backend can, without letting it run on.
    async fn stop(
        &self,
        id: &SandboxId,
        owner: &str,
        instance: Option<&Instance>,
    ) -> Result<(), DriverError> {
        self.destroy(id, owner, instance).await
    }

    /// Returns when the instance has ended.
    async fn wait(&self, id: &SandboxId, instance: &Instance);

    /// Kills everything of this sandbox and removes what the driver made for it outside the sandbox's
    /// own folders (processes, cgroups, containers with their writable layers). `instance` is absent when a crash left it unknown. Done when it returns. Also of a frozen instance.
    async fn destroy(
        &self,
        id: &SandboxId,
        owner: &str,
        instance: Option<&Instance>,
    ) -> Result<(), DriverError>;

    /// Everything of `owner` on this host, whatever the store says: the base of reconcile.
    async fn list_owned(&self, owner: &str) -> Vec<ObservedInstance>;
}
