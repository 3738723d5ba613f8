//! Files on their way between the guest and a caller.
//!
//! Invariant: of a read at most [`FILE_WINDOW`] bytes wait here; credit is given as they are taken. A write
//! that is given up is cancelled in the guest, which then leaves nothing.

use super::connection::Connection;
use super::error::{GuestCallError, LinkError};
use super::handle::GuestHandle;
use super::outbox::lock;
use super::pending::Waiting;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use handler_types::frame::encode_file;
use handler_types::guest::{FILE_WINDOW, MAX_CHUNK, Op, Reply, UnpackLimits, Unpacked};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

/// What is known of a file being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMeta {
    /// Size of the whole file in bytes when the read began.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, milliseconds since the epoch.
    pub modified_ms: i64,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Bytes.
    pub size: u64,
    /// SHA-256, lower-case hex.
    pub sha256: String,
}

/// Longest time a guest may hash a file.
const HASH_LIMIT: Duration = Duration::from_secs(600);
/// Most left-out paths taken, and most characters of each.
const MOST_SKIPPED: usize = 100;
const LONGEST_SKIPPED: usize = 1000;

#[derive(Debug)]
struct State {
    bytes: BytesMut,
    /// Bytes the guest may still send.
    room: u64,
    done: bool,
    failed: Option<String>,
    skipped: (Vec<String>, u64),
}

/// The place where a read's content waits.
#[derive(Debug)]
pub(super) struct ReadSlot {
    state: Mutex<State>,
    changed: Notify,
}

impl ReadSlot {
    fn new() -> Self {
        Self {
            state: Mutex::new(State {
                bytes: BytesMut::new(),
                room: FILE_WINDOW,
                done: false,
                failed: None,
                skipped: (Vec::new(), 0),
            }),
            changed: Notify::new(),
        }
    }

    /// Takes content from the guest; none ends the file.
    pub(super) fn accept(&self, data: &[u8]) -> Result<(), &'static str> {
        let mut state = lock(&self.state);
        if state.done {
            return Err("file content after its end");
        }
        if data.is_empty() {
            state.done = true;
        }
        state.room = state
            .room
            .checked_sub(data.len() as u64)
            .ok_or("more file content than the window allows")?;
        state.bytes.extend_from_slice(data);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// What is not in a packed archive.
    pub(super) fn packed(&self, skipped: Vec<String>, count: u64) {
        let cut = |text: String| {
            let plain = text.chars().filter(|c| !c.is_control());
            plain.take(LONGEST_SKIPPED).collect()
        };
        let told = skipped.into_iter().take(MOST_SKIPPED).map(cut).collect();
        lock(&self.state).skipped = (told, count);
    }

    /// Nothing will come any more.
    pub(super) fn fail(&self, reason: &str) {
        let mut state = lock(&self.state);
        if !state.done {
            state.failed.get_or_insert_with(|| reason.to_owned());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// What to give now: a piece, the end, or nothing yet.
    fn take(&self) -> Option<Option<Result<Bytes, String>>> {
        let mut state = lock(&self.state);
        if !state.bytes.is_empty() {
            let length = state.bytes.len().min(MAX_CHUNK);
            state.room += length as u64;
            return Some(Some(Ok(state.bytes.split_to(length).freeze())));
        }
        if state.done {
            return Some(None);
        }
        state.failed.clone().map(|reason| Some(Err(reason)))
    }
}

/// The content of a file. Dropping it before its end stops the read.
#[derive(Debug)]
pub struct FileStream {
    connection: Arc<Connection>,
    slot: Arc<ReadSlot>,
    request: u32,
    over: bool,
    /// Keeps the link open.
    _handle: GuestHandle,
}

impl FileStream {
    /// The next piece; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Bytes, GuestCallError>> {
        if self.over {
            return None;
        }
        loop {
            let changed = self.slot.changed.notified();
            match self.slot.take() {
                Some(Some(Ok(bytes))) => {
                    self.connection.credit(self.request, bytes.len() as u64);
                    return Some(Ok(bytes));
                }
                Some(Some(Err(reason))) => {
                    self.over = true;
                    return Some(Err(GuestCallError::Lost(LinkError::Broken(reason))));
                }
                Some(None) => {
                    self.over = true;
                    self.connection.pending.forget(self.request);
                    return None;
                }
                None => changed.await,
            }
        }
    }

    /// Paths left out of a packed archive, with the reason, and how many there are; known at the end.
    #[must_use]
    pub fn skipped(&self) -> (Vec<String>, u64) {
        lock(&self.slot.state).skipped.clone()
    }

    /// As a [`Stream`] for bodies.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, GuestCallError>> + Send {
        futures::stream::unfold(self, |mut file| async move {
            let item = file.next().await?;
            Some((item, file))
        })
    }
}

impl Drop for FileStream {
    fn drop(&mut self) {
        if !self.over {
            self.connection.cancel_file(self.request);
        }
    }
}

/// Cancels a file request that is given up half-way.
struct CancelOnDrop<'a> {
    connection: &'a Connection,
    request: u32,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.connection.cancel_file(self.request);
        }
    }
}

/// How a file is to be written.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Permission bits of a new file (default 0644).
    pub mode: Option<u32>,
    /// Make parent folders.
    pub parents: bool,
    /// Refuse with `Exists` when something is there.
    pub create_only: bool,
    /// SHA-256 the content must have (lower-case hex); refused with `Invalid` otherwise, nothing changed.
    pub sha256: Option<String>,
}

impl GuestHandle {
    /// Reads a file from `offset`, at most `length` bytes.
    ///
    /// # Errors
    /// [`GuestCallError`]; a link lost during the read is an item of the stream.
    pub async fn read_file(
        &self,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(FileMeta, FileStream), GuestCallError> {
        self.begin_read(Op::Read {
            path: path.to_owned(),
            offset,
            length,
        })
        .await
    }

    /// Reads a folder with all it holds, or one file, as a tar archive. Made in the sandbox: not trusted.
    ///
    /// # Errors
    /// As [`Self::read_file`].
    pub async fn pack(&self, path: &str) -> Result<FileStream, GuestCallError> {
        self.pack_with(path, true).await
    }

    /// As [`Self::pack`]; without `hard_links` each name of a file with several is a file of its own.
    ///
    /// # Errors
    /// As [`Self::read_file`].
    pub async fn pack_with(
        &self,
        path: &str,
        hard_links: bool,
    ) -> Result<FileStream, GuestCallError> {
        let op = Op::Pack {
            path: path.to_owned(),
            hard_links,
        };
        Ok(self.begin_read(op).await?.1)
    }

    async fn begin_read(&self, op: Op) -> Result<(FileMeta, FileStream), GuestCallError> {
        let limit = self.timing().call;
        let deadline = Instant::now() + limit;
        let connection = self.up(deadline, limit).await?;
        let slot = Arc::new(ReadSlot::new());
        let (request, answer) = connection
            .send_request(op, Waiting::Read(slot.clone()), deadline, limit)
            .await?;
        let mut guard = CancelOnDrop {
            connection: &connection,
            request,
            armed: true,
        };
        let reply = connection.wait(answer, deadline, limit).await;
        guard.armed = matches!(reply, Err(GuestCallError::Timeout(_)));
        drop(guard);
        let Reply::Reading {
            size,
            mode,
            modified_ms,
        } = reply?
        else {
            return Err(connection.unexpected());
        };
        let meta = FileMeta {
            size,
            mode,
            modified_ms,
        };
        let stream = FileStream {
            connection,
            slot,
            request,
            over: false,
            _handle: self.clone(),
        };
        Ok((meta, stream))
    }

    /// Writes a file whole: a reader inside sees the old or the new one. `content` is read as fast as the guest takes it.
    ///
    /// # Errors
    /// [`GuestCallError`]; the file is then as it was, except after `Lost` or `Timeout`, where it is not known.
    pub async fn write_file<S>(
        &self,
        path: &str,
        mode: Option<u32>,
        parents: bool,
        content: S,
    ) -> Result<Written, GuestCallError>
    where
        S: Stream<Item = Result<Bytes, String>> + Send,
    {
        let options = WriteOptions {
            mode,
            parents,
            ..WriteOptions::default()
        };
        self.write_file_with(path, options, content).await
    }

    /// As [`Self::write_file`], with more to say.
    ///
    /// # Errors
    /// As there; also when the options refuse it.
    pub async fn write_file_with<S>(
        &self,
        path: &str,
        options: WriteOptions,
        content: S,
    ) -> Result<Written, GuestCallError>
    where
        S: Stream<Item = Result<Bytes, String>> + Send,
    {
        let op = Op::Write {
            path: path.to_owned(),
            mode: options.mode,
            parents: options.parents,
            create_only: options.create_only,
            sha256: options.sha256,
        };
        match self.send_with(op, content).await? {
            Reply::Written { size, sha256 } if is_sha256(&sha256) => Ok(Written { size, sha256 }),
            _ => Err(self.unexpected()),
        }
    }

    /// Unpacks a tar archive into a folder inside, which is made if it is not there. Nothing outside the folder is
    /// touched, whatever the archive says.
    ///
    /// # Errors
    /// [`GuestCallError`]; what was unpacked until then stays, and the message says how much that is.
    pub async fn unpack<S>(
        &self,
        path: &str,
        archive: S,
        limits: UnpackLimits,
    ) -> Result<Unpacked, GuestCallError>
    where
        S: Stream<Item = Result<Bytes, String>> + Send,
    {
        let op = Op::Unpack {
            path: path.to_owned(),
            limits,
        };
        match self.send_with(op, archive).await? {
            Reply::Unpacked { unpacked } => Ok(unpacked),
            _ => Err(self.unexpected()),
        }
    }

    /// A regular file's size and SHA-256.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn hash(&self, path: &str) -> Result<Written, GuestCallError> {
        let op = Op::Hash {
            path: path.to_owned(),
        };
        match self.call(op, HASH_LIMIT).await? {
            Reply::Written { size, sha256 } if is_sha256(&sha256) => Ok(Written { size, sha256 }),
            _ => Err(self.unexpected()),
        }
    }

    /// Sends a request with content that follows it; the answer.
    async fn send_with<S>(&self, op: Op, content: S) -> Result<Reply, GuestCallError>
    where
        S: Stream<Item = Result<Bytes, String>> + Send,
    {
        let limit = self.timing().call;
        let deadline = Instant::now() + limit;
        let connection = self.up(deadline, limit).await?;
        let (request, mut answer) = connection
            .send_request(op, Waiting::Plain, deadline, limit)
            .await?;
        let mut guard = CancelOnDrop {
            connection: &connection,
            request,
            armed: true,
        };
        let limit = self.timing().slow_call;
        let early = tokio::select! {
            // The guest says no (or the link breaks) while content is still being sent.
            answer = &mut answer => Some(connection.read_answer(answer)),
            sent = send_content(&connection, request, content, limit) => { sent?; None }
        };
        let reply = match early {
            Some(reply) => reply,
            None => connection.wait(answer, Instant::now() + limit, limit).await,
        };
        guard.armed = matches!(reply, Err(GuestCallError::Timeout(_)));
        reply
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

async fn send_content<S>(
    connection: &Connection,
    request: u32,
    content: S,
    limit: Duration,
) -> Result<(), GuestCallError>
where
    S: Stream<Item = Result<Bytes, String>> + Send,
{
    let bulk: &mpsc::Sender<Bytes> = &connection.outbox.bulk;
    let send = |piece: &[u8]| {
        let mut frame = Vec::with_capacity(piece.len() + 16);
        // Pieces are cut to the longest chunk, so this cannot fail.
        encode_file(request, piece, &mut frame).ok();
        async move {
            // A guest that stops reading must not hold the caller for ever.
            timeout(limit, bulk.send(frame.into()))
                .await
                .map_err(|_| GuestCallError::Timeout(limit))?
                .map_err(|_| connection.lost())
        }
    };
    let mut content = std::pin::pin!(content);
    while let Some(bytes) = content.next().await {
        let bytes = bytes.map_err(GuestCallError::Source)?;
        for piece in bytes.chunks(MAX_CHUNK) {
            send(piece).await?;
        }
    }
    send(&[]).await
}
