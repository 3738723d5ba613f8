//! Changes of known inputs, the same on every run.

/// Longest input that is made, bytes.
const LONGEST: usize = 64 * 1024;

/// Numbers that look like chance and are the same for the same seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

/// An input with a few changes; `other` is spliced in sometimes.
#[must_use]
pub fn mutate(input: &[u8], other: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=chance.below(4) {
        change(&mut out, other, chance);
    }
    out.truncate(LONGEST);
    out
}

fn change(out: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    /// What parsers stumble over.
    const ODD: [u8; 12] = [
        0, 1, 0x7f, 0x80, 0xff, b'\n', b'\r', b' ', b'.', b':', b'%', 0x1b,
    ];
    let at = chance.below(out.len() + 1);
    let end = (at + 1 + chance.below(16)).min(out.len());
    match chance.below(8) {
        0 if at < out.len() => out[at] ^= 1 << chance.below(8),
        1 if at < out.len() => out[at] = chance.byte(),
        2 if at < out.len() => out[at] = ODD[chance.below(ODD.len())],
        3 => out.insert(at, ODD[chance.below(ODD.len())]),
        4 if at < end => drop(out.drain(at..end)),
        5 if at < end => {
            let again = out[at..end].to_vec();
            out.splice(at..at, again);
        }
        6 => out.truncate(at),
        _ => {
            let from = chance.below(other.len() + 1);
            let length = chance.below(64).min(other.len() - from);
            out.splice(at..at, other[from..from + length].iter().copied());
        }
    }
}
