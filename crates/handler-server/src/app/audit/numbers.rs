//! The filter's numbers: which of its events are in the log already, and how many are missing.

use handler_types::egress::EgressEvent;

/// What is known of the numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Number and time of the last event that an earlier daemon wrote.
    known: Option<(u64, i64)>,
    /// Number of the last one of this daemon.
    last: Option<u64>,
}

/// What an event is to the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In it already.
    Known,
    /// Next, after so many that are missing.
    Next(u64),
}

impl Numbers {
    /// Goes on behind what an earlier daemon wrote.
    pub(super) fn behind(known: Option<(u64, i64)>) -> Self {
        Self { known, last: None }
    }

    /// Takes an event in. The filter tells a new daemon all that it keeps, and a new filter counts from 1 again.
    pub(super) fn take(&mut self, event: &EgressEvent) -> Place {
        let is_known = |(seq, t)| event.seq <= seq && event.t <= t;
        if self.last.is_none() && self.known.is_some_and(is_known) {
            return Place::Known;
        }
        let before = match (self.last, self.known) {
            (Some(last), _) => last,
            (None, Some((seq, _))) => seq,
            (None, None) => 0,
        };
        let expected = if event.seq > before {
            before.saturating_add(1)
        } else {
            1
        };
        self.last = Some(event.seq);
        Place::Next(event.seq - expected.min(event.seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::egress::EgressDecision;

    fn event(seq: u64, t: i64) -> EgressEvent {
        EgressEvent {
            seq,
            t,
            sandbox: String::new(),
            label: String::new(),
            session: None,
            decision: EgressDecision::Denied,
            host: String::new(),
            secret: None,
            reason: None,
            rule: None,
            end: None,
        }
    }

    fn places(known: Option<(u64, i64)>, events: &[(u64, i64)]) -> Vec<Place> {
        let mut numbers = Numbers::behind(known);
        events
            .iter()
            .map(|(seq, t)| numbers.take(&event(*seq, *t)))
            .collect()
    }

    #[test]
    fn what_an_earlier_daemon_wrote_is_not_written_again() {
        let told = [(1, 10), (2, 11), (3, 12), (4, 13)];
        let wanted = [Place::Known, Place::Known, Place::Next(0), Place::Next(0)];
        assert_eq!(places(Some((2, 11)), &told), wanted);
    }

    #[test]
    fn a_number_that_is_missing_is_counted() {
        assert_eq!(
            places(None, &[(3, 1), (4, 2), (9, 3)]),
            [Place::Next(2), Place::Next(0), Place::Next(4)]
        );
        // While no daemon was there, the filter kept only the last ones.
        assert_eq!(places(Some((2, 1)), &[(7, 5)]), [Place::Next(4)]);
    }

    #[test]
    fn a_new_filter_counts_from_one() {
        assert_eq!(
            places(None, &[(1, 1), (2, 2), (1, 3), (2, 4)]),
            [
                Place::Next(0),
                Place::Next(0),
                Place::Next(0),
                Place::Next(0)
            ]
        );
        assert_eq!(
            places(Some((50, 9)), &[(1, 20), (2, 21)]),
            [Place::Next(0), Place::Next(0)]
        );
    }
}
