//! The connection to an engine's API socket: Podman's service is started when first needed, stopped when
//! nobody used it for a while and at shutdown, started again when it died; Docker's socket is the user's.
//!
//! Invariant: the service that this daemon starts listens on a socket in a private folder, and lives only while
//! an [`OciUse`] exists or shortly after.

mod config_file;
mod libpod;
mod service;

use super::error::OciError;
use bollard::{API_DEFAULT_VERSION, Docker};
use service::Service;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

pub(super) use config_file::{RUNSC, RUNSC_NEEDS, find_program};
pub use libpod::Answer;

/// Longest wait for the head of an answer; starting a container on a busy host takes seconds.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Podman's service is stopped when nobody used it for so long.
const IDLE: Duration = Duration::from_secs(180);

/// Which engine answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Podman: its Docker-compatible API and its own (`libpod`).
    Podman,
    /// Docker.
    Docker,
}

impl Flavour {
    /// The engine's name, which is the backend's as well.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }
}

/// Where an engine is.
#[derive(Debug, Clone)]
pub enum OciSource {
    /// A socket that somebody else keeps.
    Socket(PathBuf),
    /// A service of Podman that we start.
    Service {
        /// Folder for its socket and generated settings (made when needed, 0700).
        folder: PathBuf,
        /// Where its output goes.
        log: PathBuf,
    },
}

/// A connection to one engine. Cheap to clone; makes no connection before it is used.
#[derive(Debug, Clone)]
pub struct OciApi {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    flavour: Flavour,
    source: OciSource,
    /// The runtime that the service uses for containers it makes; none: its own choice.
    runtime: Option<String>,
    /// Services with other runtimes.
    others: std::sync::Mutex<BTreeMap<String, OciApi>>,
    state: Mutex<State>,
    uses: AtomicUsize,
    last_use: watch::Sender<Instant>,
    /// Held while the engine reads the user's subordinate ids.
    subordinate_ids: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    service: Option<Service>,
    client: Option<Docker>,
    closed: bool,
}

impl Inner {
    fn socket(&self) -> PathBuf {
        match &self.source {
            OciSource::Socket(path) => path.clone(),
            OciSource::Service { folder, .. } => {
                service::socket_in(folder, self.runtime.as_deref())
            }
        }
    }
}

/// The engine while it is used: it is not stopped as idle before this is dropped. Keep it for as long as an
/// answer streams.
#[derive(Debug)]
pub struct OciUse {
    docker: Docker,
    inner: Arc<Inner>,
}

impl std::ops::Deref for OciUse {
    type Target = Docker;

    fn deref(&self) -> &Docker {
        &self.docker
    }
}

impl Drop for OciUse {
    fn drop(&mut self) {
        self.inner.last_use.send_replace(Instant::now());
        self.inner.uses.fetch_sub(1, Ordering::AcqRel);
    }
}

impl OciUse {
    /// Whose API it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.inner.flavour
    }

    /// The turn of a request that makes Podman look up subordinate ids (keep-id). It does that with a library that
    /// two threads must not use at once: Podman 4 crashes, finds no ids, or makes a container with wrong ones.
    pub(super) async fn turn_for_subordinate_ids(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.subordinate_ids.lock().await
    }

    /// The engine's socket, for calls that no client library has.
    pub(super) fn socket(&self) -> PathBuf {
        self.inner.socket()
    }
}

impl OciApi {
    /// An engine; nothing is started or connected yet.
    #[must_use]
    pub fn new(flavour: Flavour, source: OciSource) -> Self {
        Self::with(flavour, source, None)
    }

    fn with(flavour: Flavour, source: OciSource, runtime: Option<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                flavour,
                source,
                runtime,
                others: std::sync::Mutex::default(),
                state: Mutex::default(),
                uses: AtomicUsize::new(0),
                last_use: watch::Sender::new(Instant::now()),
                subordinate_ids: Mutex::default(),
            }),
        }
    }

    /// The engine as it makes containers with this runtime: a service of Podman uses one runtime for all it makes.
    /// What exists can be looked after through any of them.
    #[must_use]
    pub(super) fn with_runtime(&self, runtime: Option<&str>) -> Self {
        let (Some(runtime), OciSource::Service { .. }) = (runtime, &self.inner.source) else {
            return self.clone();
        };
        let mut others = self
            .inner
            .others
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let make = || {
            Self::with(
                self.inner.flavour,
                self.inner.source.clone(),
                Some(runtime.to_owned()),
            )
        };
        others
            .entry(runtime.to_owned())
            .or_insert_with(make)
            .clone()
    }

    /// Which engine.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.inner.flavour
    }

    /// Where it is.
    #[must_use]
    pub fn source(&self) -> &OciSource {
        &self.inner.source
    }

    /// The engine, reached; Podman's service is started if it does not run.
    ///
    /// # Errors
    /// [`OciError::Missing`] when it is not installed, does not run or may not be used, with what to do.
    pub async fn connect(&self) -> Result<OciUse, OciError> {
        let mut state = self.inner.state.lock().await;
        if state.closed {
            return Err(OciError::Missing("the daemon is shutting down".to_owned()));
        }
        if let OciSource::Service { folder, log } = &self.inner.source
            && !state.service.as_mut().is_some_and(Service::is_alive)
        {
            state.client = None;
            state.service = None;
            let service = Service::start(folder, self.inner.runtime.as_deref(), log).await?;
            state.service = Some(service);
            self.stop_when_idle();
        }
        if state.client.is_none() {
            state.client = Some(self.dial().await?);
        }
        let Some(docker) = state.client.clone() else {
            return Err(OciError::Broken("no client".to_owned()));
        };
        // Counted under the lock, so that the idle stop cannot come in between.
        self.inner.uses.fetch_add(1, Ordering::AcqRel);
        Ok(OciUse {
            docker,
            inner: self.inner.clone(),
        })
    }

    /// Stops Podman's service; nothing can be asked afterwards. Containers go on.
    pub async fn shutdown(&self) {
        let others = {
            let mut others = self
                .inner
                .others
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::take(&mut *others)
        };
        for other in others.into_values() {
            other.close().await;
        }
        self.close().await;
    }

    async fn close(&self) {
        let service = {
            let mut state = self.inner.state.lock().await;
            state.closed = true;
            state.client = None;
            state.service.take()
        };
        if let Some(service) = service {
            service.stop().await;
        }
    }

    /// Whether Podman's service runs now (as far as it is ours).
    pub async fn is_running(&self) -> bool {
        let mut state = self.inner.state.lock().await;
        state.service.as_mut().is_some_and(Service::is_alive)
    }

    async fn dial(&self) -> Result<Docker, OciError> {
        let socket = self.inner.socket();
        tokio::net::UnixStream::connect(&socket)
            .await
            .map_err(|error| self.unreachable(&socket, &error))?;
        let text = socket.to_string_lossy();
        let docker =
            Docker::connect_with_unix(&text, REQUEST_TIMEOUT.as_secs(), API_DEFAULT_VERSION)?;
        // The engine's version, when it is older than ours: engines refuse what is newer than they are.
        Ok(docker.negotiate_version().await?)
    }

    fn unreachable(&self, socket: &Path, error: &std::io::Error) -> OciError {
        use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
        let (name, at) = (self.flavour().name(), socket.display());
        OciError::Missing(match (self.flavour(), error.kind()) {
            (Flavour::Docker, NotFound | ConnectionRefused) => format!(
                "Docker does not answer at {at}: install and start it (`systemctl start docker`), or name its socket in \
                 DOCKER_HOST or HANDLER_DOCKER_SOCKET"
            ),
            (Flavour::Docker, PermissionDenied) => format!(
                "Docker's socket {at} may not be used by this user: add the user to the group `docker` and log in again"
            ),
            _ => format!("{name} does not answer at {at}: {error}"),
        })
    }

    /// Ends the service when nobody used it for [`IDLE`].
    fn stop_when_idle(&self) {
        let inner = Arc::downgrade(&self.inner);
        let mut last_use = self.inner.last_use.subscribe();
        self.inner.last_use.send_replace(Instant::now());
        handler_base::tasks::spawn_named("podman service idle", async move {
            loop {
                let idle_at = *last_use.borrow_and_update() + IDLE;
                tokio::time::sleep_until(idle_at).await;
                let Some(inner) = inner.upgrade() else { return };
                let mut state = inner.state.lock().await;
                let Some(service) = &mut state.service else {
                    return;
                };
                if !service.is_alive() {
                    return;
                }
                let is_used = inner.uses.load(Ordering::Acquire) > 0;
                if is_used || *last_use.borrow() + IDLE > Instant::now() {
                    drop(state);
                    if is_used {
                        tokio::time::sleep(IDLE).await;
                    }
                    continue;
                }
                state.client = None;
                if let Some(service) = state.service.take() {
                    tracing::debug!("podman's service is not used and stops");
                    service.stop().await;
                }
                return;
            }
        });
    }
}
