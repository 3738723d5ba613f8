//! The lasting door to a guest: keeps one connection alive and makes it anew while the instance lives.
//!
//! Invariant: all connections of one handle are to the same guest (its boot id); another one, or one that
//! keeps breaking the protocol, closes the handle for good. Streams and input survive a new connection.

use super::connection::{Connection, Greeted, connect};
use super::error::{GuestCallError, LinkError};
use super::input::InputSlot;
use super::outbox::lock;
use super::output::OutputSlot;
use super::pending::Waiting;
use handler_types::guest::{Exit, GuestError, Op, ProcessNumber, Reply};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// So many protocol breaches in a row close the handle.
const MOST_BREACHES: u32 = 5;
/// A connection that lived so long clears the count of breaches.
const CALM: Duration = Duration::from_secs(60);

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

/// Where output and input of processes wait; outlives connections.
#[derive(Debug, Default)]
pub(super) struct Slots {
    outputs: Mutex<HashMap<ProcessNumber, Arc<OutputSlot>>>,
    inputs: Mutex<HashMap<ProcessNumber, Arc<InputSlot>>>,
}

impl Slots {
    pub(super) fn exited(&self, process: ProcessNumber, exit: Exit) {
        if let Some(slot) = lock(&self.outputs).get(&process) {
            slot.exited(exit);
        }
        if let Some(slot) = lock(&self.inputs).remove(&process) {
            slot.refuse(super::calls::gone("the process has ended"));
        }
    }

    pub(super) fn credit(&self, process: ProcessNumber, received: u64) -> Result<(), &'static str> {
        match self.input(process) {
            Some(slot) => slot.credit(received),
            None => Ok(()),
        }
    }

    pub(super) fn refuse(&self, process: ProcessNumber, error: GuestError) {
        if let Some(slot) = self.input(process) {
            slot.refuse(error);
        }
    }

    pub(super) fn input(&self, process: ProcessNumber) -> Option<Arc<InputSlot>> {
        lock(&self.inputs).get(&process).cloned()
    }

    /// The input slot of a process; made with what the guest has when there is none.
    pub(super) fn input_or_new(&self, process: ProcessNumber, received: u64) -> Arc<InputSlot> {
        lock(&self.inputs)
            .entry(process)
            .or_insert_with(|| Arc::new(InputSlot::new(process, received)))
            .clone()
    }

    pub(super) fn forget_input(&self, process: ProcessNumber) {
        lock(&self.inputs).remove(&process);
    }

    /// Puts an output slot in; the one it replaces is told.
    pub(super) fn put_output(&self, slot: &Arc<OutputSlot>) {
        let old = lock(&self.outputs).insert(slot.process, slot.clone());
        if let Some(old) = old {
            old.lose("someone else reads this process now");
        }
    }

    /// Takes an output slot out, if it is still the one; says whether it was.
    fn remove_output(&self, slot: &Arc<OutputSlot>) -> bool {
        let mut outputs = lock(&self.outputs);
        let is_it = outputs
            .get(&slot.process)
            .is_some_and(|known| Arc::ptr_eq(known, slot));
        if is_it {
            outputs.remove(&slot.process);
        }
        is_it
    }

    fn all_outputs(&self) -> Vec<Arc<OutputSlot>> {
        lock(&self.outputs).values().cloned().collect()
    }

    fn all_inputs(&self) -> Vec<Arc<InputSlot>> {
        lock(&self.inputs).values().cloned().collect()
    }

    fn lose_all(&self, reason: &str) {
        for output in self.all_outputs() {
            output.lose(reason);
        }
        for input in self.all_inputs() {
            input.refuse(super::calls::gone(reason));
        }
    }
}

#[derive(Debug, Clone)]
enum LinkState {
    Down,
    Up(Arc<Connection>),
    Closed(LinkError),
}

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    boot: String,
    timing: GuestTiming,
    slots: Arc<Slots>,
    state: watch::Sender<LinkState>,
    /// Cancelled when the handle is to close.
    stop: CancellationToken,
    stop_reason: Mutex<Option<String>>,
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

impl Shared {
    /// Keeps a connection until the handle closes.
    async fn supervise(&self, mut connection: Arc<Connection>) {
        let mut breaches = 0;
        let reason = loop {
            let since = Instant::now();
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = connection.ended.cancelled() => {}
            }
            if self.stop.is_cancelled() {
                break self.stopped();
            }
            let reason = connection.reason();
            self.state.send_replace(LinkState::Down);
            tracing::debug!(%reason, socket = %self.socket.display(), "the guest link broke");
            if since.elapsed() > CALM {
                breaches = 0;
            }
            breaches += u32::from(reason.is_breach());
            if breaches >= MOST_BREACHES {
                break reason;
            }
            match self.connect_again(&mut breaches).await {
                Ok(next) => connection = next,
                Err(reason) => break reason,
            }
            self.state.send_replace(LinkState::Up(connection.clone()));
        };
        connection.end(reason.clone());
        self.slots.lose_all(&reason.to_string());
        self.state.send_replace(LinkState::Closed(reason));
    }

    fn stopped(&self) -> LinkError {
        let reason = lock(&self.stop_reason).clone();
        LinkError::Closed(reason.unwrap_or_else(|| "the link was closed".to_owned()))
    }

    /// Connects anew and takes everything up where it was.
    async fn connect_again(&self, breaches: &mut u32) -> Result<Arc<Connection>, LinkError> {
        let mut pause = Duration::from_millis(5);
        loop {
            let attempt = tokio::select! {
                () = self.stop.cancelled() => return Err(self.stopped()),
                attempt = self.resume() => attempt,
            };
            let error = match attempt {
                Ok(connection) => return Ok(connection),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => error,
            };
            *breaches += u32::from(error.is_breach());
            if *breaches >= MOST_BREACHES {
                return Err(error);
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(self.stopped()),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(self.timing.longest_backoff);
        }
    }

    /// One new connection on which every stream and input goes on.
    async fn resume(&self) -> Result<Arc<Connection>, LinkError> {
        let greeted = connect(&self.socket, self.timing.greeting).await?;
        if greeted.greeting.boot != self.boot {
            return Err(LinkError::Replaced);
        }
        let connection = greeted.run(self.slots.clone());
        match self.resume_on(&connection).await {
            Ok(()) => Ok(connection),
            Err(error) => {
                let reason = match error {
                    GuestCallError::Lost(reason) => reason,
                    other => LinkError::Broken(other.to_string()),
                };
                connection.end(reason.clone());
                Err(reason)
            }
        }
    }

    async fn resume_on(&self, connection: &Arc<Connection>) -> Result<(), GuestCallError> {
        let limit = self.timing.call;
        let deadline = Instant::now() + limit;
        for slot in self.slots.all_outputs() {
            if slot.resume_from().is_none() {
                continue;
            }
            match connection.attach(&slot, deadline, limit).await {
                Ok(_) => {}
                Err(GuestCallError::Refused(error)) => slot.lose(&error.message),
                Err(error) => return Err(error),
            }
        }
        let inputs = self.slots.all_inputs();
        if inputs.is_empty() {
            return Ok(());
        }
        let reply = connection
            .request(Op::Processes, Waiting::Plain, deadline, limit)
            .await?;
        let Reply::Processes { processes, .. } = reply else {
            return Err(connection.unexpected());
        };
        for slot in inputs {
            let known = processes.iter().find(|info| info.process == slot.process);
            let Some(info) = known.filter(|info| info.exit.is_none()) else {
                slot.refuse(super::calls::gone("the process has ended"));
                self.slots.forget_input(slot.process);
                continue;
            };
            if let Err(breach) = slot.resume(info.received) {
                return Err(GuestCallError::Lost(LinkError::Nonsense(breach)));
            }
            super::calls::pump(connection, &slot).await?;
            super::calls::send_close(connection, &slot, deadline, limit).await?;
        }
        Ok(())
    }
}
