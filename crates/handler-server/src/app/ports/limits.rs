//! How many connections to ports of one sandbox there may be, and how fast they may come.

use handler_types::SandboxId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most connections of one sandbox at a time.
pub(super) const MOST: usize = 256;
/// New connections of one sandbox in a second.
pub(super) const PER_SECOND: f64 = 200.0;
/// New connections that may come at once after a quiet time.
const BURST: f64 = 2.0 * PER_SECOND;

/// Why a connection is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// [`MOST`] are open.
    TooMany,
    /// They come faster than [`PER_SECOND`].
    TooFast,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    filled: Instant,
}

#[derive(Debug)]
struct Gate {
    slots: Arc<Semaphore>,
    bucket: Mutex<Bucket>,
}

impl Gate {
    fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(MOST)),
            bucket: Mutex::new(Bucket {
                left: BURST,
                filled: now,
            }),
        })
    }

    fn enter(&self, now: Instant) -> Result<OwnedSemaphorePermit, Refused> {
        let slot = self.slots.clone().try_acquire_owned();
        let slot = slot.map_err(|_| Refused::TooMany)?;
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(bucket.filled);
        bucket.left = (bucket.left + since.as_secs_f64() * PER_SECOND).min(BURST);
        bucket.filled = now;
        if bucket.left < 1.0 {
            return Err(Refused::TooFast);
        }
        bucket.left -= 1.0;
        Ok(slot)
    }

    fn is_idle(&self, now: Instant) -> bool {
        let bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = now.saturating_duration_since(bucket.filled);
        let is_quiet = quiet > Duration::from_secs(10);
        is_quiet && self.slots.available_permits() == MOST
    }
}

/// The gates of all sandboxes; one nobody passes is taken away.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<HashMap<SandboxId, Arc<Gate>>>);

impl Gates {
    /// Room for one connection `now`, until what is returned goes.
    pub(super) fn enter(
        &self,
        id: &SandboxId,
        now: Instant,
    ) -> Result<OwnedSemaphorePermit, Refused> {
        let gate = {
            let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !gates.contains_key(id) {
                gates.retain(|_, gate| !gate.is_idle(now));
            }
            gates
                .entry(id.clone())
                .or_insert_with(|| Gate::new(now))
                .clone()
        };
        gate.enter(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_so_many_connections_so_fast_and_no_more() {
        let gates = Gates::default();
        let id = SandboxId::from_random([1; 8]);
        let mut now = Instant::now();
        let mut open = Vec::new();
        for _ in 0..MOST {
            open.push(gates.enter(&id, now).expect("room"));
        }
        assert_eq!(gates.enter(&id, now).expect_err("full"), Refused::TooMany);
        let other = SandboxId::from_random([2; 8]);
        drop(gates.enter(&other, now).expect("another has its own"));
        open.clear();
        let more = (0..1000).filter(|_| gates.enter(&id, now).is_ok()).count();
        // Refused for being too many counts as none.
        assert_eq!(more, 400 - MOST);
        assert_eq!(gates.enter(&id, now).expect_err("fast"), Refused::TooFast);
        now += Duration::from_millis(500);
        let more = (0..1000).filter(|_| gates.enter(&id, now).is_ok()).count();
        assert_eq!(more, 100);
        now += Duration::from_secs(60);
        let third = SandboxId::from_random([3; 8]);
        drop(gates.enter(&third, now).expect("room"));
        assert_eq!(gates.0.lock().expect("lock").len(), 1, "idle gates go");
    }
}
