//! The output of one process on its way from the link to its reader.
//!
//! Invariant: bytes are handed out once each, in order of their offsets, over any number of connections. At
//! most [`OUTPUT_WINDOW`] bytes wait here; a guest that sends more, or sends another offset than the next
//! one, breaks the protocol. A reader that does not take stalls its own process only.

use super::handle::GuestHandle;
use super::outbox::lock;
use bytes::{Bytes, BytesMut};
use handler_types::guest::{Exit, OUTPUT_WINDOW, ProcessInfo, ProcessNumber, Stream};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What a process stream gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamItem {
    /// Output.
    Chunk {
        /// Offset of its first byte in the process's merged output.
        offset: u64,
        /// Which stream it came from.
        stream: Stream,
        /// At least one byte.
        bytes: Bytes,
    },
    /// The process ended; descendants may still hold its output open, so more can follow.
    Exited(Exit),
    /// All output was given.
    End {
        /// Its total length.
        end: u64,
    },
    /// The stream broke for good: the guest is gone, or someone else reads this process now.
    Lost(String),
}

/// Whether the guest sends for this slot at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Never attached yet; the one who attaches tries again itself.
    New,
    /// Not on the present connection; what comes belongs to an older attachment and is dropped.
    Detached,
    /// Attached.
    Live,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Offset of the next byte the guest is to send.
    next: u64,
    /// Offset of the next byte to give out.
    taken: u64,
    /// What the reader acknowledged.
    acked: u64,
    bytes: BytesMut,
    /// How `bytes` divides into pieces of one stream each.
    runs: VecDeque<(Stream, u32)>,
    /// How it ended, and after which offset to say so.
    exit: Option<(Exit, u64)>,
    exit_given: bool,
    end: Option<u64>,
    lost: Option<String>,
}

/// The place where one process's output waits.
#[derive(Debug)]
pub(super) struct OutputSlot {
    pub(super) process: ProcessNumber,
    state: Mutex<State>,
    changed: Notify,
}

impl OutputSlot {
    pub(super) fn new(process: ProcessNumber, from: u64) -> Self {
        Self {
            process,
            state: Mutex::new(State {
                phase: Phase::New,
                next: from,
                taken: from,
                acked: from,
                bytes: BytesMut::new(),
                runs: VecDeque::new(),
                exit: None,
                exit_given: false,
                end: None,
                lost: None,
            }),
            changed: Notify::new(),
        }
    }

    /// The offset to attach from, when it was attached before and still has something to come.
    pub(super) fn resume_from(&self) -> Option<u64> {
        let state = lock(&self.state);
        (state.phase != Phase::New && state.end.is_none() && state.lost.is_none())
            .then_some(state.next)
    }

    /// The offset to attach from at first, and what is acknowledged.
    pub(super) fn position(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.next, state.acked)
    }

    /// The guest answered the attachment: what follows is ours.
    pub(super) fn begin(&self, info: &ProcessInfo) {
        let mut state = lock(&self.state);
        state.phase = Phase::Live;
        if let Some(exit) = info.exit {
            let at = state.next;
            state.exit.get_or_insert((exit, at));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The connection is gone or about to be attached anew.
    pub(super) fn pause(&self) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Live {
            state.phase = Phase::Detached;
        }
    }

    /// Takes output from the guest.
    pub(super) fn accept(
        &self,
        offset: u64,
        stream: Stream,
        data: &[u8],
    ) -> Result<(), &'static str> {
        let mut state = lock(&self.state);
        if state.phase != Phase::Live || data.is_empty() {
            return Ok(());
        }
        if offset != state.next || state.end.is_some() {
            return Err("output at another offset than the next one");
        }
        // At most MAX_CHUNK, so it fits.
        let length = u32::try_from(data.len()).map_err(|_| "a chunk is too long")?;
        let end = offset
            .checked_add(u64::from(length))
            .filter(|end| *end <= state.acked.saturating_add(OUTPUT_WINDOW))
            .ok_or("more output than the window allows")?;
        state.next = end;
        state.bytes.extend_from_slice(data);
        match state.runs.back_mut() {
            Some((last, run)) if *last == stream => *run += length,
            _ => state.runs.push_back((stream, length)),
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The process ended.
    pub(super) fn exited(&self, exit: Exit) {
        let mut state = lock(&self.state);
        let at = state.next;
        state.exit.get_or_insert((exit, at));
        drop(state);
        self.changed.notify_one();
    }

    /// The guest says that all was sent.
    pub(super) fn ended(&self, end: u64) -> Result<(), &'static str> {
        let mut state = lock(&self.state);
        if state.phase != Phase::Live {
            return Ok(());
        }
        if end != state.next {
            return Err("output ends at another offset than was sent");
        }
        state.end = Some(end);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Nothing will come any more.
    pub(super) fn lose(&self, reason: &str) {
        lock(&self.state)
            .lost
            .get_or_insert_with(|| reason.to_owned());
        self.changed.notify_one();
    }

    /// The next item, if there is one now.
    fn take(&self) -> Option<StreamItem> {
        let mut state = lock(&self.state);
        if let Some((exit, at)) = state.exit
            && !state.exit_given
            && state.taken >= at
        {
            state.exit_given = true;
            return Some(StreamItem::Exited(exit));
        }
        if let Some((stream, length)) = state.runs.pop_front() {
            let offset = state.taken;
            let until_exit = match state.exit {
                Some((_, at)) if !state.exit_given => at - offset,
                _ => u64::MAX,
            };
            let given = u64::from(length).min(until_exit).min(MAX_GIVEN);
            let given_short = u32::try_from(given).unwrap_or(u32::MAX);
            if given_short < length {
                state.runs.push_front((stream, length - given_short));
            }
            let bytes = state.bytes.split_to(given_short as usize).freeze();
            state.taken += given;
            return Some(StreamItem::Chunk {
                offset,
                stream,
                bytes,
            });
        }
        if let Some(end) = state.end {
            return Some(StreamItem::End { end });
        }
        state.lost.clone().map(StreamItem::Lost)
    }

    /// Notes what the reader no longer needs; the value to tell the guest, if it is new.
    fn ack(&self, up_to: u64) -> Option<u64> {
        let mut state = lock(&self.state);
        let up_to = up_to.min(state.taken);
        if up_to <= state.acked {
            return None;
        }
        state.acked = up_to;
        (state.phase == Phase::Live).then_some(up_to)
    }
}

/// Most bytes of one [`StreamItem::Chunk`].
const MAX_GIVEN: u64 = 64 * 1024;

/// The output of one process. Dropping it stops the sending; the process goes on.
#[derive(Debug)]
pub struct ProcessStream {
    pub(super) handle: GuestHandle,
    pub(super) slot: Arc<OutputSlot>,
    pub(super) info: ProcessInfo,
}

impl ProcessStream {
    /// The next item. Cancel safe. After [`StreamItem::End`] or [`StreamItem::Lost`] the same is given again.
    pub async fn next(&mut self) -> StreamItem {
        loop {
            let changed = self.slot.changed.notified();
            if let Some(item) = self.slot.take() {
                return item;
            }
            changed.await;
        }
    }

    /// Lets the guest forget output below `up_to` (an offset, at most what was taken). Until then at most
    /// [`OUTPUT_WINDOW`] bytes more come, so a reader must acknowledge to go on.
    pub fn ack(&mut self, up_to: u64) {
        if let Some(up_to) = self.slot.ack(up_to) {
            self.handle.send_ack(self.slot.process, up_to);
        }
    }

    /// The process as the guest described it when this stream was made.
    #[must_use]
    pub fn info(&self) -> &ProcessInfo {
        &self.info
    }
}

impl Drop for ProcessStream {
    fn drop(&mut self) {
        self.handle.detach(&self.slot);
    }
}
