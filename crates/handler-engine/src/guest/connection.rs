//! One connection to a guest: greeting, requests with ids and deadlines, and its end.

use super::error::{GuestCallError, LinkError};
use super::outbox::{Outbox, lock};
use super::output::OutputSlot;
use super::pending::{Answer, Pending, Waiting};
use super::reader::FrameReader;
use super::slots::Slots;
use bytes::Bytes;
use handler_types::frame::encode_json;
use handler_types::guest::{Message, Op, PROTOCOL, ProcessInfo, Reply, Request};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Requests that may be unanswered at once; more wait their turn.
const UNANSWERED: usize = 256;
/// Longest boot id taken.
const LONGEST_BOOT: usize = 128;

/// A live connection. Everything is told of its end through `ended`.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) outbox: Outbox,
    pub(super) pending: Pending,
    /// Cancelled when the connection is over or is to end.
    pub(super) ended: CancellationToken,
    reason: Mutex<Option<LinkError>>,
    permits: Semaphore,
}

/// What a guest said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) boot: String,
}

/// A connection that was greeted and is not running yet.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) greeting: Greeting,
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

/// Connects and takes the greeting.
pub(super) async fn connect(
    socket: &Path,
    greeting_within: Duration,
) -> Result<Greeted, LinkError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| LinkError::Connect {
            socket: socket.to_owned(),
            message: error.to_string(),
        })?;
    let (reader, writer) = stream.into_split();
    let mut reader = FrameReader::new(reader);
    let message = tokio::time::timeout(greeting_within, reader.next_message())
        .await
        .map_err(|_| LinkError::Silent(greeting_within))??;
    let Message::Hello { protocol, boot, .. } = message else {
        return Err(LinkError::Nonsense("another message than the greeting"));
    };
    if protocol != PROTOCOL {
        return Err(LinkError::Version {
            theirs: protocol,
            ours: PROTOCOL,
        });
    }
    if boot.len() > LONGEST_BOOT {
        return Err(LinkError::Nonsense("a boot id longer than allowed"));
    }
    Ok(Greeted {
        greeting: Greeting { boot },
        reader,
        writer,
    })
}

impl Greeted {
    /// Starts the reader and the writer.
    pub(super) fn run(mut self, slots: Arc<Slots>) -> Arc<Connection> {
        let (outbox, lanes) = Outbox::new();
        let connection = Arc::new(Connection {
            outbox,
            pending: Pending::default(),
            ended: CancellationToken::new(),
            reason: Mutex::new(None),
            permits: Semaphore::new(UNANSWERED),
        });
        let shared = connection.clone();
        handler_base::tasks::spawn_named("guest link", async move {
            let reason = tokio::select! {
                () = shared.ended.cancelled() => None,
                error = self.reader.run(&shared, &slots) => Some(error),
                result = shared.outbox.write_to(lanes, self.writer) => {
                    result.err().map(|error| LinkError::Broken(error.to_string()))
                }
            };
            shared.end(reason.unwrap_or(LinkError::Ended));
        });
        connection
    }
}

impl Connection {
    /// Ends the connection; the first reason stays.
    pub(super) fn end(&self, reason: LinkError) {
        let text = reason.to_string();
        lock(&self.reason).get_or_insert(reason);
        self.ended.cancel();
        self.pending.close(&text);
    }

    /// Why it ended.
    pub(super) fn reason(&self) -> LinkError {
        lock(&self.reason).clone().unwrap_or(LinkError::Ended)
    }

    pub(super) fn lost(&self) -> GuestCallError {
        GuestCallError::Lost(self.reason())
    }

    /// The guest answered with something else than was asked for: the connection ends.
    pub(super) fn unexpected(&self) -> GuestCallError {
        let error = LinkError::Nonsense("an answer of another kind than was asked for");
        self.end(error.clone());
        GuestCallError::Lost(error)
    }

    pub(super) fn credit(&self, request: u32, bytes: u64) {
        if !self.ended.is_cancelled() {
            self.outbox.credit(request, bytes);
        }
    }

    /// Stops a read or write that nobody wants any more.
    pub(super) fn cancel_file(&self, request: u32) {
        self.pending.forget(request);
        if !self.ended.is_cancelled() {
            self.outbox.cancel(request);
        }
    }

    /// Sends a frame in the lane of requests.
    async fn send(&self, frame: Bytes) -> Result<(), GuestCallError> {
        tokio::select! {
            () = self.ended.cancelled() => Err(self.lost()),
            sent = self.outbox.urgent.send(frame) => sent.map_err(|_| self.lost()),
        }
    }

    /// Sends a request; the answer comes through the receiver.
    pub(super) async fn send_request(
        &self,
        op: Op,
        waiting: Waiting,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(u32, oneshot::Receiver<Answer>), GuestCallError> {
        let (id, answer) = self.pending.open(waiting).ok_or_else(|| self.lost())?;
        let guard = ForgetOnDrop {
            pending: &self.pending,
            id: Some(id),
        };
        let mut frame = Vec::new();
        encode_json(&Request { id, op }, &mut frame)
            .map_err(|error| GuestCallError::Invalid(error.to_string()))?;
        timeout_at(deadline, self.send(frame.into()))
            .await
            .map_err(|_| GuestCallError::Timeout(limit))??;
        guard.disarm();
        Ok((id, answer))
    }

    /// Waits for an answer.
    pub(super) async fn wait(
        &self,
        answer: oneshot::Receiver<Answer>,
        deadline: Instant,
        limit: Duration,
    ) -> Result<Reply, GuestCallError> {
        let answer = timeout_at(deadline, answer)
            .await
            .map_err(|_| GuestCallError::Timeout(limit))?;
        self.read_answer(answer)
    }

    pub(super) fn read_answer(
        &self,
        answer: Result<Answer, oneshot::error::RecvError>,
    ) -> Result<Reply, GuestCallError> {
        match answer {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(GuestCallError::Refused(error)),
            Err(_) => Err(self.lost()),
        }
    }

    /// One request and its answer. Safe to give up: the late answer is dropped.
    pub(super) async fn request(
        &self,
        op: Op,
        waiting: Waiting,
        deadline: Instant,
        limit: Duration,
    ) -> Result<Reply, GuestCallError> {
        let _permit = timeout_at(deadline, self.permits.acquire())
            .await
            .map_err(|_| GuestCallError::Timeout(limit))?
            .map_err(|_| self.lost())?;
        let (id, answer) = self.send_request(op, waiting, deadline, limit).await?;
        let _guard = ForgetOnDrop {
            pending: &self.pending,
            id: Some(id),
        };
        self.wait(answer, deadline, limit).await
    }

    /// Attaches a slot at its position.
    pub(super) async fn attach(
        &self,
        slot: &Arc<OutputSlot>,
        deadline: Instant,
        limit: Duration,
    ) -> Result<ProcessInfo, GuestCallError> {
        let (from, _) = slot.position();
        let op = Op::Attach {
            process: slot.process,
            from,
        };
        let waiting = Waiting::Attach(slot.clone());
        match self.request(op, waiting, deadline, limit).await? {
            Reply::Process { process } => {
                let (_, acked) = slot.position();
                if acked > process.acked {
                    // An acknowledgement made while there was no connection is said now.
                    self.outbox.ack(slot.process, acked);
                }
                Ok(process)
            }
            _ => Err(self.unexpected()),
        }
    }
}

/// Takes an id off the table when its call is given up (once answered, it is off already).
struct ForgetOnDrop<'a> {
    pending: &'a Pending,
    id: Option<u32>,
}

impl ForgetOnDrop<'_> {
    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.pending.forget(id);
        }
    }
}
