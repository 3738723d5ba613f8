//! A whole engine over fakes: rows in memory, a filter that remembers, the real guest as a plain process.

use async_trait::async_trait;
use handler_engine::guest::GuestTiming;
use handler_engine::lifecycle::Effect;
use handler_engine::test_support::{
    FakeDriver, FakeFilter, FixedSecrets, MemoryRows, guest_program,
};
use handler_engine::{EffectProbe, Engine, EngineConfig, EngineError, EngineTiming};
use handler_types::SandboxId;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) struct World {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) rows: MemoryRows,
    pub(crate) filter: FakeFilter,
    pub(crate) secrets: FixedSecrets,
    pub(crate) driver: FakeDriver,
}

impl World {
    /// `None`, said loudly, when the guest program was not built.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let Some(guest) = guest_program() else {
            skip(test);
            return None;
        };
        let temp = tempfile::tempdir().expect("temp");
        let markers = temp.path().join("markers");
        std::fs::create_dir(&markers).expect("markers");
        Some(Self {
            rows: MemoryRows::default(),
            filter: FakeFilter::default(),
            secrets: FixedSecrets::default(),
            driver: FakeDriver::new(&guest, &markers),
            temp,
        })
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.temp.path().join("state")
    }

    pub(crate) fn runtime_dir(&self) -> PathBuf {
        self.temp.path().join("run")
    }

    pub(crate) fn config(&self, probe: Option<Arc<dyn EffectProbe>>) -> EngineConfig {
        EngineConfig {
            state_dir: self.state_dir(),
            runtime_dir: self.runtime_dir(),
            owner: "test".to_owned(),
            drivers: vec![Arc::new(self.driver.clone())],
            egress: Arc::new(self.filter.clone()),
            rows: Arc::new(self.rows.clone()),
            resolver: Arc::new(self.secrets.clone()),
            timing: EngineTiming {
                start: Duration::from_secs(20),
                hello: Duration::from_secs(20),
                destroy: Duration::from_secs(20),
                freeze: Duration::from_secs(20),
                pause: Duration::from_millis(1),
                retry: Duration::from_millis(50),
                guest: GuestTiming::default(),
                ..EngineTiming::default()
            },
            limits: Arc::new(handler_types::limits::Limits::default()),
            probe,
        }
    }

    pub(crate) async fn engine(&self) -> Engine {
        Engine::start(self.config(None))
            .await
            .expect("engine starts")
    }

    pub(crate) async fn probed(&self, probe: &Arc<Probe>) -> Engine {
        Engine::start(self.config(Some(probe.clone())))
            .await
            .expect("engine starts")
    }

    /// Folders of sandboxes of any kind, tombstones too.
    pub(crate) fn folders(&self) -> Vec<String> {
        let mut all = Vec::new();
        for parent in ["state/sandboxes", "run/sb", "run/eg"] {
            let entries = std::fs::read_dir(self.temp.path().join(parent));
            for entry in entries.into_iter().flatten().flatten() {
                all.push(format!("{parent}/{}", entry.file_name().to_string_lossy()));
            }
        }
        all
    }

    /// Nothing of any sandbox exists any more.
    pub(crate) fn assert_empty(&self, context: &str) {
        assert_eq!(self.rows.now(), vec![], "{context}: rows");
        assert_eq!(self.driver.living(), vec![], "{context}: processes");
        assert_eq!(
            self.driver.markers(),
            Vec::<String>::new(),
            "{context}: markers"
        );
        assert_eq!(self.driver.layers(), vec![], "{context}: layers");
        assert!(self.filter.now().is_empty(), "{context}: filter");
        assert_eq!(self.folders(), Vec::<String>::new(), "{context}: folders");
    }

    /// Exactly one sandbox exists and runs, once.
    pub(crate) fn assert_one_running(&self, id: &SandboxId, context: &str) {
        assert_eq!(
            self.driver.living(),
            vec![id.clone()],
            "{context}: processes"
        );
        assert_eq!(
            self.driver.markers(),
            vec![id.to_string()],
            "{context}: markers"
        );
        assert_eq!(self.rows.now().len(), 1, "{context}: rows");
        assert_eq!(self.filter.now().len(), 1, "{context}: filter");
        assert_eq!(self.folders().len(), 3, "{context}: folders");
    }

    /// Exactly one sandbox exists and does not run.
    pub(crate) fn assert_one_resting(&self, context: &str) {
        assert_eq!(self.driver.living(), vec![], "{context}: processes");
        assert_eq!(
            self.driver.markers(),
            Vec::<String>::new(),
            "{context}: markers"
        );
        assert_eq!(self.rows.now().len(), 1, "{context}: rows");
        assert!(self.filter.now().is_empty(), "{context}: filter");
        assert_eq!(self.folders().len(), 1, "{context}: only its home");
    }
}

/// What a probe does at one effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    FailBefore,
    FailAfter,
    DieBefore,
    DieAfter,
}

/// Strikes at the effect of a number, counted from 0 over all sandboxes.
pub(crate) struct Probe {
    at: usize,
    strike: Strike,
    count: AtomicUsize,
    pub(crate) died: Notify,
    pub(crate) struck_at: Mutex<Option<Effect>>,
}

impl Probe {
    pub(crate) fn new(at: usize, strike: Strike) -> Arc<Self> {
        Arc::new(Self {
            at,
            strike,
            count: AtomicUsize::new(0),
            died: Notify::new(),
            struck_at: Mutex::new(None),
        })
    }

    pub(crate) fn has_struck(&self) -> Option<Effect> {
        *self.struck_at.lock().expect("plain")
    }

    async fn meet(
        &self,
        number: usize,
        effect: Effect,
        fail: Strike,
        die: Strike,
    ) -> Result<(), EngineError> {
        if number != self.at || (self.strike != fail && self.strike != die) {
            return Ok(());
        }
        *self.struck_at.lock().expect("plain") = Some(effect);
        if self.strike == fail {
            return Err(EngineError::Invalid("a fault was set".to_owned()));
        }
        self.died.notify_one();
        std::future::pending().await
    }
}

#[async_trait]
impl EffectProbe for Probe {
    async fn before(&self, _id: &SandboxId, effect: Effect) -> Result<(), EngineError> {
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        self.meet(number, effect, Strike::FailBefore, Strike::DieBefore)
            .await
    }

    async fn after(&self, _id: &SandboxId, effect: Effect) -> Result<(), EngineError> {
        let number = self.count.load(Ordering::SeqCst) - 1;
        self.meet(number, effect, Strike::FailAfter, Strike::DieAfter)
            .await
    }
}

/// Says, past the test runner's capture, that a test did not run.
pub(crate) fn skip(test: &str) {
    use std::io::Write as _;
    let text = format!("SKIP {test}: handler-guest is not built (cargo build -p handler-guest)\n");
    std::io::stderr().write_all(text.as_bytes()).ok();
}
