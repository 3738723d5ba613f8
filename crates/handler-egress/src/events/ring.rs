//! Which events are kept: the last ones, shared out fairly. Pure.
//!
//! Invariant: when there is no room, the oldest event goes of the sandbox that has the most. So a flood of one sandbox
//! pushes out its own events, and none of a sandbox that has fewer. All sandboxes that are gone count as one.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Events kept.
const KEPT: usize = 10_000;

/// Under which name the events of sandboxes are kept that are gone; no sandbox has it.
const GONE: &str = "";

/// The events that are kept.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Number of the newest event.
    latest: u64,
    /// Events as lines, by number.
    lines: BTreeMap<u64, Arc<str>>,
    /// The numbers of each sandbox's, oldest first; never empty.
    owned: HashMap<Arc<str>, VecDeque<u64>>,
    /// How many each sandbox has.
    counts: BTreeSet<(usize, Arc<str>)>,
}

impl Ring {
    /// Number of the newest event, 0 before the first.
    pub(super) fn latest(&self) -> u64 {
        self.latest
    }

    /// Keeps the next event, of this sandbox.
    pub(super) fn keep(&mut self, sandbox: &str, line: Arc<str>) {
        self.latest += 1;
        self.lines.insert(self.latest, line);
        let (owner, mut numbers) = self.take(sandbox);
        numbers.push_back(self.latest);
        self.put(owner, numbers);
        if self.lines.len() > KEPT {
            self.evict();
        }
    }

    /// Those after a number, in order.
    pub(super) fn after(&self, seq: u64) -> impl Iterator<Item = (u64, Arc<str>)> {
        let rest = self.lines.range(seq.saturating_add(1)..);
        rest.map(|(number, line)| (*number, line.clone()))
    }

    /// Counts the events of a sandbox among those of all that are gone.
    pub(super) fn retire(&mut self, sandbox: &str) {
        let (_, numbers) = self.take(sandbox);
        let (gone, mut all) = self.take(GONE);
        all.extend(numbers);
        all.make_contiguous().sort_unstable();
        self.put(gone, all);
    }

    fn evict(&mut self) {
        let Some((_, owner)) = self.counts.last().cloned() else {
            return;
        };
        let (owner, mut numbers) = self.take(&owner);
        if let Some(oldest) = numbers.pop_front() {
            self.lines.remove(&oldest);
        }
        self.put(owner, numbers);
    }

    /// Takes the numbers of a sandbox out, to be changed and put back.
    fn take(&mut self, sandbox: &str) -> (Arc<str>, VecDeque<u64>) {
        let Some((owner, numbers)) = self.owned.remove_entry(sandbox) else {
            return (sandbox.into(), VecDeque::new());
        };
        self.counts.remove(&(numbers.len(), owner.clone()));
        (owner, numbers)
    }

    fn put(&mut self, owner: Arc<str>, numbers: VecDeque<u64>) {
        if !numbers.is_empty() {
            self.counts.insert((numbers.len(), owner.clone()));
            self.owned.insert(owner, numbers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(ring: &mut Ring, sandbox: &str, count: usize) {
        for _ in 0..count {
            ring.keep(sandbox, sandbox.into());
        }
    }

    /// The numbers kept of one sandbox.
    fn of(ring: &Ring, sandbox: &str) -> Vec<u64> {
        let own = ring.after(0).filter(|(_, line)| &**line == sandbox);
        own.map(|(number, _)| number).collect()
    }

    #[test]
    fn a_sandbox_alone_keeps_its_last_events() {
        let mut ring = Ring::default();
        keep(&mut ring, "a", KEPT + 3);
        let kept = of(&ring, "a");
        assert_eq!((kept.len(), kept.first()), (KEPT, Some(&4)));
        assert_eq!(ring.latest(), KEPT as u64 + 3);
        assert_eq!(ring.after(KEPT as u64).count(), 3);
    }

    #[test]
    fn a_flood_pushes_out_only_its_own() {
        let mut ring = Ring::default();
        keep(&mut ring, "quiet", 100);
        keep(&mut ring, "flood", 3 * KEPT);
        keep(&mut ring, "quiet", 100);
        keep(&mut ring, "flood", KEPT);
        assert_eq!(of(&ring, "quiet").len(), 200);
        assert_eq!(of(&ring, "flood").len(), KEPT - 200);
        // Two floods share what there is.
        keep(&mut ring, "other", 2 * KEPT);
        assert_eq!(of(&ring, "quiet").len(), 200);
        let halves = [of(&ring, "flood").len(), of(&ring, "other").len()];
        assert_eq!(halves, [(KEPT - 200) / 2; 2]);
    }

    #[test]
    fn sandboxes_that_are_gone_leave_room_for_those_that_live() {
        let mut ring = Ring::default();
        for gone in 0..KEPT + 5 {
            let gone = format!("gone {gone}");
            keep(&mut ring, &gone, 1);
            ring.retire(&gone);
        }
        keep(&mut ring, "live", KEPT / 4);
        assert_eq!(of(&ring, "live").len(), KEPT / 4);
        assert_eq!(ring.lines.len(), KEPT);
        assert_eq!(ring.owned.len(), 2);
        // The oldest of them went first.
        assert_eq!(
            ring.after(0).next().map(|(number, _)| number),
            Some(KEPT as u64 / 4 + 6)
        );
        ring.retire("never heard of");
    }
}
