//! What holds for any screen.

use crate::support::{Sample, read, samples};
use handler_activity::{Screen, ShellState, classify};
use handler_types::observe::Activity;
use proptest::prelude::*;

/// Where the last turn begins: rows above it are of earlier turns, or a greeting.
fn unrelated(sample: &Sample) -> usize {
    let is_asked = |row: &String| row.contains("PLAN:");
    let body = sample.rows.len().saturating_sub(6);
    match sample.rows[..body].iter().rposition(is_asked) {
        Some(at) => at,
        // Never asked anything: all above the input box is greeting.
        None => sample
            .rows
            .iter()
            .position(|row| row.contains("Welcome"))
            .unwrap_or(0),
    }
}

/// The rows of an open question: from the first row of its list to its last row.
fn question(sample: &Sample) -> Vec<String> {
    let is_yes = |row: &String| {
        [
            "1. Yes",
            "1. Allow",
            "1. Trust",
            "Allow once   ",
            "No, exit",
        ]
        .iter()
        .any(|text| row.contains(text))
    };
    let from = sample.rows.iter().rposition(is_yes).expect("a list");
    // Its question stands above it.
    sample.rows[from.saturating_sub(5)..].to_vec()
}

#[test]
fn cutting_what_is_above_the_last_turn_changes_nothing() {
    for sample in samples() {
        let whole = sample.read(0, true);
        for from in 0..=unrelated(&sample) {
            let cut = sample.read(from, true);
            assert_eq!(
                cut.state, whole.state,
                "{} from row {from}: {cut:?}",
                sample.file
            );
        }
    }
}

#[test]
fn lines_of_another_program_above_change_nothing() {
    let noise: Vec<String> = [
        "$ ls",
        "a.txt  b.txt",
        "Error: no",
        "■ old",
        "✕ old",
        "  Worked for 1s • 1:00",
    ]
    .map(str::to_owned)
    .to_vec();
    for sample in samples() {
        let mut rows = noise.clone();
        rows.extend(sample.rows[unrelated(&sample)..].iter().cloned());
        let reading = read(&rows, Some(sample.harness));
        // A screen without a turn has nothing that separates it from what is above.
        if sample.rows.iter().any(|row| row.contains("PLAN:")) {
            assert_eq!(
                Some(reading.state),
                sample.state,
                "{}: {reading:?}",
                sample.file
            );
        }
    }
}

#[test]
fn an_open_question_wins_wherever_it_stands() {
    let all = samples();
    let asking = all
        .iter()
        .filter(|s| s.state == Some(Activity::NeedsInput))
        .map(|s| (s.file.clone(), question(s)))
        .collect::<Vec<_>>();
    assert!(asking.len() >= 12);
    for sample in &all {
        for (file, question) in &asking {
            let last = sample.rows.len();
            for at in (0..last).step_by(7).chain([last]) {
                let mut rows = sample.rows.clone();
                rows.splice(at..at, question.iter().cloned());
                for harness in [Some(sample.harness), None] {
                    let reading = read(&rows, harness);
                    assert_eq!(
                        reading.state,
                        Activity::NeedsInput,
                        "{file} at row {at} of {}: {reading:?}",
                        sample.file
                    );
                }
            }
        }
    }
}

/// Rows that look like parts of screens, mixed with anything.
fn row() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "❯",
        "›",
        "●",
        "1. Yes",
        "2. No (esc)",
        "│",
        "┃",
        "(3s · esc to cancel)",
        "• Working (3s • esc to interrupt)",
        "▣  Build · 4s",
        "[y/N]",
        "$ ",
        "─────────────────────",
        ">",
        "Do you want",
        "?",
        "⠋",
        "\u{200b}",
        "\u{1b}[31m",
    ]);
    prop_oneof![
        prop::collection::vec(parts, 0..6).prop_map(|parts| parts.join(" ")),
        "\\PC{0,120}",
        prop::collection::vec(any::<u8>(), 0..200)
            .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    ]
}

fn harness() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::of(prop::sample::select(vec![
        "claude-code",
        "codex",
        "gemini-cli",
        "opencode",
        "pi",
        "qwen-code",
        "vibe",
        "unknown",
    ]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_rows_give_a_state(
        rows in prop::collection::vec(row(), 0..60),
        harness in harness(),
        title in row(),
        cursor_row in prop::option::of(0usize..80),
        quiet_ms in prop::option::of(any::<u64>()),
        says in prop::option::of(prop_oneof![
            Just(ShellState::Fresh), Just(ShellState::Running),
            prop::option::of(any::<i32>()).prop_map(ShellState::Ended),
        ]),
    ) {
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let screen = Screen { rows: &rows, cursor_row, title: &title, shell: says, reported: None, harness, quiet_ms, exit: None };
        let reading = classify(&screen);
        prop_assert!(reading.why.text.chars().count() <= 200);
        prop_assert!(!reading.why.rule.is_empty());
        prop_assert!(!reading.why.text.chars().any(char::is_control));
    }
}

#[test]
fn an_endless_screen_costs_no_more_than_a_full_one() {
    // Ten million characters: what is beyond the bounds is not looked at, or this would take minutes.
    let long = "1. Yes ❯ ".repeat(10_000);
    let rows: Vec<&str> = std::iter::repeat_n(long.as_str(), 1000).collect();
    let reading = classify(&Screen {
        rows: &rows,
        ..Screen::default()
    });
    assert!(!reading.why.rule.is_empty());
}
