//! What is due when: one time for each key, the earliest first. Pure.
//!
//! Invariant: a key is in it once at most, so that its size is bounded by what exists, however often times change.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Times by key.
#[derive(Debug)]
pub(super) struct Agenda<K, T> {
    order: BTreeSet<(T, K)>,
    times: HashMap<K, T>,
}

impl<K, T> Default for Agenda<K, T> {
    fn default() -> Self {
        Self {
            order: BTreeSet::new(),
            times: HashMap::new(),
        }
    }
}

impl<K: Ord + Hash + Clone, T: Ord + Copy> Agenda<K, T> {
    /// Sets a key's time, or none; says whether the earliest time of all became earlier.
    pub(super) fn set(&mut self, key: &K, at: Option<T>) -> bool {
        let first = self.next();
        if let Some(old) = self.times.remove(key) {
            self.order.remove(&(old, key.clone()));
        }
        if let Some(at) = at {
            self.times.insert(key.clone(), at);
            self.order.insert((at, key.clone()));
        }
        match (first, self.next()) {
            (Some(first), Some(now)) => now < first,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<T> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes out what is due.
    pub(super) fn take_due(&mut self, now: T) -> Vec<K> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.order.first()
            && *at <= now
        {
            if let Some((_, key)) = self.order.pop_first() {
                self.times.remove(&key);
                due.push(key);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_earliest_comes_first_and_a_key_has_one_time() {
        let mut agenda = Agenda::default();
        assert!(agenda.set(&"a", Some(5)));
        assert!(!agenda.set(&"b", Some(7)));
        assert!(agenda.set(&"b", Some(3)));
        assert!(!agenda.set(&"b", Some(4)), "the earliest became later");
        assert_eq!(agenda.take_due(4), ["b"]);
        assert_eq!(agenda.next(), Some(5));
        assert!(!agenda.set(&"a", None));
        assert_eq!(agenda.next(), None);
        assert!(agenda.take_due(100).is_empty());
    }

    proptest! {
        #[test]
        fn it_says_what_a_plain_map_says(orders in proptest::collection::vec((0u8..6, proptest::option::of(0u32..50)), 0..60), now in 0u32..60) {
            let mut agenda = Agenda::default();
            let mut plain = BTreeMap::new();
            for (key, at) in orders {
                agenda.set(&key, at);
                match at {
                    Some(at) => plain.insert(key, at),
                    None => plain.remove(&key),
                };
                prop_assert_eq!(agenda.next(), plain.values().min().copied());
                prop_assert_eq!(agenda.order.len(), agenda.times.len());
            }
            let mut due = agenda.take_due(now);
            due.sort_unstable();
            let wanted: Vec<u8> = plain.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
            prop_assert_eq!(due, wanted);
        }
    }
}
