//! Keeps a filter there: one connection to ask on, one that only notices its end.
//!
//! Invariant: the generation changes exactly when another process answers than the last time.

use super::wire::Connection;
use super::{EgressLinkConfig, EgressLinkError, process};
use handler_types::egress::{EGRESS_PROTOCOL, EgressAnswer, EgressRequest};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a filter that was told to end may take.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at something that is about to happen.
const POLL: Duration = Duration::from_millis(10);
/// Pauses between attempts to have a filter, growing.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Keeper {
    config: EgressLinkConfig,
    connection: Mutex<Option<Connection>>,
    /// Process that answered last; 0 before the first.
    pid: AtomicU32,
    generation: watch::Sender<u64>,
    end: CancellationToken,
}

impl Keeper {
    /// No filter yet.
    pub(super) fn new(config: EgressLinkConfig) -> Self {
        Self {
            config,
            connection: Mutex::default(),
            pid: AtomicU32::new(0),
            generation: watch::Sender::new(1),
            end: CancellationToken::new(),
        }
    }

    /// Has a filter for the first time; says whether it was started for that.
    pub(super) async fn begin(&self) -> Result<bool, EgressLinkError> {
        let mut slot = self.connection.lock().await;
        let (connection, started) = self.obtain().await?;
        *slot = Some(connection);
        Ok(started)
    }

    /// Ends what works for the link when dropped; the filter lives on.
    pub(super) fn end_guard(&self) -> DropGuard {
        self.end.clone().drop_guard()
    }

    /// Returns when the link has ended.
    pub(super) async fn ended(&self) {
        self.end.cancelled().await;
    }

    pub(super) fn generations(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    pub(super) fn socket(&self) -> &Path {
        &self.config.control_socket
    }

    /// Asks; if the connection turns out to be broken, once more on a new one, with a new filter if need be.
    /// Every request may be repeated without harm.
    pub(super) async fn ask(
        &self,
        request: EgressRequest,
    ) -> Result<EgressAnswer, EgressLinkError> {
        if self.end.is_cancelled() {
            return Err(EgressLinkError::Closed);
        }
        let mut slot = self.connection.lock().await;
        // An answer that nobody waited for must not be taken for the next one: the connection is put back
        // only when its exchange is complete.
        if let Some(mut connection) = slot.take() {
            match connection.ask(request.clone()).await {
                Err(EgressLinkError::Broken(error)) => {
                    tracing::warn!(%error, "the egress filter is asked again");
                }
                outcome => {
                    *slot = Some(connection);
                    wipe(request);
                    return outcome;
                }
            }
        }
        let (mut connection, _) = self.obtain().await?;
        let outcome = connection.ask(request).await;
        if !matches!(outcome, Err(EgressLinkError::Broken(_))) {
            *slot = Some(connection);
        }
        outcome
    }

    /// Notices when the filter ends, and has another one, until the link ends.
    pub(super) async fn keep(self: std::sync::Arc<Self>) {
        let end = self.end.clone();
        let mut pause = FIRST_PAUSE;
        end.run_until_cancelled(async {
            loop {
                match self.watched().await {
                    Ok(mut watched) => {
                        pause = FIRST_PAUSE;
                        watched.closed().await;
                        tracing::warn!(pid = watched.pid, "the egress filter has ended");
                    }
                    Err(error) => {
                        tracing::error!(%error, "there is no egress filter");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
        })
        .await;
    }

    /// A connection to watch the filter by; the filter is started if there is none.
    async fn watched(&self) -> Result<Connection, EgressLinkError> {
        // Held meanwhile, so that nobody else starts one too.
        let _slot = self.connection.lock().await;
        self.obtain().await.map(|(connection, _)| connection)
    }

    /// A connection to the filter that is there, or to a new one; says whether it was started now.
    async fn obtain(&self) -> Result<(Connection, bool), EgressLinkError> {
        if let Some(connection) = self.adopt().await? {
            self.note(&connection, false);
            return Ok((connection, false));
        }
        let mut child = process::spawn(&self.config)?;
        let process = child.id();
        let connection = self.await_answer(&mut child).await?;
        // Another one may have come first; ours then ends by itself.
        let started = process == Some(connection.pid);
        self.note(&connection, started);
        // Reaped when it ends; its end itself is noticed on the connection.
        drop(handler_base::tasks::spawn_named(
            "egress process",
            async move {
                let status = child.wait().await;
                tracing::info!(?status, "egress filter process");
            },
        ));
        Ok((connection, started))
    }

    async fn adopt(&self) -> Result<Option<Connection>, EgressLinkError> {
        let Some(mut connection) = Connection::open(self.socket()).await? else {
            return Ok(None);
        };
        if connection.protocol == EGRESS_PROTOCOL {
            return Ok(Some(connection));
        }
        let (pid, protocol) = (connection.pid, connection.protocol);
        tracing::info!(
            pid,
            protocol,
            "an egress filter of another version is ended"
        );
        connection.ask(EgressRequest::Shutdown).await?;
        tokio::time::timeout(END_LIMIT, async {
            connection.closed().await;
            while matches!(Connection::open(self.socket()).await, Ok(Some(_))) {
                tokio::time::sleep(POLL).await;
            }
        })
        .await
        .map_err(|_| EgressLinkError::Silent(self.socket().to_owned()))?;
        Ok(None)
    }

    async fn await_answer(&self, child: &mut Child) -> Result<Connection, EgressLinkError> {
        let deadline = Instant::now() + self.config.start_limit;
        loop {
            if let Some(connection) = Connection::open(self.socket()).await?
                && connection.protocol == EGRESS_PROTOCOL
            {
                return Ok(connection);
            }
            if let Some(status) = child.try_wait().map_err(EgressLinkError::Spawn)? {
                return Err(EgressLinkError::Ended {
                    status: status.to_string(),
                    log: self.config.log.clone(),
                });
            }
            if Instant::now() >= deadline {
                let _ = child.start_kill();
                return Err(EgressLinkError::Silent(self.socket().to_owned()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Takes note of who answers; another process than before knows no settings.
    fn note(&self, connection: &Connection, started: bool) {
        let before = self.pid.swap(connection.pid, Ordering::Relaxed);
        if before != 0 && (started || before != connection.pid) {
            tracing::info!(pid = connection.pid, "a new egress filter has taken over");
            self.generation.send_modify(|generation| *generation += 1);
        }
    }
}

/// Wipes the values of a request that is not needed any more.
fn wipe(mut request: EgressRequest) {
    if let EgressRequest::Put { settings, .. } = &mut request {
        for injection in &mut settings.injections {
            zeroize::Zeroize::zeroize(&mut injection.value);
        }
    }
}
