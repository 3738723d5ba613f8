//! Programs that are no known harness: shells and what runs in them. Uses what the shell itself says (OSC 133) when
//! it does, else what the last row looks like.

use crate::catalogue;
use crate::lines::{has_word, told};
use handler_types::observe::{Activity, Why};

/// Exit code of a command that Ctrl-C ended.
const INTERRUPTED: i32 = 130;
/// Output within so long counts as work.
const RECENT_MS: u64 = 10_000;

/// What a shell says of itself (OSC 133).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellState {
    /// It shows its prompt; no command has ended yet.
    Fresh,
    /// A command runs.
    Running,
    /// The last command ended, with this code if it was said, and the prompt is shown.
    Ended(Option<i32>),
}

/// What the program of a terminal does.
pub(crate) fn read(
    rows: &[&str],
    cursor_row: Option<&str>,
    says: Option<ShellState>,
    quiet_ms: Option<u64>,
) -> (Activity, Why) {
    let last = rows.iter().rev().find(|row| !row.is_empty()).copied();
    let asked_at = cursor_row
        .filter(|row| has_word(row))
        .or(last)
        .unwrap_or("");
    let at_prompt = matches!(says, Some(ShellState::Fresh | ShellState::Ended(_)));
    if !at_prompt && let Some(name) = question(asked_at) {
        return (Activity::NeedsInput, why(name, asked_at));
    }
    match says {
        Some(ShellState::Running) => (Activity::Working, why("osc-133", "a command runs")),
        Some(ShellState::Fresh) => (Activity::Idle, why("osc-133", "no command yet")),
        Some(ShellState::Ended(code)) => ended(code),
        None => by_look(rows, asked_at, quiet_ms),
    }
}

fn ended(code: Option<i32>) -> (Activity, Why) {
    match code {
        None | Some(0) => (Activity::Done, why("osc-133", "the last command succeeded")),
        Some(INTERRUPTED) => (
            Activity::Idle,
            why("osc-133", "the last command was interrupted"),
        ),
        Some(code) => (
            Activity::Error,
            why("osc-133", &format!("the last command ended with {code}")),
        ),
    }
}

fn by_look(rows: &[&str], last: &str, quiet_ms: Option<u64>) -> (Activity, Why) {
    let mut above = rows.split_last().map_or(&[][..], |(_, above)| above).iter();
    if last.is_empty() {
        return (Activity::Idle, why("blank", ""));
    }
    if catalogue::shell().prompt.pattern.fits(last) {
        let state = if above.any(|row| has_word(row)) {
            Activity::Done
        } else {
            Activity::Idle
        };
        return (state, why("prompt", last));
    }
    if quiet_ms.is_some_and(|quiet| quiet < RECENT_MS) {
        return (Activity::Working, why("output", last));
    }
    // A program that says nothing for long and shows no prompt: it may well be at work.
    (Activity::Working, why("no-prompt", last))
}

/// The name of the question a row asks, if it asks one.
pub(crate) fn question(row: &str) -> Option<&'static str> {
    let questions = &catalogue::shell().questions;
    questions
        .iter()
        .find(|question| question.pattern.fits(row))
        .map(|question| question.name.as_str())
}

pub(crate) fn why(rule: &str, text: &str) -> Why {
    Why {
        rule: format!("shell/{rule}"),
        text: told(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(rows: &[&str], says: Option<ShellState>) -> Activity {
        read(rows, None, says, None).0
    }

    #[test]
    fn what_the_shell_says_counts_more_than_what_it_looks_like() {
        let rows = ["$ make", "cc -c a.c"];
        assert_eq!(state(&rows, Some(ShellState::Running)), Activity::Working);
        assert_eq!(
            state(&rows, Some(ShellState::Ended(Some(0)))),
            Activity::Done
        );
        assert_eq!(
            state(&rows, Some(ShellState::Ended(Some(2)))),
            Activity::Error
        );
        assert_eq!(
            state(&rows, Some(ShellState::Ended(Some(130)))),
            Activity::Idle
        );
        assert_eq!(state(&rows, Some(ShellState::Fresh)), Activity::Idle);
    }

    #[test]
    fn a_question_on_the_last_row_waits_for_a_person() {
        for row in [
            "Do you want to continue? [Y/n] ",
            "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
            "[sudo] password for me: ",
            "Enter passphrase for key '/home/me/.ssh/id': ",
            "Press any key to continue",
            "--More--(12%)",
        ] {
            assert_eq!(
                state(&["x", row], Some(ShellState::Running)),
                Activity::NeedsInput,
                "{row}"
            );
        }
    }

    #[test]
    fn without_its_words_a_prompt_is_recognised_by_its_end() {
        for prompt in ["me@box:~$ ", "root@box:/# ", "% ", "❯ ", "bash-5.2$"] {
            assert_eq!(state(&[prompt], None), Activity::Idle, "{prompt}");
            assert_eq!(state(&["out", prompt], None), Activity::Done, "{prompt}");
        }
        assert_eq!(
            state(&["$ make", "compiling 3 of 9"], None),
            Activity::Working
        );
        assert_eq!(state(&[], None), Activity::Idle);
    }
}
