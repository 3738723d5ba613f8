//! Differences between two texts as hunks, and a text with one of them taken back.

use crate::open::sha256;
use handler_types::session_folder::DiffHunk;
use similar::{DiffOp, TextDiff};
use std::ops::Range;
use std::time::Duration;

/// Unchanged lines shown round a change.
const CONTEXT: usize = 3;
/// Longest a comparison looks for the shortest answer.
const LIMIT: Duration = Duration::from_secs(2);

struct Piece {
    hunk: DiffHunk,
    old: Range<usize>,
    new: Range<usize>,
}

/// The hunks that lead from one text to the other.
#[must_use]
pub fn hunks(before: &str, now: &str) -> Vec<DiffHunk> {
    pieces(&lines(before), &lines(now))
        .into_iter()
        .map(|piece| piece.hunk)
        .collect()
}

/// The text without the change of one hunk; none when no hunk has this id.
#[must_use]
pub fn without(before: &str, now: &str, id: &str) -> Option<String> {
    let (old, new) = (lines(before), lines(now));
    let piece = pieces(&old, &new)
        .into_iter()
        .find(|piece| piece.hunk.id == id)?;
    let kept = [
        &new[..piece.new.start],
        &old[piece.old],
        &new[piece.new.end..],
    ];
    Some(kept.concat().concat())
}

/// Lines with their ends.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn pieces(old: &[&str], new: &[&str]) -> Vec<Piece> {
    let diff = TextDiff::configure().timeout(LIMIT).diff_slices(old, new);
    diff.grouped_ops(CONTEXT)
        .iter()
        .filter_map(|ops| piece(ops, old, new))
        .collect()
}

fn piece(ops: &[DiffOp], old: &[&str], new: &[&str]) -> Option<Piece> {
    let (first, last) = (ops.first()?, ops.last()?);
    let old_range = first.old_range().start..last.old_range().end;
    let new_range = first.new_range().start..last.new_range().end;
    let mut shown = Vec::new();
    for op in ops {
        if let DiffOp::Equal { .. } = op {
            add(&mut shown, ' ', &old[op.old_range()]);
        } else {
            add(&mut shown, '-', &old[op.old_range()]);
            add(&mut shown, '+', &new[op.new_range()]);
        }
    }
    let start = |range: &Range<usize>| range.start + usize::from(!range.is_empty());
    let mut hunk = DiffHunk {
        id: String::new(),
        old_start: start(&old_range),
        old_lines: old_range.len(),
        new_start: start(&new_range),
        new_lines: new_range.len(),
        lines: shown,
    };
    let place = format!("{old_range:?} {new_range:?}\n{}", hunk.lines.join("\n"));
    hunk.id = sha256(place.as_bytes())[..16].to_owned();
    Some(Piece {
        hunk,
        old: old_range,
        new: new_range,
    })
}

fn add(shown: &mut Vec<String>, sign: char, lines: &[&str]) {
    for line in lines {
        match line.strip_suffix('\n') {
            Some(line) => shown.push(format!("{sign}{line}")),
            None => {
                shown.push(format!("{sign}{line}"));
                shown.push("\\ No newline at end of file".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(changes: &[(usize, &str)]) -> String {
        let line = |n: usize| {
            let changed = changes.iter().find(|(at, _)| *at == n);
            changed.map_or_else(|| format!("line {n}\n"), |(_, text)| (*text).to_owned())
        };
        (1..=40).map(line).collect()
    }

    #[test]
    fn each_hunk_can_be_taken_back_alone() {
        let before = numbered(&[]);
        let now = numbered(&[(3, "new\nlines\n"), (20, ""), (40, "no end")]);
        let found = hunks(&before, &now);
        assert_eq!(found.len(), 3, "{found:#?}");
        assert_eq!(
            (found[1].old_start, found[1].old_lines, found[1].new_lines),
            (17, 7, 6)
        );
        assert!(
            found[2]
                .lines
                .iter()
                .any(|l| l.starts_with("\\ No newline"))
        );
        let back = without(&before, &now, &found[1].id).expect("known");
        assert_eq!(back, numbered(&[(3, "new\nlines\n"), (40, "no end")]));
        let mut text = now;
        while let Some(hunk) = hunks(&before, &text).first() {
            text = without(&before, &text, &hunk.id).expect("known");
        }
        assert_eq!(text, before);
        assert!(without(&before, &text, "0123").is_none());
    }

    #[test]
    fn ends_of_lines_and_empty_texts_are_kept_as_they_are() {
        for (before, now) in [
            ("a\r\nb\r\n", "a\nb\r\n"),
            ("", "x"),
            ("x\n", ""),
            ("a", "a\n"),
            ("a\rb", "a\rc"),
        ] {
            let found = hunks(before, now);
            assert_eq!(found.len(), 1, "{before:?}");
            assert_eq!(
                without(before, now, &found[0].id).as_deref(),
                Some(before),
                "{now:?}"
            );
        }
        assert!(hunks("same\n", "same\n").is_empty());
    }

    #[test]
    fn a_text_made_to_take_long_does_not() {
        let text = |seed: usize| -> String {
            let line = |n: usize| format!("{}\n", n.wrapping_mul(seed).wrapping_add(seed) % 977);
            (0..200_000).map(line).collect()
        };
        let begun = std::time::Instant::now();
        assert!(!hunks(&text(7919), &text(104_729)).is_empty());
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }
}
