//! Standard input of one process on its way to the guest.
//!
//! Invariant: bytes stay here until the process has taken them, so that a lost connection loses none; they
//! carry their offset, so that sending them again doubles none. At most [`INPUT_WINDOW`] bytes are kept, which
//! is also how far the host may be ahead: everything kept may be sent at once.

use super::outbox::lock;
use handler_types::guest::{GuestError, INPUT_WINDOW, MAX_CHUNK, ProcessNumber};
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
struct State {
    /// What the process has taken; offset of the first byte kept.
    received: u64,
    kept: VecDeque<u8>,
    /// Offset of the next byte to send on the present connection.
    sent: u64,
    /// Total length, once the input is closed.
    close_at: Option<u64>,
    /// The guest takes no more.
    refused: Option<GuestError>,
}

impl State {
    fn end(&self) -> u64 {
        self.received + self.kept.len() as u64
    }

    /// Forgets what the process has taken.
    fn forget_below(&mut self, received: u64) {
        if received > self.received {
            let taken = usize::try_from(received - self.received).unwrap_or(usize::MAX);
            self.kept.drain(..taken.min(self.kept.len()));
            self.received = received;
        }
    }
}

/// The place where one process's input waits.
#[derive(Debug)]
pub(super) struct InputSlot {
    pub(super) process: ProcessNumber,
    state: Mutex<State>,
    pub(super) changed: Notify,
}

/// What became of a piece of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// So many of its bytes are kept or were known already.
    Taken(usize),
    /// There is no room now; wait for a change.
    Full,
    /// It does not follow what was written before; the offset that would.
    Gap(u64),
    /// The guest takes no more.
    Refused(GuestError),
}

impl InputSlot {
    pub(super) fn new(process: ProcessNumber, received: u64) -> Self {
        Self {
            process,
            state: Mutex::new(State {
                received,
                kept: VecDeque::new(),
                sent: received,
                close_at: None,
                refused: None,
            }),
            changed: Notify::new(),
        }
    }

    /// Offers the bytes that start at `offset`.
    pub(super) fn offer(&self, offset: u64, bytes: &[u8]) -> Offer {
        let mut state = lock(&self.state);
        if let Some(error) = &state.refused {
            return Offer::Refused(error.clone());
        }
        let end = state.end();
        if offset > end {
            return Offer::Gap(end);
        }
        let known = usize::try_from(end - offset).unwrap_or(usize::MAX);
        if known >= bytes.len() {
            return Offer::Taken(bytes.len());
        }
        if state.close_at.is_some() {
            return Offer::Gap(end);
        }
        let room = usize::try_from(INPUT_WINDOW).unwrap_or(usize::MAX) - state.kept.len();
        let fresh = &bytes[known..];
        let fresh = &fresh[..fresh.len().min(room)];
        if fresh.is_empty() {
            return if known > 0 {
                Offer::Taken(known)
            } else {
                Offer::Full
            };
        }
        state.kept.extend(fresh);
        Offer::Taken(known + fresh.len())
    }

    /// The end of all input written so far, from which [`Self::close`] counts.
    pub(super) fn close(&self) -> Result<u64, GuestError> {
        let mut state = lock(&self.state);
        if let Some(error) = &state.refused {
            return Err(error.clone());
        }
        let end = state.end();
        state.close_at = Some(end);
        Ok(end)
    }

    /// The total length, when the input was closed and is not yet known to be taken.
    pub(super) fn closing(&self) -> Option<u64> {
        lock(&self.state).close_at
    }

    /// Whether something waits to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        let state = lock(&self.state);
        state.sent < state.end()
    }

    /// Gives the next piece to send to `send`, which must hand it on at once: order is kept by the lock.
    pub(super) fn send_next(&self, send: impl FnOnce(u64, &[u8])) {
        let mut state = lock(&self.state);
        let (received, sent, end) = (state.received, state.sent, state.end());
        if sent >= end {
            return;
        }
        let skip = usize::try_from(sent - received).unwrap_or(usize::MAX);
        let piece: Vec<u8> = state
            .kept
            .iter()
            .skip(skip)
            .take(MAX_CHUNK)
            .copied()
            .collect();
        state.sent = sent + piece.len() as u64;
        send(sent, &piece);
    }

    /// The process has taken input. A guest that claims more than was sent breaks the protocol.
    pub(super) fn credit(&self, received: u64) -> Result<(), &'static str> {
        let mut state = lock(&self.state);
        if received > state.sent {
            return Err("credit for input that was never sent");
        }
        state.forget_below(received);
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// On a new connection: the guest has `received`; the rest is sent again.
    pub(super) fn resume(&self, received: u64) -> Result<(), &'static str> {
        let mut state = lock(&self.state);
        if received > state.end() {
            return Err("the guest has input that was never written");
        }
        state.forget_below(received);
        state.sent = state.received;
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// The guest threw input away.
    pub(super) fn refuse(&self, error: GuestError) {
        let mut state = lock(&self.state);
        state.refused.get_or_insert(error);
        state.kept = VecDeque::new();
        state.sent = state.received;
        drop(state);
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(slot: &InputSlot) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        while slot.has_unsent() {
            slot.send_next(|offset, bytes| all.push((offset, bytes.to_vec())));
        }
        all
    }

    #[test]
    fn the_window_bounds_what_is_kept_and_credit_makes_room() {
        let slot = InputSlot::new(1, 0);
        let window = usize::try_from(INPUT_WINDOW).expect("small");
        let big = vec![7; window + 10];
        assert_eq!(slot.offer(0, &big), Offer::Taken(window));
        assert_eq!(slot.offer(INPUT_WINDOW, &big[window..]), Offer::Full);
        assert!(slot.credit(1).is_err(), "nothing was sent yet");
        assert_eq!(sent(&slot).len(), window / MAX_CHUNK);
        slot.credit(10).expect("sent");
        assert_eq!(slot.offer(INPUT_WINDOW, &big[window..]), Offer::Taken(10));
        assert_eq!(
            slot.offer(INPUT_WINDOW + 11, b"x"),
            Offer::Gap(INPUT_WINDOW + 10)
        );
    }

    proptest! {
        #[test]
        fn over_any_number_of_broken_connections_each_byte_arrives_once(
            steps in proptest::collection::vec((0usize..3000, 0usize..4, any::<bool>()), 1..40),
        ) {
            let slot = InputSlot::new(1, 0);
            let mut written = Vec::new();
            let mut arrived: Vec<u8> = Vec::new();
            for (index, (length, frames, breaks)) in steps.into_iter().enumerate() {
                let piece = vec![index as u8; length];
                if let Offer::Taken(n) = slot.offer(written.len() as u64, &piece) {
                    written.extend_from_slice(&piece[..n]);
                }
                for _ in 0..frames {
                    slot.send_next(|offset, bytes| {
                        assert!(offset as usize <= arrived.len());
                        let known = (arrived.len() - offset as usize).min(bytes.len());
                        arrived.extend_from_slice(&bytes[known..]);
                    });
                }
                if breaks {
                    slot.resume(arrived.len() as u64).expect("honest guest");
                }
            }
            for (offset, bytes) in sent(&slot) {
                prop_assert_eq!(offset as usize, arrived.len());
                arrived.extend(bytes);
            }
            prop_assert_eq!(arrived, written);
        }
    }
}
