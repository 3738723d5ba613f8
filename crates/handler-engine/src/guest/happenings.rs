//! What happens to the processes of a sandbox, for whoever keeps a log of it. Bounded: a slow listener misses some.

use handler_types::guest::{Exit, ProcessInfo, ProcessNumber};
use tokio::sync::broadcast;

/// Happenings kept for a slow listener.
const KEPT: usize = 256;

/// Something happened to a process that was started through the guest.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessHappening {
    /// It was started (or found again by its key: then it is told twice).
    Started(Box<ProcessInfo>),
    /// It ended.
    Ended(ProcessNumber, Exit),
}

/// The fan-out of one guest's happenings.
#[derive(Debug)]
pub(super) struct Happenings(broadcast::Sender<ProcessHappening>);

impl Default for Happenings {
    fn default() -> Self {
        Self(broadcast::channel(KEPT).0)
    }
}

impl Happenings {
    /// Tells everyone; nobody may be listening.
    pub(super) fn tell(&self, happening: ProcessHappening) {
        self.0.send(happening).ok();
    }

    /// What happens from now on.
    pub(super) fn listen(&self) -> broadcast::Receiver<ProcessHappening> {
        self.0.subscribe()
    }
}
