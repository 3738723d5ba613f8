//! The control socket: one JSON document a line, answered in order, for the owner only.
//!
//! Invariant: no answer and no log line repeats what a request held; lines that held values are wiped.

use crate::registry::Registry;
use handler_types::egress::{EGRESS_PROTOCOL, EgressAnswer, EgressRequest, LoginKept};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

/// Longest request line: ten thousand entries and every secret fit.
const LONGEST_LINE: u64 = 16 * 1024 * 1024;
const MOST_CONNECTIONS: usize = 64;
/// How long a peer may take to read what is written to it.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Events written at a time.
const BATCH: usize = 256;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Serves the control socket.
#[derive(Debug)]
pub(crate) struct Control {
    registry: Arc<Registry>,
    slots: Arc<Semaphore>,
    /// Connections open.
    open: watch::Sender<usize>,
    end: CancellationToken,
    tasks: TaskTracker,
}

/// What a connection has said first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Nothing,
    Ours,
    Other,
}

impl Control {
    /// For these sandboxes.
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            slots: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            open: watch::Sender::new(0),
            end: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Returns when the filter was told to end.
    pub(crate) async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// Ends every connection.
    pub(crate) async fn close(&self) {
        self.end.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.tasks.wait()).await;
    }

    /// Returns when there was no connection and no sandbox for `limit`.
    pub(crate) async fn unused_for(&self, limit: Duration) {
        let pause = (limit / 10).clamp(Duration::from_millis(10), Duration::from_secs(60));
        let mut since = Instant::now();
        while since.elapsed() < limit {
            tokio::time::sleep(pause).await;
            if *self.open.borrow() > 0 || !self.registry.is_empty().await {
                since = Instant::now();
            }
        }
    }

    /// Accepts for ever.
    pub(crate) async fn serve(self: Arc<Self>, listener: UnixListener) {
        loop {
            let Ok(permit) = self.slots.clone().acquire_owned().await else {
                return;
            };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a control connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if !is_owner(&stream) {
                tracing::warn!("a control connection of another user was refused");
                continue;
            }
            let control = self.clone();
            let work = async move {
                control.open.send_modify(|open| *open += 1);
                let end = control.end.clone();
                let talked = end.run_until_cancelled(control.talk(stream)).await;
                if let Some(Err(error)) = talked {
                    tracing::debug!(%error, "control connection ended");
                }
                control.open.send_modify(|open| *open -= 1);
                drop(permit);
            };
            drop(handler_base::tasks::spawn_named(
                "egress control",
                self.tasks.track_future(work),
            ));
        }
    }

    async fn talk(&self, stream: UnixStream) -> io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        let mut greeting = Greeting::Nothing;
        loop {
            let mut line = Zeroizing::new(Vec::new());
            let got = (&mut read)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line)
                .await?;
            if got == 0 {
                return Ok(());
            }
            if !line.ends_with(b"\n") {
                let message = "a request is one line of at most 16 MiB".to_owned();
                return answer(&mut write, &EgressAnswer::Failed { message }).await;
            }
            let request = match serde_json::from_slice::<EgressRequest>(&line) {
                Ok(request) => request,
                Err(error) => {
                    // The library's own text may quote the input.
                    let message = format!(
                        "not a request: {:?} error at column {}",
                        error.classify(),
                        error.column()
                    );
                    answer(&mut write, &EgressAnswer::Failed { message }).await?;
                    continue;
                }
            };
            drop(line);
            if read.buffer().is_empty() {
                // Its buffer still shows what came.
                read = BufReader::new(read.into_inner());
            }
            if let Some(refusal) = greeting.refuses(&request) {
                let message = refusal.to_owned();
                answer(&mut write, &EgressAnswer::Failed { message }).await?;
                continue;
            }
            match request {
                EgressRequest::Subscribe { after } => {
                    return self.subscribed(read, write, after).await;
                }
                EgressRequest::Logins => return self.logins(read, write).await,
                EgressRequest::Shutdown => {
                    // Whoever asked need not wait for the answer.
                    let told = answer(&mut write, &EgressAnswer::Done).await;
                    self.end.cancel();
                    return told;
                }
                EgressRequest::Hello { protocol } => {
                    greeting = match protocol {
                        EGRESS_PROTOCOL => Greeting::Ours,
                        _ => Greeting::Other,
                    };
                    answer(&mut write, &hello()).await?;
                }
                other => answer(&mut write, &self.perform(other).await).await?,
            }
        }
    }

    async fn perform(&self, request: EgressRequest) -> EgressAnswer {
        match request {
            EgressRequest::Put { sandbox, settings } => {
                match self.registry.put(&sandbox, settings).await {
                    Ok(ca_pem) => EgressAnswer::Put { ca_pem },
                    Err(error) => EgressAnswer::Failed {
                        message: error.to_string(),
                    },
                }
            }
            EgressRequest::Remove { sandbox } => {
                self.registry.remove(&sandbox).await;
                EgressAnswer::Done
            }
            EgressRequest::Traffic => EgressAnswer::Traffic {
                sandboxes: self.registry.traffic().await,
            },
            EgressRequest::List => EgressAnswer::List {
                sandboxes: self.registry.list().await,
            },
            EgressRequest::Hello { .. }
            | EgressRequest::Subscribe { .. }
            | EgressRequest::Logins
            | EgressRequest::Shutdown => EgressAnswer::Failed {
                message: "not expected here".to_owned(),
            },
        }
    }

    /// Gives new tokens of logins to the daemon, one at a time; each stays until it says that it keeps them.
    async fn logins(
        &self,
        mut read: BufReader<OwnedReadHalf>,
        mut write: OwnedWriteHalf,
    ) -> io::Result<()> {
        let courier = self.registry.shared().logins.courier();
        loop {
            let next = tokio::select! {
                next = courier.next() => next,
                // Nothing was asked: this is its end.
                _ = read.fill_buf() => None,
            };
            let Some(renewal) = next else { return Ok(()) };
            let mut line = Zeroizing::new(Vec::with_capacity(64 * 1024));
            serde_json::to_writer(&mut *line, &renewal)?;
            line.push(b'\n');
            write_all(&mut write, &line).await?;
            let seq = renewal.seq;
            drop(renewal);
            let mut line = Vec::new();
            let got = (&mut read).take(1024).read_until(b'\n', &mut line).await?;
            match serde_json::from_slice::<LoginKept>(&line[..got]) {
                Ok(answer) if answer.seq == seq && answer.kept => courier.kept(seq),
                Ok(_) => {
                    courier.later(seq);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes events until the subscriber leaves or stalls.
    async fn subscribed(
        &self,
        mut read: BufReader<OwnedReadHalf>,
        mut write: OwnedWriteHalf,
        after: u64,
    ) -> io::Result<()> {
        let events = &self.registry.shared().events;
        let mut latest = events.watch();
        let mut seq = events.start(after);
        loop {
            latest.borrow_and_update();
            let lines = events.after(seq, BATCH);
            let Some((last, _)) = lines.last() else {
                let mut byte = [0];
                tokio::select! {
                    changed = latest.changed() => changed.map_err(io::Error::other)?,
                    // It has nothing to say any more: this is its end.
                    _ = read.read(&mut byte) => return Ok(()),
                }
                continue;
            };
            seq = *last;
            let batch: String = lines.iter().map(|(_, line)| &**line).collect();
            write_all(&mut write, batch.as_bytes()).await?;
        }
    }
}

impl Greeting {
    /// Why a request may not come now.
    fn refuses(self, request: &EgressRequest) -> Option<&'static str> {
        match (self, request) {
            (_, EgressRequest::Hello { .. } | EgressRequest::Shutdown) | (Self::Ours, _) => None,
            (Self::Nothing, _) => Some("`hello` comes first"),
            (Self::Other, _) => Some("this filter speaks another version of the protocol"),
        }
    }
}

fn hello() -> EgressAnswer {
    EgressAnswer::Hello {
        protocol: EGRESS_PROTOCOL,
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Whether the peer runs as the same user as we do.
fn is_owner(stream: &UnixStream) -> bool {
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

async fn answer(write: &mut OwnedWriteHalf, answer: &EgressAnswer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    write_all(write, &line).await
}

async fn write_all(write: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    tokio::time::timeout(WRITE_LIMIT, write.write_all(bytes))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
