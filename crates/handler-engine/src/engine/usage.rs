//! Who uses a sandbox, and when it was last used: what the idle policy goes by.
//!
//! Invariant: a guard counts from [`Usage::hold`] to its drop, whatever becomes of the sandbox; its end is a use.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The use of one sandbox.
#[derive(Debug)]
pub(super) struct Usage {
    born: Instant,
    /// Guards that live.
    holds: AtomicU32,
    /// Milliseconds from `born` to the last use; a clock that nobody can set.
    used: AtomicU64,
    /// Milliseconds since the epoch of the last use, for showing; 0: none yet.
    used_ms: AtomicI64,
}

impl Usage {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            born: Instant::now(),
            holds: AtomicU32::new(0),
            used: AtomicU64::new(0),
            used_ms: AtomicI64::new(0),
        })
    }

    /// It is used now.
    pub(super) fn touch(&self) {
        let since = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used.fetch_max(since, Ordering::Relaxed);
        self.used_ms
            .store(handler_base::clock::now_ms(), Ordering::Relaxed);
    }

    /// It is used until the guard goes.
    pub(super) fn hold(self: &Arc<Self>) -> UseGuard {
        self.touch();
        self.holds.fetch_add(1, Ordering::Relaxed);
        UseGuard(self.clone())
    }

    /// Whether a guard lives.
    pub(super) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    /// The last use; before any, when counting began.
    pub(super) fn last(&self) -> Instant {
        self.born + Duration::from_millis(self.used.load(Ordering::Relaxed))
    }

    /// The last use in milliseconds since the epoch, if there was one.
    pub(super) fn last_ms(&self) -> Option<i64> {
        Some(self.used_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0)
    }
}

/// Counts as use of its sandbox while it lives: an open terminal, connection or stream.
#[derive(Debug)]
#[must_use = "it counts only while it lives"]
pub struct UseGuard(Arc<Usage>);

impl Drop for UseGuard {
    fn drop(&mut self) {
        // The end of a use is the last moment of it.
        self.0.touch();
        self.0.holds.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_use_until_it_goes_and_its_end_is_the_last_use() {
        let usage = Usage::new();
        assert_eq!(usage.last_ms(), None);
        assert_eq!(usage.last(), usage.born);
        let first = usage.hold();
        let second = usage.hold();
        assert!(usage.last_ms().is_some());
        drop(first);
        assert!(usage.is_held());
        let before = usage.last();
        std::thread::sleep(Duration::from_millis(5));
        drop(second);
        assert!(!usage.is_held());
        assert!(usage.last() > before);
    }
}
