//! The stream of changes: one bounded channel in, any number of readers; a reader that falls behind is
//! told so (`missed`) and fetches the lists again.

use handler_types::event::ServerEvent;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::broadcast;

/// Fan-out of [`ServerEvent`]s.
#[derive(Debug)]
pub struct EventHub {
    sender: broadcast::Sender<(u64, ServerEvent)>,
    next: AtomicU64,
}

impl Default for EventHub {
    fn default() -> Self {
        Self {
            sender: broadcast::channel(1024).0,
            next: AtomicU64::new(1),
        }
    }
}

impl EventHub {
    /// Tells every reader.
    pub fn publish(&self, event: ServerEvent) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // No reader is no error.
        self.sender.send((id, event)).ok();
    }

    /// A new reader; it gets what is published from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<(u64, ServerEvent)> {
        self.sender.subscribe()
    }
}
