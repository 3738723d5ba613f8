//! What the engine is built from.

use super::admission::LimitsSource;
use crate::driver::Driver;
use crate::error::EngineError;
use crate::filter::{EgressControl, SecretResolver};
use crate::folders::SandboxFolders;
use crate::guest::GuestTiming;
use crate::lifecycle::Effect;
use crate::rows::SandboxRows;
use async_trait::async_trait;
use handler_types::SandboxId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long steps may take.
#[derive(Debug, Clone, Copy)]
pub struct EngineTiming {
    /// Starting an instance.
    pub start: Duration,
    /// From the instance's start to its guest's greeting.
    pub hello: Duration,
    /// Ending or removing an instance.
    pub destroy: Duration,
    /// Freezing or thawing an instance, or changing its limits.
    pub freeze: Duration,
    /// How long the engine's start waits for sandboxes to come to rest; the rest goes on behind it.
    pub reconcile: Duration,
    /// One call to the egress filter.
    pub filter: Duration,
    /// First pause between two rounds of removal; four times as long each round.
    pub pause: Duration,
    /// Until a removal that was given up is tried again; twice as long each time, at most ten minutes.
    pub retry: Duration,
    /// The guest's calls.
    pub guest: GuestTiming,
}

impl Default for EngineTiming {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(60),
            hello: Duration::from_secs(10),
            destroy: Duration::from_secs(30),
            freeze: Duration::from_secs(20),
            reconcile: Duration::from_secs(30),
            filter: Duration::from_secs(10),
            pause: Duration::from_millis(50),
            retry: Duration::from_secs(30),
            guest: GuestTiming::default(),
        }
    }
}

/// Told before and after each effect; for tests that make an effect fail, or the daemon die in it (by never
/// returning).
#[async_trait]
pub trait EffectProbe: Send + Sync {
    /// Before the effect; an error takes its place.
    async fn before(&self, id: &SandboxId, effect: Effect) -> Result<(), EngineError>;
    /// After the effect was done; an error makes it look failed.
    async fn after(&self, id: &SandboxId, effect: Effect) -> Result<(), EngineError>;
}

/// Everything the engine needs.
pub struct EngineConfig {
    /// The daemon's state folder.
    pub state_dir: PathBuf,
    /// The daemon's runtime folder; its path should be short.
    pub runtime_dir: PathBuf,
    /// Whose the sandboxes are: a short text unique to the state folder.
    pub owner: String,
    /// The drivers, each for its backend.
    pub drivers: Vec<Arc<dyn Driver>>,
    /// The egress filter.
    pub egress: Arc<dyn EgressControl>,
    /// The rows.
    pub rows: Arc<dyn SandboxRows>,
    /// Finds values of secrets.
    pub resolver: Arc<dyn SecretResolver>,
    /// How long steps may take.
    pub timing: EngineTiming,
    /// What the host hands out.
    pub limits: Arc<dyn LimitsSource>,
    /// For tests.
    pub probe: Option<Arc<dyn EffectProbe>>,
}

impl EngineConfig {
    pub(super) fn folders(&self) -> SandboxFolders {
        SandboxFolders::new(&self.state_dir, &self.runtime_dir)
    }

    pub(super) fn driver(&self, backend: &str) -> Result<Arc<dyn Driver>, EngineError> {
        self.drivers
            .iter()
            .find(|driver| driver.backend() == backend)
            .cloned()
            .ok_or_else(|| EngineError::NoBackend(backend.to_owned()))
    }
}

impl std::fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineConfig")
            .field("state_dir", &self.state_dir)
            .field("runtime_dir", &self.runtime_dir)
            .field("owner", &self.owner)
            .field("drivers", &self.drivers)
            .finish_non_exhaustive()
    }
}
