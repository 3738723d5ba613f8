//! Each recorded screen is classified as its name says.

use crate::support::samples;
use handler_activity::{Screen, classify};
use handler_types::observe::Activity;

/// Screens whose name says no state, or another one than is right: file, state, reason.
const OTHERWISE: &[(&str, Activity, &str)] = &[(
    "claude-code-first-run-theme.txt",
    Activity::NeedsInput,
    "its name says no state; it is a dialog that waits for a choice before anything else can happen",
)];

#[test]
fn every_recorded_screen_is_classified_as_its_name_says() {
    let mut wrong = Vec::new();
    for sample in samples() {
        let listed = OTHERWISE.iter().find(|(file, ..)| *file == sample.file);
        let expected = match (listed, sample.state) {
            (Some((_, state, _)), _) => *state,
            (None, Some(state)) => state,
            (None, None) => panic!("{}: list it with a reason", sample.file),
        };
        for told in [true, false] {
            let reading = sample.read(0, told);
            if reading.state != expected || reading.harness != Some(sample.harness) {
                wrong.push(format!("{} (told: {told}): {reading:?}", sample.file));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_list_of_exceptions_holds_only_files_that_exist() {
    let files: Vec<String> = samples().into_iter().map(|s| s.file).collect();
    for (file, _, reason) in OTHERWISE {
        assert!(files.iter().any(|known| known == file), "{file}");
        assert!(!reason.is_empty());
    }
}

#[test]
fn every_reading_names_its_rule_and_a_short_text() {
    for sample in samples() {
        let why = sample.read(0, true).why;
        assert!(
            why.rule.starts_with(sample.harness),
            "{}: {why:?}",
            sample.file
        );
        assert!(why.text.chars().count() <= 200, "{}", sample.file);
    }
}

#[test]
fn a_question_is_told_as_it_stands_on_the_screen() {
    let why = |file: &str| {
        let all = samples();
        let sample = all.iter().find(|s| s.file == file).expect("a sample");
        sample.read(0, true).why.text
    };
    assert_eq!(
        why("claude-code-needs_input-permission-write.txt"),
        "Do you want to create out.txt?"
    );
    assert_eq!(
        why("codex-needs_input-permission-command.txt"),
        "May I write this file?".replace("May I", "Reason: May I")
    );
    assert_eq!(
        why("gemini-cli-needs_input-trust.txt"),
        "Do you trust the files in this folder?"
    );
}

#[test]
fn text_that_stopped_arriving_long_ago_is_not_called_work() {
    let all = samples();
    let sample = all
        .iter()
        .find(|s| s.file == "codex-working.txt")
        .expect("a sample");
    let rows: Vec<&str> = sample.rows.iter().map(String::as_str).collect();
    let state = |quiet_ms| {
        let screen = Screen {
            rows: &rows,
            quiet_ms: Some(quiet_ms),
            ..Screen::default()
        };
        classify(&screen).state
    };
    assert_eq!(state(500), Activity::Working);
    assert_eq!(state(600_000), Activity::Done);
}

#[test]
fn an_agent_that_has_left_the_terminal_to_its_shell_is_none_any_more() {
    let all = samples();
    let sample = all
        .iter()
        .find(|s| s.file == "claude-code-done.txt")
        .expect("a sample");
    let mut rows: Vec<&str> = sample.rows.iter().map(String::as_str).collect();
    rows.push("me@box:~$ ");
    let reading = classify(&Screen {
        rows: &rows,
        shell: Some(handler_activity::ShellState::Ended(Some(0))),
        ..Screen::default()
    });
    assert_eq!((reading.state, reading.harness), (Activity::Done, None));
    assert_eq!(reading.why.rule, "shell/osc-133");
}

#[test]
fn a_program_that_has_ended_is_done_or_failed_whatever_it_left_on_the_screen() {
    let all = samples();
    for sample in &all {
        let rows: Vec<&str> = sample.rows.iter().map(String::as_str).collect();
        let state = |code| {
            let screen = Screen {
                rows: &rows,
                exit: Some(code),
                ..Screen::default()
            };
            classify(&screen).state
        };
        assert_eq!((state(0), state(1)), (Activity::Done, Activity::Error));
    }
}
