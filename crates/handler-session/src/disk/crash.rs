//! Places where a test lets the daemon die: each durable step passes one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What happens at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It takes place.
    Go,
    /// Half of it takes place, then the daemon is dead.
    Tear,
    /// The daemon is dead.
    Die,
}

/// Counts durable steps down to a crash. The default never crashes.
#[derive(Debug, Clone, Default)]
pub struct CrashPoint {
    left: Option<Arc<AtomicI64>>,
    is_torn: bool,
}

impl CrashPoint {
    /// Dies at the step after `steps`; with `is_torn` half of that step takes place where that is possible.
    #[cfg(any(test, feature = "test-support"))]
    #[must_use]
    pub fn after(steps: i64, is_torn: bool) -> Self {
        Self {
            left: Some(Arc::new(AtomicI64::new(steps))),
            is_torn,
        }
    }

    /// Whether the crash took place.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.left
            .as_ref()
            .is_some_and(|left| left.load(Ordering::SeqCst) < 0)
    }

    pub(crate) fn pass(&self) -> Fate {
        let Some(left) = &self.left else {
            return Fate::Go;
        };
        match left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Fate::Go,
            0 if self.is_torn => Fate::Tear,
            _ => Fate::Die,
        }
    }
}
