//! Decisions of the filter as lines: what was refused or let through unlisted; a program that tries again and again
//! is one line and a count.

use super::Note;
use handler_types::SandboxId;
use handler_types::egress::{EgressDecision, EgressEvent};
use handler_types::observe::{LogLevel, LogSource};
use std::collections::HashMap;

/// The same decision about the same host within so long is counted, milliseconds.
const SAME_WITHIN: i64 = 10_000;
/// Hosts remembered per sandbox.
const REMEMBERED: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Repeat {
    since: i64,
    more: u64,
}

/// What was told of each sandbox lately.
#[derive(Debug, Default)]
pub(crate) struct EgressDigest(HashMap<String, Known>);

#[derive(Debug, Default)]
struct Known {
    /// Events up to this time are in the log already (the filter tells all it keeps to a new daemon).
    told_until: i64,
    repeats: HashMap<(EgressDecisionKey, String), Repeat>,
}

type EgressDecisionKey = &'static str;

impl EgressDigest {
    /// Whether a sandbox was seen by [`EgressDigest::begin`].
    pub(crate) fn knows(&self, sandbox: &str) -> bool {
        self.0.contains_key(sandbox)
    }

    /// What is in its log already.
    pub(crate) fn begin(&mut self, sandbox: &str, told_until: i64) {
        let known = Known {
            told_until,
            ..Known::default()
        };
        self.0.insert(sandbox.to_owned(), known);
    }

    /// Forgets a sandbox.
    pub(crate) fn forget(&mut self, sandbox: &str) {
        self.0.remove(sandbox);
    }

    /// The line of an event, if it deserves one.
    pub(crate) fn line(&mut self, id: &SandboxId, event: &EgressEvent) -> Option<Note> {
        let (word, level) = match event.decision {
            EgressDecision::Denied => ("denied", LogLevel::Warning),
            EgressDecision::Mismatch => ("mismatch", LogLevel::Warning),
            EgressDecision::Leak => ("leak", LogLevel::Error),
            EgressDecision::Unlisted => ("unlisted", LogLevel::Info),
            EgressDecision::Allowed | EgressDecision::Injected | EgressDecision::Ended => {
                return None;
            }
        };
        let known = self.0.entry(event.sandbox.clone()).or_default();
        if event.t <= known.told_until {
            return None;
        }
        if known.repeats.len() >= REMEMBERED {
            known
                .repeats
                .retain(|_, repeat| event.t - repeat.since < SAME_WITHIN);
        }
        let mut more = 0;
        if let Some(repeat) = known.repeats.get_mut(&(word, event.host.clone())) {
            if event.t - repeat.since < SAME_WITHIN {
                repeat.more += 1;
                return None;
            }
            more = repeat.more;
        }
        if known.repeats.len() < REMEMBERED {
            let repeat = Repeat {
                since: event.t,
                more: 0,
            };
            known.repeats.insert((word, event.host.clone()), repeat);
        }
        let mut note = Note::new(id, LogSource::Egress, level, text(word, event, more));
        note.at = event.t;
        Some(note)
    }
}

fn text(word: &str, event: &EgressEvent, more: u64) -> String {
    let mut text = format!("{word} {}", event.host);
    if let Some(secret) = &event.secret {
        text.push_str(&format!(", stand-in of {secret}"));
    }
    if let Some(reason) = &event.reason {
        text.push_str(&format!(" ({reason})"));
    }
    if more > 0 {
        text.push_str(&format!(", {more} more since it was last said"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(t: i64, decision: EgressDecision, host: &str) -> EgressEvent {
        EgressEvent {
            seq: 1,
            t,
            sandbox: "sb".to_owned(),
            label: String::new(),
            session: None,
            decision,
            host: host.to_owned(),
            secret: None,
            reason: Some("unlisted".to_owned()),
            rule: None,
            end: None,
        }
    }

    #[test]
    fn a_program_that_tries_again_and_again_is_one_line_and_a_count() {
        let id = SandboxId::from_random([1; 8]);
        let mut digest = EgressDigest::default();
        digest.begin("sb", 100);
        let mut line = |t, decision| digest.line(&id, &event(t, decision, "a.com:443"));
        assert!(line(100, EgressDecision::Denied).is_none());
        let first = line(101, EgressDecision::Denied).expect("new");
        assert_eq!(first.message, "denied a.com:443 (unlisted)");
        assert!(line(102, EgressDecision::Denied).is_none());
        assert!(line(103, EgressDecision::Denied).is_none());
        assert!(line(104, EgressDecision::Allowed).is_none());
        assert!(line(105, EgressDecision::Leak).is_some());
        let again = line(101 + SAME_WITHIN, EgressDecision::Denied).expect("later");
        assert!(
            again.message.ends_with("2 more since it was last said"),
            "{}",
            again.message
        );
    }
}
