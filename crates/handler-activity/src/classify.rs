//! What a terminal's program is doing: an open question first, then the rules of its harness, then those of shells.
//!
//! ```text
//! ended? ── open question? ── harness known or recognised? ── its rules, in order ── what is left of the turn
//!                                       └ no: shell rules
//! ```

use crate::catalogue;
use crate::choices::open_question;
use crate::lines::{bottom, bounded, has_word, paragraph, told};
use crate::rules::{Harness, Rule, ScreenRules, Zone};
use crate::shell::{self, ShellState};
use handler_types::observe::{Activity, Why};

/// A question just asked is being worked on for so long without a sign.
const ASKED_MS: u64 = 20_000;
/// A harness that shows nothing is starting for so long.
const STARTING_MS: u64 = 60_000;

/// What is known of a terminal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Screen<'a> {
    /// Its visible rows, top to bottom, as plain text.
    pub rows: &'a [&'a str],
    /// The row the cursor is in, counted from 0.
    pub cursor_row: Option<usize>,
    /// Its title.
    pub title: &'a str,
    /// What its shell says (OSC 133), if it says anything.
    pub shell: Option<ShellState>,
    /// The agent's state as its own hooks report it (`claudeStatus` of OSC 7337).
    pub reported: Option<&'a str>,
    /// The harness known to run in it (by its processes).
    pub harness: Option<&'a str>,
    /// Since when nothing changed, milliseconds; none: unknown.
    pub quiet_ms: Option<u64>,
    /// Its program has ended, with this code.
    pub exit: Option<i32>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// What the program does.
    pub state: Activity,
    /// Why that is said.
    pub why: Why,
    /// The harness whose screen it is; none: a shell, or unknown.
    pub harness: Option<&'static str>,
}

/// Tells what a terminal's program is doing. Total and bounded, whatever the rows are.
#[must_use]
pub fn classify(screen: &Screen<'_>) -> Reading {
    let rows = bounded(screen.rows);
    let harness = screen
        .harness
        .and_then(catalogue::harness)
        .or_else(|| recognise(screen, &rows));
    let name = harness.map(|harness| harness.harness.as_str());
    let (state, why) = if let Some(code) = screen.exit {
        ended(code)
    } else if let Some(question) = open_question(&rows) {
        let rule = format!("{}/choices", name.unwrap_or("shell"));
        (
            Activity::NeedsInput,
            Why {
                rule,
                text: question,
            },
        )
    } else if let Some(harness) = harness {
        of_harness(harness, screen, &rows)
    } else {
        let at = screen.cursor_row.and_then(|row| screen.rows.get(row));
        let cursor_row = at.and_then(|row| bounded(&[row]).first().copied());
        shell::read(&rows, cursor_row, screen.shell, screen.quiet_ms)
    };
    Reading {
        state,
        why,
        harness: name,
    }
}

fn ended(code: i32) -> (Activity, Why) {
    let state = if code == 0 {
        Activity::Done
    } else {
        Activity::Error
    };
    (
        state,
        shell::why("ended", &format!("its program ended with {code}")),
    )
}

/// Whose screen it is, by its title or by rows only one harness draws.
fn recognise(screen: &Screen<'_>, rows: &[&str]) -> Option<&'static Harness> {
    let title = told(screen.title);
    let fits = |harness: &&Harness| {
        let rules = &harness.screen;
        (!title.is_empty() && rules.titles.iter().any(|mark| mark.fits(&title)))
            || rows.iter().any(|row| is_any(&rules.marks, row))
    };
    // A shell at its prompt shows what an agent left behind.
    let at_prompt = matches!(screen.shell, Some(ShellState::Fresh | ShellState::Ended(_)));
    catalogue::harnesses()
        .iter()
        .filter(|_| !at_prompt)
        .find(fits)
}

fn is_any(patterns: &[crate::rules::Pattern], row: &str) -> bool {
    patterns.iter().any(|pattern| pattern.fits(row))
}

/// The parts of a harness's screen.
struct Parts<'r, 'a> {
    screen: &'r [&'a str],
    turn: &'r [&'a str],
    chrome: &'r [&'a str],
    has_mark: bool,
}

impl<'r, 'a> Parts<'r, 'a> {
    fn of(rules: &ScreenRules, rows: &'r [&'a str]) -> Self {
        let input = rows.iter().rposition(|row| rules.input.fits(row));
        let (body, chrome) = rows.split_at(input.unwrap_or(rows.len()));
        let mark = rules
            .turn
            .as_ref()
            .and_then(|turn| body.iter().rposition(|row| turn.fits(row)));
        let from = mark.map_or(0, |at| at + usize::from(!rules.turn_includes_mark));
        Self {
            screen: rows,
            turn: &body[from..],
            chrome,
            has_mark: mark.is_some(),
        }
    }

    fn zone(&self, zone: Zone) -> &'r [&'a str] {
        match zone {
            Zone::Screen => self.screen,
            Zone::Bottom => bottom(self.screen),
            Zone::Turn => self.turn,
            Zone::Paragraph => paragraph(self.turn),
            Zone::Chrome => self.chrome,
        }
    }
}

fn of_harness(harness: &Harness, screen: &Screen<'_>, rows: &[&str]) -> (Activity, Why) {
    let parts = Parts::of(&harness.screen, rows);
    let is_recent = |rule: &Rule| {
        rule.quiet_below_ms
            .is_none_or(|limit| screen.quiet_ms.is_none_or(|quiet| quiet < limit))
    };
    let found = harness.screen.rules.iter().find_map(|rule| {
        let mut zone = parts.zone(rule.zone).iter().rev();
        let row = zone.find(|row| rule.pattern.fits(row))?;
        is_recent(rule).then(|| (rule.state, named(harness, &rule.name, row)))
    });
    found.unwrap_or_else(|| left(harness, screen, &parts))
}

/// No rule fits: what the turn holds decides, and what the agent's own hooks say.
fn left(harness: &Harness, screen: &Screen<'_>, parts: &Parts<'_, '_>) -> (Activity, Why) {
    let within = |limit| screen.quiet_ms.is_none_or(|quiet| quiet < limit);
    let rules = &harness.screen;
    let is_banner = |row: &&&str| is_any(&rules.banner, row);
    let mut words = parts.turn.iter().filter(|row| has_word(row));
    let said = words.rfind(|row| !is_banner(row));
    let has_banner = parts.turn.iter().any(|row| is_banner(&row));
    let (state, rule, text) = match (screen.reported, said) {
        (Some("processing"), _) => (Activity::Working, "reported", "processing"),
        _ if parts.screen.is_empty() && within(STARTING_MS) => (Activity::Working, "starting", ""),
        (_, Some(said)) if parts.has_mark || !has_banner => (Activity::Done, "answered", *said),
        _ if parts.has_mark && within(ASKED_MS) => (Activity::Working, "asked", ""),
        _ if parts.has_mark => (Activity::Done, "asked", ""),
        _ => (Activity::Idle, "nothing-asked", ""),
    };
    (state, named(harness, rule, text))
}

fn named(harness: &Harness, rule: &str, text: &str) -> Why {
    Why {
        rule: format!("{}/{rule}", harness.harness),
        text: told(text),
    }
}
