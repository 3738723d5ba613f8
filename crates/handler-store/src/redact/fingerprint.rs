//! Finds texts of which only fingerprints are kept, so that who reads this process's memory does not read them.
//!
//! For each length there is one pass over the text with a rolling hash (Rabin and Karp's); where it is one of
//! those known, a keyed SHA-256 of the same bytes decides. Both keys are random and of this process. A value that
//! can be guessed can be tried against its fingerprint by who has the memory; a key of a service cannot be.

use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;

/// A Mersenne prime: the hash is a number below it.
const PRIME: u64 = (1 << 61) - 1;

type Digest = [u8; 32];

/// Of texts, by their length in bytes.
#[derive(Default)]
pub(super) struct Fingerprints {
    base: u64,
    key: [u8; 32],
    by_length: BTreeMap<usize, Vec<(u64, Digest)>>,
}

impl Fingerprints {
    /// Of these texts, none of them empty.
    pub(super) fn of<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Self {
        let random = u64::from_le_bytes(handler_base::random::bytes());
        let mut all = Self {
            // Neither nought nor so small that short texts keep their order.
            base: (1 << 32) + random % (PRIME - (1 << 33)),
            key: handler_base::random::bytes(),
            by_length: BTreeMap::new(),
        };
        for text in texts {
            let known = (all.hash(text), all.digest(text));
            all.by_length.entry(text.len()).or_default().push(known);
        }
        for known in all.by_length.values_mut() {
            known.sort_unstable();
        }
        all
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.by_length.values().map(Vec::len).sum()
    }

    /// Where one of the texts stands, shorter ones first.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for (length, known) in self.by_length.range(..=text.len()) {
            self.find_some(text, *length, known, &mut found);
        }
        found
    }

    fn find_some(
        &self,
        text: &[u8],
        length: usize,
        known: &[(u64, Digest)],
        found: &mut Vec<Range<usize>>,
    ) {
        // What the first byte of the window counts.
        let first = (1..length).fold(1, |power, _| times(power, self.base));
        let mut hash = self.hash(&text[..length]);
        let mut start = 0;
        loop {
            let window = start..start + length;
            if is_known(known, hash, || self.digest(&text[window.clone()])) {
                found.push(window.clone());
            }
            let Some(next) = text.get(window.end) else {
                return;
            };
            let without = plus(hash, PRIME - times(letter(text[start]), first));
            hash = plus(times(without, self.base), letter(*next));
            start += 1;
        }
    }

    fn hash(&self, text: &[u8]) -> u64 {
        text.iter()
            .fold(0, |hash, byte| plus(times(hash, self.base), letter(*byte)))
    }

    fn digest(&self, text: &[u8]) -> Digest {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(text);
        hash.finalize().into()
    }
}

fn is_known(known: &[(u64, Digest)], hash: u64, digest: impl FnOnce() -> Digest) -> bool {
    let from = known.partition_point(|(other, _)| *other < hash);
    let mut same = known[from..]
        .iter()
        .take_while(|(other, _)| *other == hash)
        .peekable();
    if same.peek().is_none() {
        return false;
    }
    let digest = digest();
    same.any(|(_, other)| *other == digest)
}

/// Not nought, so that leading zeros count.
fn letter(byte: u8) -> u64 {
    u64::from(byte) + 1
}

fn plus(one: u64, other: u64) -> u64 {
    let sum = one + other;
    if sum >= PRIME { sum - PRIME } else { sum }
}

fn times(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    let low = (product & u128::from(PRIME)) as u64;
    let high = (product >> 61) as u64;
    plus(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_text_is_in_what_is_kept() {
        let value = "sk-0123456789abcdefghijklmnopqrstuvwxyz";
        let known = Fingerprints::of([value.as_bytes()].into_iter());
        let kept = format!("{:?}{:?}{:?}", known.base, known.key, known.by_length);
        for piece in value.as_bytes().windows(4) {
            assert!(!kept.contains(&format!("{piece:?}").replace(['[', ']'], "")));
        }
        let found = known.find(format!("a{value}b").as_bytes());
        assert!(
            matches!(found[..], [Range { start: 1, end: 40 }]),
            "{found:?}"
        );
    }

    #[test]
    fn products_are_those_of_whole_numbers() {
        for (one, other) in [(PRIME - 1, PRIME - 1), (1 << 60, 1 << 60), (3, 5), (0, 7)] {
            let wanted = u128::from(one) * u128::from(other) % u128::from(PRIME);
            assert_eq!(u128::from(times(one, other)), wanted);
        }
    }

    proptest! {
        #[test]
        fn the_same_places_are_found_as_by_looking(
            texts in proptest::collection::vec("[ab]{1,5}", 1..4),
            text in "[ab]{0,40}",
        ) {
            let known = Fingerprints::of(texts.iter().map(String::as_bytes));
            let mut wanted: Vec<Range<usize>> = Vec::new();
            for one in &texts {
                let starts = (0..text.len()).filter(|at| text[*at..].starts_with(one.as_str()));
                wanted.extend(starts.map(|at| at..at + one.len()));
            }
            let mut found = known.find(text.as_bytes());
            for ranges in [&mut wanted, &mut found] {
                ranges.sort_by_key(|range| (range.start, range.end));
                ranges.dedup();
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
