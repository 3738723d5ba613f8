//! The last events, numbered. Subscribers read at their own pace from the one ring; nothing is kept for one that
//! falls behind: what it has missed shows in the numbers.
//!
//! Invariant: sequence numbers have no gap while the filter lives. Which events are kept is decided in [`ring`].

mod ring;

use handler_types::egress::{EgressDecision, EgressEnd, EgressEvent};
use ring::Ring;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What happened, before it has a number.
#[derive(Debug, Clone)]
pub(crate) struct Happening<'a> {
    /// Sandbox id.
    pub(crate) sandbox: &'a str,
    /// Label of its settings.
    pub(crate) label: &'a str,
    /// What was decided.
    pub(crate) decision: EgressDecision,
    /// The destination.
    pub(crate) host: String,
    /// The secret's name.
    pub(crate) secret: Option<String>,
    /// Why.
    pub(crate) reason: Option<&'a str>,
    /// The entry that decided.
    pub(crate) rule: Option<String>,
    /// How it went.
    pub(crate) end: Option<EgressEnd>,
}

impl<'a> Happening<'a> {
    /// One of which no more is known.
    pub(crate) fn new(
        sandbox: &'a str,
        label: &'a str,
        decision: EgressDecision,
        host: String,
    ) -> Self {
        Self {
            sandbox,
            label,
            decision,
            host,
            secret: None,
            reason: None,
            rule: None,
            end: None,
        }
    }
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Events {
    ring: Mutex<Ring>,
    latest: watch::Sender<u64>,
}

impl Events {
    /// No events yet.
    pub(crate) fn new() -> Self {
        Self {
            ring: Mutex::default(),
            latest: watch::Sender::new(0),
        }
    }

    /// Numbers and keeps an event; its number.
    pub(crate) fn report(&self, happening: Happening<'_>) -> u64 {
        let mut event = EgressEvent {
            seq: 0,
            t: handler_base::clock::now_ms(),
            sandbox: happening.sandbox.to_owned(),
            label: happening.label.to_owned(),
            session: happening.label.parse().ok(),
            decision: happening.decision,
            host: happening.host,
            secret: happening.secret,
            reason: happening.reason.map(str::to_owned),
            rule: happening.rule,
            end: happening.end,
        };
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        event.seq = ring.latest() + 1;
        let Ok(mut line) = serde_json::to_string(&event) else {
            tracing::error!("an event cannot be written");
            return 0;
        };
        line.push('\n');
        ring.keep(&event.sandbox, line.into());
        drop(ring);
        self.latest.send_replace(event.seq);
        event.seq
    }

    /// Tells when there are new events.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// The number to begin behind: `after` if there is such a number.
    pub(crate) fn start(&self, after: u64) -> u64 {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // A number of an earlier filter's life means nothing here: everything is new.
        if after > ring.latest() { 0 } else { after }
    }

    /// Up to `most` lines after a number that are kept, with their numbers.
    pub(crate) fn after(&self, seq: u64, most: usize) -> Vec<(u64, Arc<str>)> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.after(seq).take(most).collect()
    }

    /// A sandbox is gone: from now on its events are among those of all that are.
    pub(crate) fn retire(&self, sandbox: &str) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.retire(sandbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(events: &Events, host: usize) {
        events.report(Happening {
            reason: Some("unlisted"),
            ..Happening::new("s", "", EgressDecision::Denied, format!("{host}.example:1"))
        });
    }

    fn numbers(lines: &[(u64, Arc<str>)]) -> Vec<u64> {
        let number = |(number, line): &(u64, Arc<str>)| {
            let event: EgressEvent = serde_json::from_str(line).expect("event");
            assert_eq!(event.seq, *number);
            event.seq
        };
        lines.iter().map(number).collect()
    }

    #[test]
    fn events_are_numbered_and_given_after_a_number() {
        let events = Events::new();
        for host in 0..5 {
            report(&events, host);
        }
        assert_eq!(numbers(&events.after(0, 100)), [1, 2, 3, 4, 5]);
        assert_eq!(numbers(&events.after(3, 1)), [4]);
        assert!(events.after(5, 100).is_empty());
        assert_eq!(*events.watch().borrow(), 5);
        assert_eq!([0, 3, 5, 6].map(|after| events.start(after)), [0, 3, 5, 0]);
    }
}
