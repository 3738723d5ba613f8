//! A driver whose instances are plain child processes of the test: the real guest, without any isolation.
//!
//! What it makes for an instance is a marker folder (standing for a cgroup) and a process group; both must be gone
//! after `destroy`. Faults can be set to strike once.

use crate::driver::{Driver, DriverError, Instance, InstancePlan, ObservedInstance};
use async_trait::async_trait;
use handler_types::SandboxId;
use handler_types::api::{CheckStatus, HostCheck};
use handler_types::lifetime::Capabilities;
use handler_types::sandbox::SandboxSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// What goes wrong, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverFault {
    /// `start` fails cleanly.
    FailStart,
    /// `start` never returns, with its marker made and no process.
    HangBeforeProcess,
    /// `start` never returns, with its process running.
    HangAfterProcess,
    /// `destroy` fails and nothing was removed.
    FailDestroy,
    /// `destroy` never returns, with its process killed and the marker there.
    HangInDestroy,
    /// `pause` fails and nothing was frozen.
    FailPause,
    /// `pause` never returns, with the process frozen.
    HangInPause,
    /// `resume` fails and nothing was thawed.
    FailResume,
    /// `start` succeeds with a process that nobody can speak to and that ends at once.
    DeadOnArrival,
}

#[derive(Debug)]
struct Process {
    group: rustix::process::Pid,
    frozen: bool,
    ended: watch::Receiver<bool>,
}

#[derive(Debug)]
struct World {
    guest: PathBuf,
    /// Marker folders, one for each instance.
    markers: PathBuf,
    processes: Mutex<BTreeMap<(SandboxId, u32), Process>>,
    faults: Mutex<Vec<DriverFault>>,
    struck: Notify,
    starts: Mutex<BTreeMap<SandboxId, u32>>,
    refuse: Mutex<Option<String>>,
    /// What it keeps of sandboxes until they are removed, running or not: stands for stopped containers.
    layers: Mutex<BTreeSet<SandboxId>>,
    no_pause: Mutex<bool>,
}

/// The driver of the backend `fake`; its world lives as long as any clone.
#[derive(Debug, Clone)]
pub struct FakeDriver(Arc<World>);

/// The guest program built beside the running test, when it was built.
#[must_use]
pub fn guest_program() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    test.ancestors()
        .skip(1)
        .take(3)
        .map(|folder| folder.join("handler-guest"))
        .find(|path| path.is_file())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeDriver {
    /// A driver that runs `guest` and keeps its markers in `markers`, a folder that exists.
    #[must_use]
    pub fn new(guest: &Path, markers: &Path) -> Self {
        Self(Arc::new(World {
            guest: guest.to_owned(),
            markers: markers.to_owned(),
            processes: Mutex::default(),
            faults: Mutex::default(),
            struck: Notify::new(),
            starts: Mutex::default(),
            refuse: Mutex::default(),
            layers: Mutex::default(),
            no_pause: Mutex::default(),
        }))
    }

    /// Sets a fault that strikes once.
    pub fn strike(&self, fault: DriverFault) {
        lock(&self.0.faults).push(fault);
    }

    /// Refuses every spec with this text from now on, or none.
    pub fn refuse(&self, message: Option<&str>) {
        *lock(&self.0.refuse) = message.map(ToOwned::to_owned);
    }

    /// Returns when a fault that hangs has struck.
    pub async fn struck(&self) {
        self.0.struck.notified().await;
    }

    /// How often an instance of the sandbox was started.
    #[must_use]
    pub fn starts(&self, id: &SandboxId) -> u32 {
        lock(&self.0.starts).get(id).copied().unwrap_or_default()
    }

    /// Instances with a living process.
    #[must_use]
    pub fn living(&self) -> Vec<SandboxId> {
        lock(&self.0.processes)
            .iter()
            .filter(|(_, process)| !*process.ended.borrow())
            .map(|((id, _), _)| id.clone())
            .collect()
    }

    /// Marker folders that exist.
    #[must_use]
    pub fn markers(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0.markers);
        let entries = entries.into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// Kills the instance's processes behind the engine's back.
    pub fn kill(&self, id: &SandboxId) {
        for ((owner, _), process) in lock(&self.0.processes).iter() {
            if owner == id && !*process.ended.borrow() {
                // It may have ended by itself.
                rustix::process::kill_process_group(process.group, rustix::process::Signal::KILL)
                    .ok();
            }
        }
    }

    /// Whether the sandbox's process is frozen.
    #[must_use]
    pub fn is_frozen(&self, id: &SandboxId) -> bool {
        lock(&self.0.processes)
            .iter()
            .any(|((owner, _), process)| owner == id && process.frozen && !*process.ended.borrow())
    }

    /// Sandboxes that it keeps a layer of.
    #[must_use]
    pub fn layers(&self) -> Vec<SandboxId> {
        lock(&self.0.layers).iter().cloned().collect()
    }

    /// Says that it cannot pause from now on.
    pub fn without_pause(&self) {
        *lock(&self.0.no_pause) = true;
    }

    fn freeze(&self, id: &SandboxId, frozen: bool) {
        let signal = if frozen {
            rustix::process::Signal::STOP
        } else {
            rustix::process::Signal::CONT
        };
        for ((owner, _), process) in lock(&self.0.processes).iter_mut() {
            if owner == id && !*process.ended.borrow() {
                process.frozen = frozen;
                // It may have ended by itself.
                rustix::process::kill_process_group(process.group, signal).ok();
            }
        }
    }

    async fn end(&self, id: &SandboxId) {
        self.kill(id);
        let ends: Vec<_> = lock(&self.0.processes)
            .iter()
            .filter(|((owner, _), _)| owner == id)
            .map(|(_, process)| process.ended.clone())
            .collect();
        for mut ended in ends {
            ended.wait_for(|ended| *ended).await.ok();
        }
    }

    fn remove_marker(&self, id: &SandboxId) -> Result<(), DriverError> {
        match std::fs::remove_dir(self.0.markers.join(id.as_str())) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(DriverError::Failed {
                    step: "remove the marker".to_owned(),
                    message: error.to_string(),
                })
            }
            _ => Ok(()),
        }
    }

    fn takes(&self, fault: DriverFault) -> bool {
        let mut faults = lock(&self.0.faults);
        let at = faults.iter().position(|set| *set == fault);
        at.map(|at| faults.remove(at)).is_some()
    }

    async fn hang(&self) {
        self.0.struck.notify_one();
        std::future::pending::<()>().await;
    }

    fn spawn(&self, plan: &InstancePlan, is_dead: bool) -> Result<(u32, PathBuf), DriverError> {
        let failed = |error: std::io::Error| DriverError::Failed {
            step: "start the guest".to_owned(),
            message: error.to_string(),
        };
        let socket = plan.runtime_dir.join("guest.sock");
        let program = if is_dead {
            Path::new("/bin/true")
        } else {
            &self.0.guest
        };
        let mut child = handler_base::proc::command(program)
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .arg("--workdir")
            .arg(&plan.dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let group = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(rustix::process::Pid::from_raw)
            .ok_or_else(|| failed(std::io::Error::other("it ended at once")))?;
        let (ended, watch) = watch::channel(false);
        handler_base::tasks::spawn_named("fake instance", async move {
            child.wait().await.ok();
            ended.send_replace(true);
        });
        let number = {
            let mut starts = lock(&self.0.starts);
            let count = starts.entry(plan.id.clone()).or_default();
            *count += 1;
            *count
        };
        let process = Process {
            group,
            frozen: false,
            ended: watch,
        };
        lock(&self.0.processes).insert((plan.id.clone(), number), process);
        Ok((number, socket))
    }

    fn ended(&self, id: &SandboxId, instance: &Instance) -> Option<watch::Receiver<bool>> {
        let number = u32::try_from(instance.reference.as_u64()?).ok()?;
        lock(&self.0.processes)
            .get(&(id.clone(), number))
            .map(|process| process.ended.clone())
    }
}

#[async_trait]
impl Driver for FakeDriver {
    fn backend(&self) -> &'static str {
        "fake"
    }

    async fn capabilities(&self) -> Capabilities {
        Capabilities {
            host_root: true,
            pause: !*lock(&self.0.no_pause),
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Vec<HostCheck> {
        vec![HostCheck {
            name: "fake".to_owned(),
            status: CheckStatus::Ok,
            detail: "plain processes, no isolation".to_owned(),
            mend: None,
        }]
    }

    fn accept(&self, _spec: &SandboxSpec) -> Result<(), DriverError> {
        match lock(&self.0.refuse).clone() {
            Some(message) => Err(DriverError::Unenforceable(message)),
            None => Ok(()),
        }
    }

    async fn start(&self, plan: &InstancePlan) -> Result<Instance, DriverError> {
        if self.takes(DriverFault::FailStart) {
            return Err(DriverError::Failed {
                step: "start".to_owned(),
                message: "a fault was set".to_owned(),
            });
        }
        let marker = self.0.markers.join(plan.id.as_str());
        std::fs::create_dir(&marker).map_err(|error| DriverError::Failed {
            step: "make the marker".to_owned(),
            message: error.to_string(),
        })?;
        lock(&self.0.layers).insert(plan.id.clone());
        if self.takes(DriverFault::HangBeforeProcess) {
            self.hang().await;
        }
        let is_dead = self.takes(DriverFault::DeadOnArrival);
        let (number, guest_socket) = match self.spawn(plan, is_dead) {
            Ok(started) => started,
            Err(error) => {
                std::fs::remove_dir(&marker).ok();
                lock(&self.0.layers).remove(&plan.id);
                return Err(error);
            }
        };
        if self.takes(DriverFault::HangAfterProcess) {
            self.hang().await;
        }
        Ok(Instance {
            reference: serde_json::json!(number),
            guest_socket,
            warnings: Vec::new(),
            transparent: None,
        })
    }

    async fn is_alive(&self, id: &SandboxId, instance: &Instance) -> bool {
        self.ended(id, instance)
            .is_some_and(|ended| !*ended.borrow())
    }

    async fn wait(&self, id: &SandboxId, instance: &Instance) {
        if let Some(mut ended) = self.ended(id, instance) {
            ended.wait_for(|ended| *ended).await.ok();
        }
    }

    async fn destroy(
        &self,
        id: &SandboxId,
        _owner: &str,
        _instance: Option<&Instance>,
    ) -> Result<(), DriverError> {
        if self.takes(DriverFault::FailDestroy) {
            return Err(DriverError::Failed {
                step: "destroy".to_owned(),
                message: "a fault was set".to_owned(),
            });
        }
        self.end(id).await;
        if self.takes(DriverFault::HangInDestroy) {
            self.hang().await;
        }
        lock(&self.0.layers).remove(id);
        self.remove_marker(id)
    }

    async fn stop(
        &self,
        id: &SandboxId,
        _owner: &str,
        _instance: Option<&Instance>,
    ) -> Result<(), DriverError> {
        if self.takes(DriverFault::FailDestroy) {
            return Err(DriverError::Failed {
                step: "stop".to_owned(),
                message: "a fault was set".to_owned(),
            });
        }
        self.end(id).await;
        if self.takes(DriverFault::HangInDestroy) {
            self.hang().await;
        }
        self.remove_marker(id)
    }

    async fn pause(&self, id: &SandboxId, _instance: &Instance) -> Result<(), DriverError> {
        if self.takes(DriverFault::FailPause) {
            return Err(DriverError::Failed {
                step: "pause".to_owned(),
                message: "a fault was set".to_owned(),
            });
        }
        self.freeze(id, true);
        if self.takes(DriverFault::HangInPause) {
            self.hang().await;
        }
        Ok(())
    }

    async fn resume(&self, id: &SandboxId, _instance: &Instance) -> Result<(), DriverError> {
        if self.takes(DriverFault::FailResume) {
            return Err(DriverError::Failed {
                step: "resume".to_owned(),
                message: "a fault was set".to_owned(),
            });
        }
        self.freeze(id, false);
        Ok(())
    }

    async fn is_paused(&self, id: &SandboxId, _instance: &Instance) -> bool {
        self.is_frozen(id)
    }

    async fn list_owned(&self, _owner: &str) -> Vec<ObservedInstance> {
        let markers = self.markers();
        let markers = markers.iter().filter_map(|name| name.parse().ok());
        let observed = |what: &'static str, running| {
            move |id| ObservedInstance {
                id,
                what: what.to_owned(),
                running,
            }
        };
        let living = self.living().into_iter().map(observed("process", true));
        let layers = self.layers().into_iter().map(observed("layer", false));
        markers
            .map(observed("marker", true))
            .chain(living)
            .chain(layers)
            .collect()
    }
}
