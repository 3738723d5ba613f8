//! Finds an open question to a person on any screen: a list of choices that holds both a yes and a no, shown as
//! something to be chosen from (a pointer, a frame, or a hint which keys answer it).
//!
//! This is the one rule that all harnesses share, and it comes before all others: nothing is called working while
//! such a list is on the screen.

use crate::lines::told;
use regex::Regex;
use std::sync::LazyLock;

/// Rows of one choice that goes on over several rows.
const MOST_CONTINUED: usize = 3;
/// Rows below a list in which its hint is looked for.
const HINT_WITHIN: usize = 4;

static NUMBERED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(\d{1,2})[.)]\s+(.*)$").expect("a fixed expression"));
static YES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)^\W*(yes|allow|approve|accept|proceed|trust|continue|confirm|always|run|ok)\b")
        .expect("a fixed expression")
});
static NO: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^\W*(no|deny|reject|don['’]?t|do not|cancel|never|abort|skip|decline|exit|quit)\b",
    )
    .expect("a fixed expression")
});
static HINT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(enter|return)\b.{0,12}\b(confirm|select|submit|choose)\b|\besc(ape)?\b.{0,8}\b(cancel|reject|exit|deny)\b|waiting for user confirmation|\(esc\)",
    )
    .expect("a fixed expression")
});

/// A row without its frame.
struct Row<'a> {
    text: &'a str,
    framed: bool,
    pointer: Option<char>,
}

impl<'a> Row<'a> {
    fn of(row: &'a str) -> Self {
        let is_frame = |c: char| matches!(c, '│' | '┃' | '║' | '▌' | '|');
        let outer = row.trim();
        let text = outer
            .trim_start_matches(|c: char| is_frame(c) || c.is_whitespace())
            .trim_end_matches(|c: char| is_frame(c) || c.is_whitespace());
        let pointer = text
            .chars()
            .next()
            .filter(|c| matches!(c, '❯' | '›' | '●' | '▸' | '▶' | '➤' | '◉' | '>'));
        let rest = pointer.map_or(text, |c| text[c.len_utf8()..].trim_start());
        Self {
            text: rest,
            framed: outer.starts_with(is_frame),
            pointer,
        }
    }

    /// Its number and what follows, if it is one of a numbered list.
    fn number(&self) -> Option<(u32, &'a str)> {
        let found = NUMBERED.captures(self.text)?;
        let number = found.get(1)?.as_str().parse().ok()?;
        Some((number, found.get(2)?.as_str()))
    }
}

/// The text of an open question, if the screen shows one.
pub(crate) fn open_question(rows: &[&str]) -> Option<String> {
    let rows: Vec<Row<'_>> = rows.iter().map(|row| Row::of(row)).collect();
    (0..rows.len()).rev().find_map(|at| {
        numbered(&rows, at)
            .or_else(|| pointed(&rows, at))
            .or_else(|| inline(&rows, at))
    })
}

/// A numbered list that begins at `from`.
fn numbered(rows: &[Row<'_>], from: usize) -> Option<String> {
    let (1, _) = rows[from].number()? else {
        return None;
    };
    let (mut next, mut last, mut continued) = (1, from, 0);
    let (mut yes, mut no, mut pointer) = (None, false, false);
    for (at, row) in rows.iter().enumerate().skip(from) {
        match row.number() {
            Some((number, text)) if number == next => {
                next += 1;
                (last, continued) = (at, 0);
                if YES.is_match(text) {
                    yes.get_or_insert(at);
                }
                no |= NO.is_match(text);
                pointer |= row.pointer.is_some();
            }
            _ if continued < MOST_CONTINUED => continued += 1,
            _ => break,
        }
    }
    let yes = yes.filter(|_| no)?;
    let end = (last + 1 + HINT_WITHIN).min(rows.len());
    let has_hint = rows[from..end].iter().any(|row| HINT.is_match(row.text));
    let question = question_above(rows, from);
    let is_offered = has_hint || (pointer && (rows[from].framed || question.is_some()));
    is_offered.then(|| question.unwrap_or_else(|| told(rows[yes].text)))
}

/// A list without numbers, one row of it pointed at, with a hint below.
fn pointed(rows: &[Row<'_>], at: usize) -> Option<String> {
    let is_pointed = matches!(rows[at].pointer, Some('❯' | '›' | '▸' | '▶' | '➤'));
    if !is_pointed || rows[at].number().is_some() {
        return None;
    }
    let is_part = |row: &&Row<'_>| !row.text.is_empty();
    let before = rows[..at].iter().rev().take_while(is_part).take(8).count();
    let after = rows[at..].iter().take_while(is_part).take(8).count();
    let list = &rows[at - before..at + after];
    let yes = list.iter().find(|row| YES.is_match(row.text))?;
    list.iter().find(|row| NO.is_match(row.text))?;
    let end = (at + after + HINT_WITHIN).min(rows.len());
    let has_hint = rows[at..end].iter().any(|row| HINT.is_match(row.text));
    has_hint.then(|| told(yes.text))
}

/// Choices beside each other in one row, with a hint in it or below.
fn inline(rows: &[Row<'_>], at: usize) -> Option<String> {
    let parts: Vec<&str> = rows[at]
        .text
        .split("  ")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    if parts.len() < 2 || !parts.iter().any(|part| YES.is_match(part)) {
        return None;
    }
    parts.iter().find(|part| NO.is_match(part))?;
    let end = (at + 1 + HINT_WITHIN).min(rows.len());
    let has_hint = rows[at..end].iter().any(|row| HINT.is_match(row.text));
    has_hint.then(|| question_above(rows, at).unwrap_or_else(|| told(rows[at].text)))
}

/// The sentence a list answers: the nearest row above it that ends with a question mark.
fn question_above(rows: &[Row<'_>], from: usize) -> Option<String> {
    let said = rows[..from]
        .iter()
        .rev()
        .filter(|row| !row.text.is_empty())
        .take(12);
    said.take_while(|row| row.number().is_none())
        .find(|row| row.text.ends_with('?'))
        .map(|row| told(row.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_a_yes_and_a_no_is_a_question() {
        let asked = [
            "Do you want to proceed?",
            " ❯ 1. Yes",
            "   2. Yes, and do not ask",
            "   again",
            "   3. No",
        ];
        assert_eq!(
            open_question(&asked).as_deref(),
            Some("Do you want to proceed?")
        );
        let inline = ["┃  Allow once   Allow always   Reject     enter confirm"];
        assert!(open_question(&inline).is_some());
        let trust = [
            "❯ No, exit",
            "  Yes, I trust it",
            "",
            "Enter to confirm · Esc to cancel",
        ];
        assert_eq!(open_question(&trust).as_deref(), Some("Yes, I trust it"));
    }

    #[test]
    fn a_list_that_is_only_said_is_none() {
        for rows in [
            &["1. Yes", "2. No"][..],
            &["● 1. Build it", "  2. Test it"],
            &["❯ Yes", "  then no"],
            &["1. Allow", "", "", "", "", "2. Deny (esc)"],
            &[],
        ] {
            assert_eq!(open_question(rows), None, "{rows:?}");
        }
    }
}
