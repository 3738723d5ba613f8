//! The lasting door to a guest: keeps one connection alive and makes it anew while the instance lives.
//!
//! Invariant: all connections of one handle are to the same guest (its boot id); another one, or one that
//! keeps breaking the protocol, closes the handle for good. Streams and input survive a new connection.

use super::connection::{Connection, Greeted, connect};
use super::error::{GuestCallError, LinkError};
use super::happenings::ProcessHappening;
use super::outbox::lock;
use super::output::OutputSlot;
use super::slots::Slots;
use handler_types::guest::ProcessNumber;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct GuestTiming {
    /// A plain call.
    pub call: Duration,
    /// A call that may walk a folder or flush a file.
    pub slow_call: Duration,
    /// The greeting after connecting.
    pub greeting: Duration,
    /// Longest wait between two attempts to connect again.
    pub longest_backoff: Duration,
}

impl Default for GuestTiming {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(15),
            slow_call: Duration::from_secs(120),
            greeting: Duration::from_secs(5),
            longest_backoff: Duration::from_secs(1),
        }
    }
}

/// How the link stands.
#[derive(Debug, Clone)]
pub(super) enum LinkState {
    Down,
    Up(Arc<Connection>),
    Closed(LinkError),
}

/// What a handle, its clones and its supervisor share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) socket: PathBuf,
    pub(super) boot: String,
    pub(super) timing: GuestTiming,
    pub(super) slots: Arc<Slots>,
    pub(super) state: watch::Sender<LinkState>,
    /// Cancelled when the handle is to close.
    pub(super) stop: CancellationToken,
    pub(super) stop_reason: Mutex<Option<String>>,
}

/// Ends the supervisor when the last handle goes.
#[derive(Debug)]
struct StopOnDrop(CancellationToken);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A lasting link to one guest. Cheap to clone; closed when the last clone goes or [`Self::close`] is called.
#[derive(Debug, Clone)]
pub struct GuestHandle {
    shared: Arc<Shared>,
    _stop: Arc<StopOnDrop>,
}

impl GuestHandle {
    /// Connects, trying again until `within` is over.
    ///
    /// # Errors
    /// [`LinkError`]: the last attempt's, or at once when trying again cannot help.
    pub async fn connect(
        socket: &Path,
        within: Duration,
        timing: GuestTiming,
    ) -> Result<Self, LinkError> {
        let greeted = first_connection(socket, Instant::now() + within, timing).await?;
        let stop = CancellationToken::new();
        let slots = Arc::new(Slots::default());
        let boot = greeted.greeting.boot.clone();
        let connection = greeted.run(slots.clone());
        let shared = Arc::new(Shared {
            socket: socket.to_owned(),
            boot,
            timing,
            slots,
            state: watch::Sender::new(LinkState::Up(connection.clone())),
            stop: stop.clone(),
            stop_reason: Mutex::new(None),
        });
        let supervised = shared.clone();
        handler_base::tasks::spawn_named("guest supervisor", async move {
            supervised.supervise(connection).await;
        });
        Ok(Self {
            shared,
            _stop: Arc::new(StopOnDrop(stop)),
        })
    }

    /// The guest's boot id.
    #[must_use]
    pub fn boot(&self) -> &str {
        &self.shared.boot
    }

    /// Closes the link for good; streams end with `reason`.
    pub fn close(&self, reason: &str) {
        lock(&self.shared.stop_reason).get_or_insert_with(|| reason.to_owned());
        self.shared.stop.cancel();
    }

    /// Returns, with the reason, when the link is closed for good.
    pub async fn closed(&self) -> LinkError {
        let mut state = self.shared.state.subscribe();
        match state
            .wait_for(|state| matches!(state, LinkState::Closed(_)))
            .await
            .as_deref()
        {
            Ok(LinkState::Closed(reason)) => reason.clone(),
            _ => LinkError::Ended,
        }
    }

    /// Whether a connection stands at this moment.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(&*self.shared.state.borrow(), LinkState::Up(connection) if !connection.ended.is_cancelled())
    }

    /// When a process started through the guest last ended, as far as it was told.
    #[must_use]
    pub fn last_exit(&self) -> Option<Instant> {
        self.shared.slots.last_exit()
    }

    /// What happened to processes started through the guest before anyone listened, and what happens from now on.
    #[must_use]
    pub fn happenings(&self) -> (Vec<ProcessHappening>, broadcast::Receiver<ProcessHappening>) {
        self.shared.slots.happenings.listen()
    }

    pub(super) fn timing(&self) -> GuestTiming {
        self.shared.timing
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.shared.slots
    }

    /// The present connection, waiting for one until `deadline`.
    pub(super) async fn up(
        &self,
        deadline: Instant,
        limit: Duration,
    ) -> Result<Arc<Connection>, GuestCallError> {
        let mut state = self.shared.state.subscribe();
        let found = timeout_at(
            deadline,
            state.wait_for(|state| match state {
                LinkState::Down => false,
                LinkState::Up(connection) => !connection.ended.is_cancelled(),
                LinkState::Closed(_) => true,
            }),
        )
        .await
        .map_err(|_| GuestCallError::Timeout(limit))?;
        match found.as_deref() {
            Ok(LinkState::Up(connection)) => Ok(connection.clone()),
            Ok(LinkState::Closed(reason)) => Err(GuestCallError::Lost(reason.clone())),
            _ => Err(GuestCallError::Lost(LinkError::Ended)),
        }
    }

    /// The present connection, if one stands.
    pub(super) fn now(&self) -> Option<Arc<Connection>> {
        match &*self.shared.state.borrow() {
            LinkState::Up(connection) if !connection.ended.is_cancelled() => {
                Some(connection.clone())
            }
            _ => None,
        }
    }

    pub(super) fn send_ack(&self, process: ProcessNumber, up_to: u64) {
        if let Some(connection) = self.now() {
            connection.outbox.ack(process, up_to);
        }
    }

    /// Ends a connection to a port; when there is no link now, the guest does so by itself after a while.
    pub(super) fn hang_up(&self, process: ProcessNumber) {
        self.shared.slots.forget_input(process);
        if let Some(connection) = self.now() {
            connection.outbox.forget(process);
        }
    }

    pub(super) fn detach(&self, slot: &Arc<OutputSlot>) {
        if self.shared.slots.remove_output(slot)
            && let Some(connection) = self.now()
        {
            connection.pending.detach(slot);
            connection.outbox.detach(slot.process);
        }
    }
}

/// Tries to connect until the deadline.
async fn first_connection(
    socket: &Path,
    deadline: Instant,
    timing: GuestTiming,
) -> Result<Greeted, LinkError> {
    let mut pause = Duration::from_millis(1);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match connect(socket, timing.greeting.min(left)).await {
            Err(LinkError::Connect { .. }) if Instant::now() + pause < deadline => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}
