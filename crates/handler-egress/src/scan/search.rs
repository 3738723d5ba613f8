//! Where needles stand in one text, and from where its end must wait for more.

use super::Needles;
use crate::form::{MARKS, Match, WIDEST};
use memchr::memmem::Finder;

/// A needle in a text: from where to where, and whether it was read with escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) escaped: bool,
}

/// Leftmost, then longest, then in the order of the list.
pub(super) fn first(next: &[Option<Hit>]) -> Option<(Hit, usize)> {
    next.iter()
        .enumerate()
        .filter_map(|(index, hit)| hit.map(|hit| (hit, index)))
        .min_by_key(|(hit, _)| (hit.start, usize::MAX - hit.end))
}

/// The search for all needles in one text.
pub(super) struct Search<'a> {
    needles: &'a Needles,
    text: &'a [u8],
    last: bool,
    /// Without escapes that matter a needle can only stand there as it is.
    escapes: bool,
    finders: &'a [Finder<'static>],
}

impl<'a> Search<'a> {
    /// A search of `text`; with `last` no more of it comes.
    pub(super) fn new(needles: &'a Needles, text: &'a [u8], last: bool) -> Self {
        Self {
            needles,
            text,
            last,
            escapes: needles.has_escapes(text),
            finders: &needles.finders,
        }
    }

    /// The first hit of each needle, not before `from`.
    pub(super) fn all_from(&self, from: usize) -> Vec<Option<Hit>> {
        (0..self.finders.len())
            .map(|index| self.find(index, from))
            .collect()
    }

    /// Looks again for those needles that were found before `from`.
    pub(super) fn refresh(&self, next: &mut [Option<Hit>], from: usize) {
        for (index, hit) in next.iter_mut().enumerate() {
            if hit.is_some_and(|hit| hit.start < from) {
                *hit = self.find(index, from);
            }
        }
    }

    fn find(&self, index: usize, from: usize) -> Option<Hit> {
        let finder = &self.finders[index];
        if !self.escapes {
            let start = from + finder.find(&self.text[from..])?;
            let end = start + finder.needle().len();
            let escaped = false;
            return Some(Hit {
                start,
                end,
                escaped,
            });
        }
        let begins = *finder.needle().first()?;
        memchr::memchr3_iter(begins, MARKS.0, MARKS.1, &self.text[from..])
            .map(|at| from + at)
            .find_map(|start| match self.matches(index, start) {
                Match::Whole(length, escaped) => Some(Hit {
                    start,
                    end: start + length,
                    escaped,
                }),
                _ => None,
            })
    }

    fn matches(&self, index: usize, at: usize) -> Match {
        let sought = self.finders[index].needle();
        let put = self.needles.replacement(self.needles.list[index]);
        let form = self.needles.form;
        form.matches(&self.text[at..], sought, put, self.last)
    }

    /// The first position, not before `from`, whose rest is the beginning of a needle.
    pub(super) fn begins_at(&self, from: usize) -> usize {
        let end = self.text.len();
        if self.last || self.needles.longest == 0 {
            return end;
        }
        let widest = if self.escapes { WIDEST } else { 1 };
        let first = from.max(end.saturating_sub(self.needles.longest * widest - 1));
        (first..end)
            .find(|at| (0..self.finders.len()).any(|index| self.begins(index, *at)))
            .unwrap_or(end)
    }

    fn begins(&self, index: usize, at: usize) -> bool {
        if self.escapes {
            return self.matches(index, at) == Match::Cut;
        }
        let (rest, sought) = (&self.text[at..], self.finders[index].needle());
        rest.len() < sought.len() && sought.starts_with(rest)
    }
}
