//! What waits to be written to one connection: bounded lanes for requests and file content, and notes
//! (acknowledgements, credit, cancellations) that merge, so that leaving one never waits and never grows.

use bytes::Bytes;
use handler_types::frame::encode_json;
use handler_types::guest::{Op, ProcessNumber, Request};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};

/// Frames of requests and input that may wait; each is at most a frame long, most are small.
const URGENT_FRAMES: usize = 64;
/// Frames of file content that may wait.
const BULK_FRAMES: usize = 2;
/// A write is filled up to about this many bytes.
const BATCH: usize = 256 * 1024;

/// Small things to say that replace or add to earlier ones of their kind.
#[derive(Debug, Default)]
struct Notes {
    acks: BTreeMap<ProcessNumber, u64>,
    credits: BTreeMap<u32, u64>,
    detached: Vec<ProcessNumber>,
    cancelled: Vec<u32>,
    forgotten: Vec<ProcessNumber>,
}

/// The sending side.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) urgent: mpsc::Sender<Bytes>,
    pub(super) bulk: mpsc::Sender<Bytes>,
    notes: Mutex<Notes>,
    noted: Notify,
}

/// The receiving side, for the writer.
#[derive(Debug)]
pub(super) struct Lanes {
    urgent: mpsc::Receiver<Bytes>,
    bulk: mpsc::Receiver<Bytes>,
}

impl Outbox {
    pub(super) fn new() -> (Self, Lanes) {
        let (urgent, urgent_out) = mpsc::channel(URGENT_FRAMES);
        let (bulk, bulk_out) = mpsc::channel(BULK_FRAMES);
        let outbox = Self {
            urgent,
            bulk,
            notes: Mutex::default(),
            noted: Notify::new(),
        };
        let lanes = Lanes {
            urgent: urgent_out,
            bulk: bulk_out,
        };
        (outbox, lanes)
    }

    fn note(&self, change: impl FnOnce(&mut Notes)) {
        change(&mut lock(&self.notes));
        self.noted.notify_one();
    }

    /// Lets the guest forget output below `up_to`.
    pub(super) fn ack(&self, process: ProcessNumber, up_to: u64) {
        self.note(|notes| {
            let newest = notes.acks.entry(process).or_default();
            *newest = up_to.max(*newest);
        });
    }

    /// Lets a read go on for `bytes` more.
    pub(super) fn credit(&self, request: u32, bytes: u64) {
        self.note(|notes| *notes.credits.entry(request).or_default() += bytes);
    }

    /// Stops the output of a process.
    pub(super) fn detach(&self, process: ProcessNumber) {
        self.note(|notes| {
            notes.acks.remove(&process);
            notes.detached.push(process);
        });
    }

    /// Stops a read or write.
    pub(super) fn cancel(&self, request: u32) {
        self.note(|notes| {
            notes.credits.remove(&request);
            notes.cancelled.push(request);
        });
    }

    /// Ends and forgets a connection to a port.
    pub(super) fn forget(&self, process: ProcessNumber) {
        self.note(|notes| notes.forgotten.push(process));
    }

    /// Writes the notes into `buffer`; cancellations only with `all`, since they must not overtake the request
    /// they are about.
    fn drain_notes(&self, all: bool, buffer: &mut Vec<u8>) {
        let mut notes = lock(&self.notes);
        let taken = if all {
            std::mem::take(&mut *notes)
        } else {
            Notes {
                acks: std::mem::take(&mut notes.acks),
                credits: std::mem::take(&mut notes.credits),
                ..Notes::default()
            }
        };
        drop(notes);
        let acks = taken
            .acks
            .into_iter()
            .map(|(process, up_to)| Op::Ack { process, up_to });
        let credits = taken
            .credits
            .into_iter()
            .map(|(request, bytes)| Op::Credit { request, bytes });
        let detached = taken
            .detached
            .into_iter()
            .map(|process| Op::Detach { process });
        let cancelled = taken
            .cancelled
            .into_iter()
            .map(|request| Op::CancelFile { request });
        let forgotten = taken
            .forgotten
            .into_iter()
            .map(|process| Op::Forget { process });
        let rest = detached.chain(cancelled).chain(forgotten);
        for op in acks.chain(credits).chain(rest) {
            // A note is a few dozen bytes, far below the longest frame.
            encode_json(&Request { id: 0, op }, buffer).ok();
        }
    }

    /// Writes until the lanes close or the stream breaks.
    pub(super) async fn write_to<W>(&self, mut lanes: Lanes, mut stream: W) -> std::io::Result<()>
    where
        W: AsyncWrite + Unpin,
    {
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let mut drained = lanes.fill(&mut buffer);
            self.drain_notes(drained, &mut buffer);
            if buffer.is_empty() {
                drained = false;
                tokio::select! {
                    biased;
                    frame = lanes.urgent.recv() => match frame {
                        Some(frame) => buffer.extend_from_slice(&frame),
                        None => return Ok(()),
                    },
                    () = self.noted.notified() => {}
                    Some(frame) = lanes.bulk.recv() => buffer.extend_from_slice(&frame),
                }
            }
            if !buffer.is_empty() {
                stream.write_all(&buffer).await?;
            }
            if drained && buffer.capacity() > 2 * BATCH {
                buffer = Vec::new();
            }
        }
    }
}

impl Lanes {
    /// Takes what waits without waiting; `true` when no request waits any more.
    fn fill(&mut self, buffer: &mut Vec<u8>) -> bool {
        while buffer.len() < BATCH {
            match self.urgent.try_recv() {
                Ok(frame) => buffer.extend_from_slice(&frame),
                Err(_) => {
                    if let Ok(frame) = self.bulk.try_recv() {
                        buffer.extend_from_slice(&frame);
                    }
                    return true;
                }
            }
        }
        false
    }
}

/// Locks; a panic elsewhere cannot leave these plain values half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
