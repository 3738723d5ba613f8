//! The daemon's link to the egress filter: one process for all sandboxes, adopted when it runs already,
//! started when it does not, started again when it dies.
//!
//! Invariant: the filter outlives the link. Values of secrets pass through here once, on their way to the
//! control socket, and are wiped behind it; nothing is kept to be sent again.

mod keeper;
mod process;
mod renewals;
mod subscribe;
#[cfg(test)]
mod tests;
mod wire;

use crate::filter::{EgressControl, FilterError};
use async_trait::async_trait;
use handler_types::SandboxId;
use handler_types::egress::{EgressAnswer, EgressEvent, EgressRequest, EgressSettings};
use handler_types::observe::EgressTraffic;
use keeper::Keeper;
pub use renewals::Renewal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::DropGuard;

/// How to reach and to start the filter.
#[derive(Debug, Clone)]
pub struct EgressLinkConfig {
    /// Its control socket; the folder exists.
    pub control_socket: PathBuf,
    /// Program and arguments that become the filter on that socket.
    pub command: Vec<OsString>,
    /// File its output is appended to.
    pub log: PathBuf,
    /// How long it may take to answer after it was started.
    pub start_limit: Duration,
}

impl EgressLinkConfig {
    /// With the usual limit of 30 s: a busy machine is slow, and a filter that ended is noticed at once.
    #[must_use]
    pub fn new(control_socket: PathBuf, command: Vec<OsString>, log: PathBuf) -> Self {
        Self {
            control_socket,
            command,
            log,
            start_limit: Duration::from_secs(30),
        }
    }
}

/// Why the filter could not be used. Never shows a value.
#[derive(Debug, thiserror::Error)]
pub enum EgressLinkError {
    /// Its program or log file cannot be opened.
    #[error("the egress filter cannot be started: {0}")]
    Spawn(#[source] io::Error),
    /// It ended instead of answering.
    #[error("the egress filter ended at once ({status}); its log `{log}` says why")]
    Ended {
        /// Its exit status.
        status: String,
        /// Its log.
        log: PathBuf,
    },
    /// It does not answer.
    #[error("the egress filter at `{0}` does not answer")]
    Silent(PathBuf),
    /// The connection to it broke.
    #[error("the connection to the egress filter broke: {0}")]
    Broken(#[from] io::Error),
    /// It gave an answer that does not fit.
    #[error("the egress filter gave an answer that does not fit")]
    Protocol,
    /// It refused; its own words.
    #[error("the egress filter refused: {0}")]
    Refused(String),
    /// The link is ending.
    #[error("the link to the egress filter is closed")]
    Closed,
}

/// The link. Dropping it leaves the filter running.
#[derive(Debug)]
pub struct EgressLink {
    keeper: Arc<Keeper>,
    new_process: bool,
    _end: DropGuard,
}

impl EgressLink {
    /// Adopts the filter that answers on the control socket, or starts one. One that speaks another
    /// version of the protocol is told to end first.
    ///
    /// # Errors
    /// When no filter answers within the limit.
    pub async fn start(config: EgressLinkConfig) -> Result<Self, EgressLinkError> {
        let keeper = Arc::new(Keeper::new(config));
        let new_process = keeper.begin().await?;
        drop(handler_base::tasks::spawn_named(
            "egress keeper",
            keeper.clone().keep(),
        ));
        Ok(Self {
            new_process,
            _end: keeper.end_guard(),
            keeper,
        })
    }

    /// Makes or replaces a sandbox's settings; answers its authority's certificate (PEM).
    ///
    /// # Errors
    /// When the filter refuses them or cannot be reached, also after having been started again.
    pub async fn put(
        &self,
        sandbox: &str,
        settings: EgressSettings,
    ) -> Result<String, EgressLinkError> {
        let sandbox = sandbox.to_owned();
        match self
            .keeper
            .ask(EgressRequest::Put { sandbox, settings })
            .await?
        {
            EgressAnswer::Put { ca_pem } => Ok(ca_pem),
            _ => Err(EgressLinkError::Protocol),
        }
    }

    /// Closes a sandbox's listener and connections and forgets its secrets; done also if it is not known.
    ///
    /// # Errors
    /// When the filter cannot be reached.
    pub async fn remove(&self, sandbox: &str) -> Result<(), EgressLinkError> {
        let sandbox = sandbox.to_owned();
        match self.keeper.ask(EgressRequest::Remove { sandbox }).await? {
            EgressAnswer::Done => Ok(()),
            _ => Err(EgressLinkError::Protocol),
        }
    }

    /// Sandboxes the filter knows.
    ///
    /// # Errors
    /// When the filter cannot be reached.
    pub async fn list(&self) -> Result<Vec<String>, EgressLinkError> {
        match self.keeper.ask(EgressRequest::List).await? {
            EgressAnswer::List { sandboxes } => Ok(sandboxes),
            _ => Err(EgressLinkError::Protocol),
        }
    }

    /// What went through for each sandbox the filter knows, by id.
    ///
    /// # Errors
    /// When the filter cannot be reached, or is an older one that does not count.
    pub async fn traffic(&self) -> Result<BTreeMap<String, EgressTraffic>, EgressLinkError> {
        match self.keeper.ask(EgressRequest::Traffic).await? {
            EgressAnswer::Traffic { sandboxes } => Ok(sandboxes),
            _ => Err(EgressLinkError::Protocol),
        }
    }

    /// Events after number `after`, then live ones, also over restarts of the filter (whose numbers then
    /// begin again at 1). Ends with the link. A reader that stalls loses only what the filter no longer keeps.
    #[must_use]
    pub fn subscribe(&self, after: u64) -> mpsc::Receiver<EgressEvent> {
        subscribe::subscribe(self.keeper.clone(), after)
    }

    /// New tokens of logins, one at a time, each until its outcome was told; also over restarts of the filter. Ends
    /// with the link.
    #[must_use]
    pub fn renewals(&self) -> mpsc::Receiver<Renewal> {
        renewals::renewals(self.keeper.clone())
    }

    /// Whether [`EgressLink::start`] started the filter, instead of adopting one with its sandboxes.
    #[must_use]
    pub fn is_new_process(&self) -> bool {
        self.new_process
    }

    /// Begins at 1 and counts up when a new filter process has taken over, which knows nothing.
    #[must_use]
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.keeper.generations()
    }

    /// Process id of the filter last spoken to.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.keeper.pid()
    }
}

impl From<EgressLinkError> for FilterError {
    fn from(error: EgressLinkError) -> Self {
        Self(error.to_string())
    }
}

#[async_trait]
impl EgressControl for EgressLink {
    async fn put(
        &self,
        sandbox: &SandboxId,
        settings: EgressSettings,
    ) -> Result<String, FilterError> {
        Ok(Self::put(self, sandbox.as_str(), settings).await?)
    }

    async fn remove(&self, sandbox: &SandboxId) -> Result<(), FilterError> {
        Ok(Self::remove(self, sandbox.as_str()).await?)
    }

    async fn list(&self) -> Result<Vec<String>, FilterError> {
        Ok(Self::list(self).await?)
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.generations()
    }
}
