//! What one sandbox may take of the filter at a time, so that its flood is its own: who finds a share used up
//! waits in order, for a while, and only so many wait. Nothing here is shared between sandboxes.

use crate::limits::Limits;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What turns may save up.
const BURST: Duration = Duration::from_secs(1);

/// A part of a share, given back when dropped.
pub(crate) type Part = OwnedSemaphorePermit;

/// The share is used up, and waiting for a part of it has not helped; says of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy(pub(crate) &'static str);

/// Parts of one kind.
#[derive(Debug)]
pub(crate) struct Share {
    what: &'static str,
    parts: Arc<Semaphore>,
    /// Places for those who wait.
    queue: Semaphore,
    patience: Duration,
}

impl Share {
    /// With so many parts; as many more callers may wait for `patience`.
    pub(crate) fn new(what: &'static str, parts: usize, patience: Duration) -> Self {
        Self::with_queue(what, parts, parts, patience)
    }

    fn with_queue(what: &'static str, parts: usize, queue: usize, patience: Duration) -> Self {
        Self {
            what,
            parts: Arc::new(Semaphore::new(parts)),
            queue: Semaphore::new(queue),
            patience,
        }
    }

    /// A part, in the order in which it was asked for.
    pub(crate) async fn take(&self) -> Result<Part, Busy> {
        if let Ok(part) = self.parts.clone().try_acquire_owned() {
            return Ok(part);
        }
        let busy = Busy(self.what);
        let _place = self.queue.try_acquire().map_err(|_| busy)?;
        match tokio::time::timeout(self.patience, self.parts.clone().acquire_owned()).await {
            Ok(Ok(part)) => Ok(part),
            Ok(Err(_)) | Err(_) => Err(busy),
        }
    }

    /// A part if one is free now.
    pub(crate) fn try_take(&self, parts: u32) -> Result<Part, Busy> {
        let taken = self.parts.clone().try_acquire_many_owned(parts);
        taken.map_err(|_| Busy(self.what))
    }
}

#[cfg(feature = "fuzzing")]
impl Shares {
    /// Whether all that was taken has been given back.
    pub(crate) fn are_whole(&self) -> bool {
        let most = &self.limits.share;
        [
            (self.connections.available_permits(), most.connections),
            (self.heads.parts.available_permits(), most.heads),
            (self.requests.parts.available_permits(), most.requests),
            (self.handshakes.parts.available_permits(), most.handshakes),
            (self.streaming.parts.available_permits(), most.streaming),
            (self.coded.parts.available_permits(), most.coded_mib),
            (self.look_ups.parts.available_permits(), most.look_ups),
        ]
        .iter()
        .all(|(free, most)| free == most)
    }
}

/// Turns that follow each other no faster than a rate, once a burst is used up.
#[derive(Debug)]
pub(crate) struct Pace {
    every: Duration,
    /// When the last turn that was given was due; never longer ago than a burst. Held while a turn is waited for,
    /// so that who no longer waits takes none.
    last: Mutex<Instant>,
}

impl Pace {
    /// So many a second; those of [`BURST`] may come at once.
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            every: Duration::from_secs(1) / per_second.max(1),
            last: Mutex::new(long_before(Instant::now())),
        }
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self) {
        let mut last = self.last.lock().await;
        *last = following(*last, Instant::now(), self.every);
        tokio::time::sleep_until(*last).await;
    }
}

/// When the turn after one that was due at `last` is due.
fn following(last: Instant, now: Instant, every: Duration) -> Instant {
    last.max(long_before(now)) + every
}

/// A burst before.
fn long_before(now: Instant) -> Instant {
    now.checked_sub(BURST).unwrap_or(now)
}

/// Everything that one sandbox has a share of.
#[derive(Debug)]
pub(crate) struct Shares {
    /// How long things may take.
    pub(crate) limits: Limits,
    /// Connections of its programs, tunnels with them.
    pub(crate) connections: Arc<Semaphore>,
    /// Connections on which HTTP/1.1 is read: each may hold a head.
    pub(crate) heads: Share,
    /// Requests until their answer has been given whole.
    pub(crate) requests: Share,
    /// Blind tunnels whose first bytes have begun and are not yet clear.
    pub(crate) openings: Share,
    /// Large buffers of tunnels; without one a small one is used.
    pub(crate) buffers: Share,
    /// TLS handshakes with its programs.
    pub(crate) handshakes: Share,
    /// Connections of HTTP/2: each may hold megabytes. Further ones are offered HTTP/1.1.
    pub(crate) streaming: Share,
    /// Memory for bodies whose coding is undone, MiB. Who waited for it could wait for itself.
    pub(crate) coded: Share,
    /// Names being looked up.
    pub(crate) look_ups: Share,
    /// Refusals, each of which is an event.
    pub(crate) refusals: Pace,
}

impl Shares {
    /// None of them taken.
    pub(crate) fn new(limits: &Limits) -> Self {
        let most = &limits.share;
        let (patience, head) = (limits.patience, limits.head);
        // Whoever holds one of these is idle at most for `head`, or has a request; these end or are refused.
        let heads = Share::with_queue("connections", most.heads, most.connections, Duration::MAX);
        Self {
            limits: *limits,
            connections: Arc::new(Semaphore::new(most.connections)),
            heads,
            requests: Share::with_queue("requests", most.requests, most.heads, patience),
            openings: Share::with_queue("tunnels", most.openings, most.connections, Duration::MAX),
            buffers: Share::new("buffers", most.buffers, Duration::ZERO),
            handshakes: Share::with_queue(
                "TLS handshakes",
                most.handshakes,
                most.connections,
                head,
            ),
            streaming: Share::new("HTTP/2 connections", most.streaming, Duration::ZERO),
            coded: Share::new("bodies in a content coding", most.coded_mib, Duration::ZERO),
            look_ups: Share::with_queue("look-ups", most.look_ups, most.requests, patience),
            refusals: Pace::new(most.refusals_per_second),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn parts_are_given_in_order_and_who_waits_too_long_or_behind_too_many_is_told() {
        let share = Share::new("parts", 1, Duration::MAX);
        let held = share.take().await.expect("free");
        let mut next = Box::pin(share.take());
        assert!(next.as_mut().now_or_never().is_none(), "waits");
        let late = share.take().await.err();
        assert_eq!(late, Some(Busy("parts")), "no place left");
        share.try_take(1).expect_err("none is free");
        drop(held);
        let held = next.await.expect("its turn");
        let mut left = Box::pin(share.take());
        assert!(left.as_mut().now_or_never().is_none(), "waits");
        drop(left);
        drop(held);
        drop(share.take().await.expect("who left has taken nothing"));

        let hasty = Share::new("parts", 1, Duration::ZERO);
        let _held = hasty.take().await.expect("free");
        assert_eq!(hasty.take().await.err(), Some(Busy("parts")), "not in time");
    }

    #[test]
    fn turns_come_at_once_for_a_burst_and_then_at_their_rate() {
        let every = Duration::from_millis(10);
        let now = Instant::now() + 2 * BURST;
        // An idle pace has saved up one burst, not more.
        let mut last = now - 2 * BURST;
        for turn in 1..=300u32 {
            last = following(last, now, every);
            assert_eq!(last, now + every * turn - BURST, "turn {turn}");
        }
        assert!(
            following(last, last + BURST, every) <= last + BURST,
            "no wait for one burst"
        );
    }
}
