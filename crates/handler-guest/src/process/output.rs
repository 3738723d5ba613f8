//! Reading a command's output into its ring.
//!
//! Invariant: nothing is read while the window is full, so the command waits instead of the guest
//! growing.
//!
//! The output ends when every stream came to its end. A descendant left in the background may keep a
//! pipe open for ever: once the command itself ended, what was in the pipe at that moment is read in
//! any case, and then the stream is over after [`QUIET`] without a byte, or after [`AT_MOST`]. What the
//! descendant writes later is read and thrown away, so that it does not die of a closed pipe.

use super::Process;
use crate::guest::Guest;
use handler_types::guest::{MAX_CHUNK, Stream};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Silence after the command's end that ends a stream kept open by others.
const QUIET: Duration = Duration::from_millis(250);
/// Longest time after the command's end that others can add to a stream.
const AT_MOST: Duration = Duration::from_secs(1);
/// Least bytes of room for which a stream is read, unless the window is smaller still.
const LEAST: usize = 4096;
/// Pause between reads of output nobody gets: bounds the time spent on it.
const DISCARD_PAUSE: Duration = Duration::from_millis(10);

/// Reads one stream until its end, then tells the process.
pub(super) async fn read_stream(
    guest: Rc<Guest>,
    process: Rc<Process>,
    stream: Stream,
    fd: AsyncFd<OwnedFd>,
) {
    let mut buffer = Vec::new();
    let at_end = collect(&guest, &process, stream, &fd, &mut buffer).await;
    process
        .open_outputs
        .set(process.open_outputs.get().saturating_sub(1));
    process.output_changed();
    drop(process);
    if !at_end {
        discard(&fd).await;
    }
}

/// Reads into the ring; whether the stream came to its end by itself.
pub(super) async fn collect(
    guest: &Guest,
    process: &Process,
    stream: Stream,
    fd: &AsyncFd<OwnedFd>,
    buffer: &mut Vec<u8>,
) -> bool {
    let mut tail: Option<Tail> = None;
    loop {
        let room = wait_for_room(guest, process).await;
        if process.forgotten.get() || tail.as_ref().is_some_and(Tail::is_over) {
            return false;
        }
        if tail.is_none() && process.exit.get().is_some() {
            tail = Some(Tail::new(fd));
        }
        buffer.resize(room.min(MAX_CHUNK), 0);
        let result = match &tail {
            None => tokio::select! {
                biased;
                result = read(fd, buffer) => result,
                () = process.wait_exit() => continue,
            },
            Some(tail) => match tokio::time::timeout(tail.patience(), read(fd, buffer)).await {
                Ok(result) => result,
                Err(_) => return false,
            },
        };
        let Ok(count @ 1..) = result else {
            process.broken.set(result.is_err());
            return true;
        };
        if let Some(tail) = &mut tail {
            tail.took(count);
        }
        process.produced(guest, stream, &buffer[..count]);
        if room < MAX_CHUNK || count < MAX_CHUNK / 2 {
            // Small or rare reads keep no big buffer.
            *buffer = Vec::new();
        }
        // The other stream's turn.
        tokio::task::yield_now().await;
    }
}

impl Process {
    fn produced(&self, guest: &Guest, stream: Stream, data: &[u8]) {
        let (before, after) = {
            let mut ring = self.ring.borrow_mut();
            let before = ring.held();
            ring.push(stream, data);
            (before, ring.held())
        };
        guest.account(before, after);
        self.output_changed();
    }
}

/// Waits until the window has room and gives this stream's share of it.
async fn wait_for_room(guest: &Guest, process: &Process) -> usize {
    loop {
        let told = process.room.notified();
        if process.forgotten.get() {
            return 0;
        }
        let room = process.room(guest);
        if room > 0 {
            let share = room / process.open_outputs.get().max(1);
            return share.max(LEAST.min(room));
        }
        told.await;
    }
}

/// What is still owed after the command's end.
struct Tail {
    /// Bytes that were in the pipe when the command ended and were not read yet.
    owed: u64,
    since: Instant,
}

impl Tail {
    fn new(fd: &AsyncFd<OwnedFd>) -> Self {
        Self {
            owed: crate::sys::waiting_bytes(fd.get_ref()),
            since: Instant::now(),
        }
    }

    fn took(&mut self, count: usize) {
        self.owed = self.owed.saturating_sub(count as u64);
    }

    /// Asked before each read, as a stream that always has something never makes anyone wait.
    fn is_over(&self) -> bool {
        self.owed == 0 && self.since.elapsed() >= AT_MOST
    }

    /// How long to wait for the next byte.
    fn patience(&self) -> Duration {
        if self.owed > 0 {
            return QUIET;
        }
        QUIET.min(AT_MOST.saturating_sub(self.since.elapsed()))
    }
}

async fn discard(fd: &AsyncFd<OwnedFd>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(1..) = read(fd, &mut buffer).await {
        tokio::time::sleep(DISCARD_PAUSE).await;
    }
}

/// Reads what is there; 0 at the end. A terminal whose programs are gone reads as its end.
pub(super) async fn read(fd: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut ready = fd.readable().await?;
        let result = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut *buffer)?));
        match result {
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                return Ok(0);
            }
            Ok(result) => return result,
            Err(_would_block) => {}
        }
    }
}
