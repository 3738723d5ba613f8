//! The last events, numbered. Subscribers read at their own pace from the one ring; one that falls
//! behind its end is cut off, and nothing is kept for it.
//!
//! Invariant: sequence numbers have no gap while the filter lives.

use handler_types::egress::{EgressDecision, EgressEnd, EgressEvent};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Events kept.
pub(crate) const KEPT: usize = 10_000;

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

#[derive(Debug, Default)]
struct Ring {
    /// Number of the newest event.
    latest: u64,
    /// Events as lines, oldest first; the last has the number `latest`.
    lines: VecDeque<Arc<str>>,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Events {
    ring: Mutex<Ring>,
    latest: watch::Sender<u64>,
}

/// A subscriber has fallen behind what is kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FellBehind;

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
        event.seq = ring.latest + 1;
        let Ok(mut line) = serde_json::to_string(&event) else {
            tracing::error!("an event cannot be written");
            return 0;
        };
        line.push('\n');
        ring.latest = event.seq;
        ring.lines.push_back(line.into());
        if ring.lines.len() > KEPT {
            ring.lines.pop_front();
        }
        drop(ring);
        self.latest.send_replace(event.seq);
        event.seq
    }

    /// Tells when there are new events.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// The number before the oldest event kept, or `after` if that is later and exists.
    pub(crate) fn start(&self, after: u64) -> u64 {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = ring.latest - ring.lines.len() as u64;
        // A number of an earlier filter's life means nothing here: everything is new.
        if after > ring.latest {
            oldest
        } else {
            after.max(oldest)
        }
    }

    /// Up to `most` lines after a number.
    pub(crate) fn after(&self, seq: u64, most: usize) -> Result<Vec<Arc<str>>, FellBehind> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = ring.latest - ring.lines.len() as u64;
        let skip = seq.checked_sub(oldest).ok_or(FellBehind)?;
        let skip = usize::try_from(skip).map_err(|_| FellBehind)?;
        Ok(ring.lines.iter().skip(skip).take(most).cloned().collect())
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

    fn numbers(lines: &[Arc<str>]) -> Vec<u64> {
        lines
            .iter()
            .map(|line| {
                serde_json::from_str::<EgressEvent>(line)
                    .expect("event")
                    .seq
            })
            .collect()
    }

    #[test]
    fn events_are_numbered_and_given_after_a_number() {
        let events = Events::new();
        for host in 0..5 {
            report(&events, host);
        }
        assert_eq!(
            numbers(&events.after(0, 100).expect("kept")),
            [1, 2, 3, 4, 5]
        );
        assert_eq!(numbers(&events.after(3, 1).expect("kept")), [4]);
        assert!(events.after(5, 100).expect("kept").is_empty());
        assert_eq!(*events.watch().borrow(), 5);
    }

    #[test]
    fn only_the_last_are_kept_and_who_falls_behind_is_told() {
        let events = Events::new();
        for host in 0..KEPT + 3 {
            report(&events, host);
        }
        assert_eq!(events.after(2, 1), Err(FellBehind));
        assert_eq!(numbers(&events.after(3, 1).expect("kept")), [4]);
        assert_eq!(events.start(0), 3);
        assert_eq!(events.start(50), 50);
        assert_eq!(events.start(u64::MAX), 3);
    }
}
