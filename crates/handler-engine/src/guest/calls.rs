//! What can be asked of a guest. Calls that may be made twice are made again after a lost link; the others
//! report `Lost`, since it is not known whether they were done.

use super::connection::Connection;
use super::error::GuestCallError;
use super::handle::GuestHandle;
use super::happenings::ProcessHappening;
use super::input::{InputSlot, Offer};
use super::output::{OutputSlot, ProcessStream};
use super::pending::Waiting;
use bytes::Bytes;
use handler_types::frame::encode_input;
use handler_types::guest::{
    GuestError, GuestErrorCode, GuestStats, MAX_CHUNK, Op, ProcessInfo, ProcessKind, ProcessNumber,
    ProcessSpec, Reply,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest text taken from a guest's error, in bytes.
const LONGEST_TEXT: usize = 1000;

/// Cuts a guest's error to a length that may be passed on, without control characters.
pub(super) fn shorten(error: GuestError) -> GuestError {
    let message: String = error
        .message
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_TEXT)
        .collect();
    GuestError { message, ..error }
}

/// The error of things that are there no more.
pub(super) fn gone(message: &str) -> GuestError {
    GuestError {
        code: GuestErrorCode::NotFound,
        message: message.to_owned(),
    }
}

fn is_repeatable(op: &Op) -> bool {
    matches!(
        op,
        Op::Start { .. }
            | Op::Resize { .. }
            | Op::CloseStdin { .. }
            | Op::Processes
            | Op::Connect { .. }
            | Op::Ports
            | Op::Table
            | Op::Chmod { .. }
            | Op::Stat { .. }
            | Op::Hash { .. }
            | Op::List { .. }
            | Op::Stats
            | Op::Mkdir { parents: true, .. }
    )
}

/// Sends all input that waits.
pub(super) async fn pump(connection: &Connection, slot: &InputSlot) -> Result<(), GuestCallError> {
    while slot.has_unsent() {
        let permit = tokio::select! {
            () = connection.ended.cancelled() => return Err(connection.lost()),
            permit = connection.outbox.urgent.reserve() => permit.map_err(|_| connection.lost())?,
        };
        slot.send_next(|offset, piece| {
            let mut frame = Vec::with_capacity(piece.len() + 32);
            // Pieces are at most a chunk long, so this cannot fail.
            if encode_input(slot.process, offset, piece, &mut frame).is_ok() {
                permit.send(frame.into());
            }
        });
    }
    Ok(())
}

/// Says that the input is closed, when it is.
pub(super) async fn send_close(
    connection: &Connection,
    slot: &InputSlot,
    deadline: Instant,
    limit: Duration,
) -> Result<(), GuestCallError> {
    let Some(at) = slot.closing() else {
        return Ok(());
    };
    let op = Op::CloseStdin {
        process: slot.process,
        at,
    };
    match connection
        .request(op, Waiting::Plain, deadline, limit)
        .await
    {
        // A process that has ended has no input to close.
        Ok(_) | Err(GuestCallError::Refused(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

impl GuestHandle {
    pub(super) async fn call(&self, op: Op, limit: Duration) -> Result<Reply, GuestCallError> {
        let deadline = Instant::now() + limit;
        loop {
            let connection = self.up(deadline, limit).await?;
            let result = connection
                .request(op.clone(), Waiting::Plain, deadline, limit)
                .await;
            match result {
                Err(GuestCallError::Lost(reason)) if is_repeatable(&op) && !reason.is_breach() => {}
                other => return other,
            }
        }
    }

    pub(super) async fn done(&self, op: Op, limit: Duration) -> Result<(), GuestCallError> {
        match self.call(op, limit).await? {
            Reply::Done => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// An answer of another kind than was asked for ends the connection it came on.
    pub(super) fn unexpected(&self) -> GuestCallError {
        match self.now() {
            Some(connection) => connection.unexpected(),
            None => GuestCallError::Lost(super::error::LinkError::Nonsense(
                "an answer of another kind than was asked for",
            )),
        }
    }

    /// Starts a process. An empty key is replaced by a random one; with a key already used, the process it
    /// started is given.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn start(&self, mut spec: ProcessSpec) -> Result<ProcessInfo, GuestCallError> {
        if spec.argv.is_empty() && spec.shell.is_none() {
            return Err(GuestCallError::Invalid(
                "there is no program to run".to_owned(),
            ));
        }
        if spec.key.is_empty() {
            spec.key = handler_base::random::hex(8);
        }
        let has_input = spec.stdin || spec.tty.is_some();
        let (tag, key) = (spec.tag.clone(), spec.key.clone());
        let argv = match &spec.shell {
            Some(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
            None => spec.argv.clone(),
        };
        match self.call(Op::Start { spec }, self.timing().call).await? {
            Reply::Started { process } => {
                if has_input && process.exit.is_none() {
                    self.slots().input_or_new(process.process, process.received);
                }
                // Told in our words: the guest's own are not to be trusted.
                let told = Box::new(ProcessInfo {
                    argv,
                    tag,
                    key,
                    ..process.clone()
                });
                self.slots()
                    .happenings
                    .tell(ProcessHappening::Started(told));
                Ok(process)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Reads a process's output from the offset `from` on, which must not be below what was acknowledged. An
    /// earlier stream of the same process ends with `Lost`.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn attach(
        &self,
        process: ProcessNumber,
        from: u64,
    ) -> Result<ProcessStream, GuestCallError> {
        let limit = self.timing().call;
        let deadline = Instant::now() + limit;
        let slot = Arc::new(OutputSlot::new(process, from));
        self.slots().put_output(&slot);
        // Made first, so that giving up at any point takes the slot out again.
        let mut stream = ProcessStream {
            handle: self.clone(),
            slot: slot.clone(),
            info: ProcessInfo {
                process,
                ..ProcessInfo::default()
            },
        };
        loop {
            let connection = self.up(deadline, limit).await?;
            match connection.attach(&slot, deadline, limit).await {
                Ok(info) => {
                    stream.info = info;
                    return Ok(stream);
                }
                // Attached, and lost since: the supervisor goes on.
                Err(GuestCallError::Lost(reason)) if reason.is_breach() => {
                    return Err(GuestCallError::Lost(reason));
                }
                Err(GuestCallError::Lost(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes standard input that starts at `offset`. Returns when it is kept here and on its way; waits while
    /// the process does not read. Bytes known already are skipped, so that writing again doubles nothing.
    ///
    /// # Errors
    /// [`GuestCallError`]; `Invalid` when there is a gap before `offset`.
    pub async fn write_stdin(
        &self,
        process: ProcessNumber,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), GuestCallError> {
        let slot = self.input_slot(process).await?;
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let changed = slot.changed.notified();
            match slot.offer(at, &rest) {
                Offer::Taken(taken) => {
                    at += taken as u64;
                    let _ = rest.split_to(taken);
                    self.pump(&slot).await;
                }
                Offer::Full => changed.await,
                Offer::Gap(end) => {
                    return Err(GuestCallError::Invalid(format!(
                        "input at offset {at}, but it goes on at {end}"
                    )));
                }
                Offer::Refused(error) => return Err(GuestCallError::Refused(error)),
            }
        }
        Ok(())
    }

    /// Sends what waits, if there is a connection; else the next one does.
    async fn pump(&self, slot: &InputSlot) {
        if let Some(connection) = self.now() {
            pump(&connection, slot).await.ok();
        }
    }

    async fn input_slot(&self, process: ProcessNumber) -> Result<Arc<InputSlot>, GuestCallError> {
        if let Some(slot) = self.slots().input(process) {
            return Ok(slot);
        }
        let info = self.process(process).await?;
        if info.exit.is_some() {
            return Err(GuestCallError::Refused(gone("the process has ended")));
        }
        Ok(self.slots().input_or_new(process, info.received))
    }

    /// Closes standard input after all that was written.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn close_stdin(&self, process: ProcessNumber) -> Result<(), GuestCallError> {
        let slot = self.input_slot(process).await?;
        let at = slot.close().map_err(GuestCallError::Refused)?;
        self.pump(&slot).await;
        self.done(Op::CloseStdin { process, at }, self.timing().call)
            .await
    }

    /// Sends a signal (1–31) to a process, or to its whole tree.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn signal(
        &self,
        process: ProcessNumber,
        signal: i32,
        tree: bool,
    ) -> Result<(), GuestCallError> {
        let op = Op::Signal {
            process,
            signal,
            tree,
        };
        self.done(op, self.timing().call).await
    }

    /// Sets the size of a process's terminal.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn resize(
        &self,
        process: ProcessNumber,
        cols: u16,
        rows: u16,
    ) -> Result<(), GuestCallError> {
        let op = Op::Resize {
            process,
            cols,
            rows,
        };
        self.done(op, self.timing().call).await
    }

    /// All commands the guest knows, by number; connections to ports are left out.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn processes(&self) -> Result<Vec<ProcessInfo>, GuestCallError> {
        match self.call(Op::Processes, self.timing().call).await? {
            Reply::Processes { mut processes, .. } => {
                processes.retain(|info| info.kind == ProcessKind::Command);
                Ok(processes)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// One process.
    ///
    /// # Errors
    /// [`GuestCallError`]; `Refused` with `NotFound` when there is none.
    pub async fn process(&self, process: ProcessNumber) -> Result<ProcessInfo, GuestCallError> {
        self.processes()
            .await?
            .into_iter()
            .find(|info| info.process == process)
            .ok_or_else(|| GuestCallError::Refused(gone(&format!("there is no process {process}"))))
    }

    /// Forgets an ended process and its output.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn forget(&self, process: ProcessNumber) -> Result<(), GuestCallError> {
        self.done(Op::Forget { process }, self.timing().call)
            .await?;
        self.slots().forget_input(process);
        Ok(())
    }

    /// What the sandbox uses.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn stats(&self) -> Result<GuestStats, GuestCallError> {
        match self.call(Op::Stats, self.timing().call).await? {
            Reply::Stats { stats } => Ok(stats),
            _ => Err(self.unexpected()),
        }
    }

    /// Asks the guest to end everything, waiting at most `within` for its word.
    ///
    /// # Errors
    /// [`GuestCallError`]; a link that breaks instead of an answer is success.
    pub async fn shutdown(&self, within: Duration) -> Result<(), GuestCallError> {
        match self.call(Op::Shutdown, within).await {
            Ok(_) | Err(GuestCallError::Lost(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

const _: () = assert!(MAX_CHUNK < handler_types::guest::MAX_FRAME);
