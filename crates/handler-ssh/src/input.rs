//! What a client sends on one channel, on its way to whoever takes it.
//!
//! The SSH library hands data over inside the one loop that also sends: waiting there for a slow taker would stop the
//! taker's own output and, with it, the taker. So data is queued here, and a client is slowed down by the window
//! instead: while a queue of the connection is [`FULL`], the window is granted again two bytes at a time, and these
//! are answered late. Invariant: an honest client can have sent at most [`WINDOW`] more by then; one that sends beyond
//! [`MOST`] ignores the window and is cut off.

use bytes::{Bytes, BytesMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes a client may send on a channel before it is granted more.
pub(crate) const WINDOW: u32 = 1024 * 1024;
/// Bytes that may wait before a client is slowed down.
const FULL: usize = 1024 * 1024;
/// Bytes that may wait at all.
const MOST: usize = FULL + 2 * WINDOW as usize;
/// What is granted while a queue is full.
const TRICKLE: u32 = 2;
/// How late a trickle is answered.
const LATE: Duration = Duration::from_millis(5);
/// Longest piece given to the taker, bytes.
const PIECE: usize = 64 * 1024;

/// How many queues of a connection are full.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pressure(Arc<AtomicUsize>);

impl Pressure {
    /// The window to grant from now on.
    pub(crate) fn window(&self) -> u32 {
        match self.0.load(Ordering::Acquire) {
            0 => WINDOW,
            _ => TRICKLE,
        }
    }

    /// Waits a moment while a queue is full, so that trickles do not spin.
    pub(crate) async fn pause(&self, length: usize) {
        if length <= TRICKLE as usize && self.0.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(LATE).await;
        }
    }
}

/// The client sent more than it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    is_full: bool,
    is_ended: bool,
    /// Nobody takes any more: what comes is thrown away.
    is_closed: bool,
}

/// The queue of one channel.
#[derive(Debug)]
pub(crate) struct Input {
    state: Mutex<State>,
    changed: Notify,
    pressure: Pressure,
}

/// What the taker gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// At least one byte.
    Bytes(Bytes),
    /// The client sends no more.
    End,
}

impl Input {
    pub(crate) fn new(pressure: Pressure) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Notify::new(),
            pressure,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the count of full queues true after `state` changed.
    fn weigh(&self, state: &mut State) {
        let is_full = !state.is_closed && state.bytes.len() >= FULL;
        if is_full && !state.is_full {
            self.pressure.0.fetch_add(1, Ordering::AcqRel);
        } else if !is_full && state.is_full {
            self.pressure.0.fetch_sub(1, Ordering::AcqRel);
        }
        state.is_full = is_full;
    }

    /// Adds what the client sent.
    pub(crate) fn push(&self, data: &[u8]) -> Result<(), Overrun> {
        let mut state = self.lock();
        if state.is_closed || state.is_ended {
            return Ok(());
        }
        if state.bytes.len() + data.len() > MOST {
            return Err(Overrun);
        }
        state.bytes.extend_from_slice(data);
        self.weigh(&mut state);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The client sends no more.
    pub(crate) fn end(&self) {
        self.lock().is_ended = true;
        self.changed.notify_one();
    }

    /// Nobody takes any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.is_ended = true;
        state.bytes = BytesMut::new();
        self.weigh(&mut state);
        drop(state);
        self.changed.notify_one();
    }

    fn try_take(&self) -> Option<Taken> {
        let mut state = self.lock();
        if state.bytes.is_empty() {
            return state.is_ended.then_some(Taken::End);
        }
        let length = state.bytes.len().min(PIECE);
        let piece = state.bytes.split_to(length).freeze();
        self.weigh(&mut state);
        Some(Taken::Bytes(piece))
    }

    /// The next piece. One taker at a time; cancel safe.
    pub(crate) async fn take(&self) -> Taken {
        loop {
            let changed = self.changed.notified();
            if let Some(taken) = self.try_take() {
                return taken;
            }
            changed.await;
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_shrinks_the_window_until_it_is_taken_from() {
        let pressure = Pressure::default();
        let (one, other) = (Input::new(pressure.clone()), Input::new(pressure.clone()));
        one.push(&vec![1; FULL - 1]).expect("room");
        assert_eq!(pressure.window(), WINDOW);
        one.push(&[1]).expect("room");
        other.push(&vec![2; FULL]).expect("room");
        assert_eq!(pressure.window(), TRICKLE);
        assert_eq!(one.take().await, Taken::Bytes(Bytes::from(vec![1; PIECE])));
        assert_eq!(pressure.window(), TRICKLE, "the other is still full");
        drop(other);
        assert_eq!(pressure.window(), WINDOW);
    }

    #[tokio::test]
    async fn a_client_that_ignores_the_window_is_found_out() {
        let input = Input::new(Pressure::default());
        input.push(&vec![0; MOST]).expect("all a client may send");
        assert_eq!(input.push(&[0]), Err(Overrun));
        input.close();
        assert_eq!(input.push(&[0]), Ok(()), "thrown away");
        assert_eq!(input.take().await, Taken::End);
    }

    #[tokio::test]
    async fn what_was_sent_before_the_end_is_given_first() {
        let input = Input::new(Pressure::default());
        input.push(b"last words").expect("room");
        input.end();
        input.push(b"too late").expect("ignored");
        assert_eq!(input.take().await, Taken::Bytes(Bytes::from("last words")));
        assert_eq!(input.take().await, Taken::End);
        assert_eq!(input.take().await, Taken::End);
    }
}
