//! What happens to the processes of a sandbox, for whoever keeps a log of it. Bounded: a slow listener misses some.

use super::outbox::lock;
use handler_types::guest::{Exit, ProcessInfo, ProcessNumber};
use std::sync::Mutex;
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

/// The fan-out of one guest's happenings. Those of before anyone listened are kept for the first listener.
#[derive(Debug)]
pub(super) struct Happenings {
    sender: broadcast::Sender<ProcessHappening>,
    early: Mutex<Option<Vec<ProcessHappening>>>,
}

impl Default for Happenings {
    fn default() -> Self {
        Self {
            sender: broadcast::channel(KEPT).0,
            early: Mutex::new(Some(Vec::new())),
        }
    }
}

impl Happenings {
    /// Tells everyone.
    pub(super) fn tell(&self, happening: ProcessHappening) {
        match &mut *lock(&self.early) {
            Some(early) if early.len() < KEPT => early.push(happening),
            Some(_) => {}
            // Nobody may be listening now.
            None => drop(self.sender.send(happening)),
        }
    }

    /// What happened before anyone listened, and what happens from now on.
    pub(super) fn listen(&self) -> (Vec<ProcessHappening>, broadcast::Receiver<ProcessHappening>) {
        let mut early = lock(&self.early);
        (early.take().unwrap_or_default(), self.sender.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_before_anyone_listened_is_told_to_the_first() {
        let exit = Exit {
            code: 0,
            signal: None,
            timed_out: false,
        };
        let happenings = Happenings::default();
        happenings.tell(ProcessHappening::Ended(1, exit));
        let (early, mut first) = happenings.listen();
        assert_eq!(early, [ProcessHappening::Ended(1, exit)]);
        happenings.tell(ProcessHappening::Ended(2, exit));
        assert_eq!(first.try_recv(), Ok(ProcessHappening::Ended(2, exit)));
        assert!(happenings.listen().0.is_empty());
    }
}
