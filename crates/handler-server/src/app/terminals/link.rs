//! The way from a terminal's owner to its process: found again by its key, read from where the screen stands,
//! typed into by one task so that a program that does not read stalls nobody else.

use super::record::Record;
use crate::state::App;
use bytes::Bytes;
use handler_base::tasks::spawn_named;
use handler_engine::UseGuard;
use handler_engine::guest::{GuestCallError, GuestHandle, ProcessStream};
use handler_types::SandboxId;
use handler_types::guest::{ProcessInfo, TtySize};
use handler_types::sandbox::SandboxState;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Pieces of input that wait for the process.
const INPUT_PIECES: usize = 64;
/// Between tries to reach a sandbox that is neither running nor stopped.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// Tries to find a process in a running sandbox.
const TRIES: usize = 20;

/// Whether there is a process to type to.
#[derive(Debug)]
pub(super) enum Way {
    /// It is looked for.
    Sought,
    /// Here.
    Open(mpsc::Sender<Bytes>),
    /// There is none.
    Closed,
}

/// Where keys go.
#[derive(Debug, Clone)]
pub(super) struct Keys(Arc<watch::Sender<Way>>);

impl Default for Keys {
    fn default() -> Self {
        Self(Arc::new(watch::channel(Way::Sought).0))
    }
}

impl Keys {
    /// Where to send them now.
    pub(super) fn sender(&self) -> Option<mpsc::Sender<Bytes>> {
        self.0.borrow().sender()
    }

    /// Where to send them, once it is known.
    pub(super) async fn found(&self) -> Option<mpsc::Sender<Bytes>> {
        let mut ways = self.0.subscribe();
        let way = ways.wait_for(|way| !matches!(way, Way::Sought)).await;
        way.ok()?.sender()
    }

    pub(super) fn set(&self, way: Way) {
        self.0.send_replace(way);
    }
}

impl Way {
    fn sender(&self) -> Option<mpsc::Sender<Bytes>> {
        match self {
            Self::Open(sender) => Some(sender.clone()),
            Self::Sought | Self::Closed => None,
        }
    }
}

/// A process within reach.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) guest: GuestHandle,
    pub(super) stream: ProcessStream,
    pub(super) process: u32,
    /// Output below this offset was shown, and its questions answered, before.
    pub(super) replayed_below: u64,
    sizes: watch::Sender<TtySize>,
    /// A terminal whose program runs is use of its sandbox.
    _use: Option<UseGuard>,
    _tasks: DropGuard,
}

/// What looking for the process came to.
#[derive(Debug)]
pub(super) enum Found {
    /// It is there.
    Link(Box<Link>),
    /// It is not, and will not be.
    Gone,
}

impl Link {
    /// Reads the process from `from` on.
    pub(super) async fn to(
        app: &App,
        sandbox: &SandboxId,
        guest: GuestHandle,
        info: &ProcessInfo,
        from: u64,
        keys: &Keys,
    ) -> Result<Self, GuestCallError> {
        let stream = guest.attach(info.process, from.max(info.acked)).await?;
        let tasks = CancellationToken::new();
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        keys.set(Way::Open(sender));
        let typing = type_in(guest.clone(), info.process, info.received, input);
        spawn_until(&tasks, "terminal input", typing);
        let size = info.tty.unwrap_or(TtySize { cols: 80, rows: 24 });
        let (sizes, wanted) = watch::channel(size);
        let sizing = set_sizes(guest.clone(), info.process, wanted);
        spawn_until(&tasks, "terminal size", sizing);
        Ok(Self {
            guest,
            stream,
            process: info.process,
            replayed_below: info.produced,
            sizes,
            _use: app.engine.hold(sandbox).ok(),
            _tasks: tasks.drop_guard(),
        })
    }

    /// Sets the size inside, soon.
    pub(super) fn resize(&self, size: TtySize) {
        self.sizes.send_replace(size);
    }
}

fn spawn_until(
    end: &CancellationToken,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let end = end.clone();
    spawn_named(name, async move {
        tokio::select! {
            () = end.cancelled() => {}
            () = work => {}
        }
    });
}

/// Looks for the process until it is found or cannot be there.
pub(super) async fn find(
    app: Arc<App>,
    sandbox: SandboxId,
    record: Record,
    from: u64,
    keys: Keys,
) -> Found {
    let mut tries = 0;
    while tries < TRIES {
        let Ok(view) = app.engine.get(&sandbox) else {
            return Found::Gone;
        };
        match view.state {
            SandboxState::Stopped | SandboxState::Failed | SandboxState::Deleting => {
                return Found::Gone;
            }
            SandboxState::Running => match reach(&app, &sandbox, &record, from, &keys).await {
                Ok(found) => return found,
                Err(error) => {
                    tries += 1;
                    tracing::debug!(%error, %sandbox, terminal = record.terminal, "not reached yet");
                }
            },
            // Asleep or on its way: as long as it takes.
            _ => {}
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
    tracing::warn!(%sandbox, terminal = record.terminal, "a terminal's process cannot be reached");
    Found::Gone
}

async fn reach(
    app: &App,
    sandbox: &SandboxId,
    record: &Record,
    from: u64,
    keys: &Keys,
) -> Result<Found, String> {
    let guest = app.engine.guest(sandbox).map_err(|e| e.to_string())?;
    let processes = guest.processes().await.map_err(|e| e.to_string())?;
    let Some(info) = processes.iter().find(|info| info.key == record.key) else {
        return Ok(Found::Gone);
    };
    let link = Link::to(app, sandbox, guest, info, from, keys).await;
    link.map(|link| Found::Link(Box::new(link)))
        .map_err(|e| e.to_string())
}

async fn type_in(
    guest: GuestHandle,
    process: u32,
    mut offset: u64,
    mut input: mpsc::Receiver<Bytes>,
) {
    while let Some(bytes) = input.recv().await {
        let length = bytes.len() as u64;
        let mut written = guest.write_stdin(process, offset, bytes.clone()).await;
        if matches!(written, Err(GuestCallError::Invalid(_)))
            && let Ok(info) = guest.process(process).await
        {
            // Someone else has written to it meanwhile.
            offset = info.received;
            written = guest.write_stdin(process, offset, bytes).await;
        }
        match written {
            Ok(()) => offset += length,
            Err(error) => tracing::debug!(%error, process, "keys went nowhere"),
        }
    }
}

async fn set_sizes(guest: GuestHandle, process: u32, mut wanted: watch::Receiver<TtySize>) {
    while wanted.changed().await.is_ok() {
        let size = *wanted.borrow_and_update();
        if let Err(error) = guest.resize(process, size.cols, size.rows).await {
            tracing::debug!(%error, process, "the size was not set");
        }
    }
}
