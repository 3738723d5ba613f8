//! The audit log: every decision of the filter, every change of a policy, written down in order by one task.
//!
//! The filter is never kept waiting: it numbers its events and keeps the last of them, this task reads at its own
//! pace, and a number that is missing is itself written down. A change of a policy waits until it is on the disk.

mod disk;
mod numbers;

use super::observe::log::redact::Redaction;
use super::sessions;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use disk::Disk;
use handler_store::audit::{Place, Wanted};
use handler_store::paths::Layout;
use handler_types::ProblemCode;
use handler_types::audit::{Actor, AuditRecord, AuditVerdict, PolicyChange};
use handler_types::egress::EgressEvent;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::SandboxView;
use std::io;
use std::path::PathBuf;
use tokio::sync::{mpsc, oneshot, watch};

tokio::task_local! {
    /// Who asked for what is being done; unset: the daemon itself.
    pub static ACTOR: Actor;
}

/// Events written at a time.
const BATCH: usize = 256;
/// Changes that wait to be written; who brings one more waits.
const WAITING: usize = 64;
/// Times a check begins anew because old files went meanwhile.
const TRIES: usize = 5;

/// Number and hash of the last line.
type Last = Option<(u64, String)>;

enum Order {
    Change(Box<PolicyChange>, oneshot::Sender<()>),
    Settle(oneshot::Sender<Last>),
}

/// The log.
#[derive(Debug)]
pub struct Audit {
    folder: PathBuf,
    orders: mpsc::Sender<Order>,
    written: watch::Receiver<u64>,
}

impl Audit {
    /// Starts writing what comes.
    #[must_use]
    pub(crate) fn start(
        layout: &Layout,
        redaction: Redaction,
        events: mpsc::Receiver<EgressEvent>,
    ) -> Self {
        let (orders, inbox) = mpsc::channel(WAITING);
        let (told, written) = watch::channel(0);
        let task = Task {
            inbox,
            events,
            disk: Some(Disk::new(layout.audit_dir())),
            redaction,
            told,
        };
        handler_base::tasks::spawn_named("audit log", task.run());
        Self {
            folder: layout.audit_dir(),
            orders,
            written,
        }
    }

    /// Tells the number of the last line whenever there are more.
    #[must_use]
    pub fn written(&self) -> watch::Receiver<u64> {
        self.written.clone()
    }

    /// Writes a change down; returns when it is on the disk, or could not be put there.
    async fn change(&self, change: PolicyChange) {
        let (done, wait) = oneshot::channel();
        let order = Order::Change(Box::new(change), done);
        if self.orders.send(order).await.is_ok() {
            wait.await.ok();
        }
    }

    /// The last line, when all that came before this call is written.
    async fn settle(&self) -> Last {
        let (done, wait) = oneshot::channel();
        self.orders.send(Order::Settle(done)).await.ok()?;
        wait.await.ok().flatten()
    }

    /// Lines that fit, behind a place.
    ///
    /// # Errors
    /// The disk's.
    pub async fn read(
        &self,
        wanted: Wanted,
        from: Option<Place>,
    ) -> ApiResult<(Vec<AuditRecord>, Place)> {
        self.settle().await;
        let folder = self.folder.clone();
        on_disk(move || handler_store::audit::read(&folder, &wanted, from)).await
    }

    /// Follows the chain from the oldest line kept to the last one.
    ///
    /// # Errors
    /// The disk's.
    pub async fn verify(&self) -> ApiResult<AuditVerdict> {
        let last = self.settle().await;
        let folder = self.folder.clone();
        on_disk(move || {
            let last = last.as_ref().map(|(seq, hash)| (*seq, hash.as_str()));
            let mut tries = 0;
            loop {
                match handler_store::audit::verify(&folder, last) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => {
                        tries += 1;
                    }
                    outcome => return outcome,
                }
            }
        })
        .await
    }

    /// The files as they are, oldest first.
    ///
    /// # Errors
    /// The disk's.
    pub async fn files(&self) -> ApiResult<Vec<PathBuf>> {
        self.settle().await;
        let folder = self.folder.clone();
        on_disk(move || handler_store::audit::paths(&folder)).await
    }
}

async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> ApiResult<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(ApiError::internal("reading the audit log", &error)),
        Err(_) => Err(ApiError::new(
            ProblemCode::Internal,
            "reading the audit log ended early",
        )),
    }
}

/// Writes down what a sandbox was made with.
pub async fn made(app: &App, view: &SandboxView) {
    changed(app, view, None, &view.network).await;
}

/// Writes down that what a sandbox may reach has changed.
pub async fn changed(
    app: &App,
    view: &SandboxView,
    before: Option<&NetworkPolicy>,
    after: &NetworkPolicy,
) {
    let mut change = PolicyChange::between(actor(), before, after);
    change.session = sessions::session_of(view);
    change.sandbox = Some(view.id.clone());
    app.audit.change(change).await;
}

/// Writes down that what a session may reach at its later starts has changed.
pub async fn changed_session(
    app: &App,
    session: &handler_types::SessionId,
    before: &NetworkPolicy,
    after: &NetworkPolicy,
) {
    let mut change = PolicyChange::between(actor(), Some(before), after);
    change.session = Some(session.clone());
    app.audit.change(change).await;
}

/// Writes down that what an agent's sessions may reach has changed.
pub async fn changed_agent(
    app: &App,
    agent: &handler_types::AgentId,
    before: &NetworkPolicy,
    after: &NetworkPolicy,
) {
    let mut change = PolicyChange::between(actor(), Some(before), after);
    change.agent = Some(agent.clone());
    app.audit.change(change).await;
}

fn actor() -> Actor {
    ACTOR.try_with(Clone::clone).unwrap_or(Actor::Daemon)
}

struct Task {
    inbox: mpsc::Receiver<Order>,
    events: mpsc::Receiver<EgressEvent>,
    /// Away while it writes.
    disk: Option<Disk>,
    redaction: Redaction,
    told: watch::Sender<u64>,
}

impl Task {
    async fn run(mut self) {
        let mut has_events = true;
        loop {
            let mut events = Vec::new();
            let mut order = None;
            tokio::select! {
                biased;
                next = self.inbox.recv() => match next {
                    Some(next) => order = Some(next),
                    None => return,
                },
                count = self.events.recv_many(&mut events, BATCH), if has_events => {
                    has_events = count > 0;
                }
            }
            self.handle(events, order).await;
        }
    }

    async fn handle(&mut self, mut events: Vec<EgressEvent>, order: Option<Order>) {
        if !events.is_empty() {
            let redactor = self.redaction.now().await;
            for event in &mut events {
                event.host = redactor.redact(&event.host).into_owned();
            }
        }
        let (change, done, settle) = match order {
            Some(Order::Change(change, done)) => (Some(change), Some(done), None),
            Some(Order::Settle(settle)) => (None, None, Some(settle)),
            None => (None, None, None),
        };
        let Some(mut disk) = self.disk.take() else {
            return;
        };
        let written = tokio::task::spawn_blocking(move || {
            disk.write(events, change);
            let last = disk.last();
            (disk, last)
        });
        let Ok((disk, last)) = written.await else {
            tracing::error!("the audit log's writer broke; nothing more is written");
            return;
        };
        self.disk = Some(disk);
        if let Some((seq, _)) = &last {
            self.told.send_replace(*seq);
        }
        if let Some(done) = done {
            done.send(()).ok();
        }
        if let Some(settle) = settle {
            settle.send(last).ok();
        }
    }
}
