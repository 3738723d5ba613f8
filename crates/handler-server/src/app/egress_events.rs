//! The filter's last decisions per sandbox, in memory, and their way onto the event stream.

use handler_types::egress::EgressEvent;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Events kept per sandbox.
const KEPT: usize = 500;

/// The last decisions.
#[derive(Debug, Default)]
pub struct EgressEvents(Mutex<HashMap<String, VecDeque<EgressEvent>>>);

impl EgressEvents {
    /// Keeps one; one told twice (after the filter's link came back) is kept once.
    pub fn add(&self, event: EgressEvent) {
        // A short section without waiting; a panic elsewhere leaves whole events.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = all.entry(event.sandbox.clone()).or_default();
        if list
            .iter()
            .rev()
            .take(KEPT)
            .any(|e| e.seq == event.seq && e.t == event.t)
        {
            return;
        }
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(event);
    }

    /// Of one sandbox, oldest first.
    #[must_use]
    pub fn of(&self, sandbox: &str) -> Vec<EgressEvent> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(sandbox)
            .map(|list| list.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Forgets a sandbox.
    pub fn forget(&self, sandbox: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(sandbox);
    }
}
