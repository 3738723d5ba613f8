//! What came out, as the table of `docs/conformance.md`.

#![expect(
    clippy::print_stdout,
    reason = "the table is what a person runs this for"
)]

use crate::checks::{self, Check};
use crate::setup::{self, Kind};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// How a check ended on a set-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    /// It holds.
    Passed,
    /// The engine says that it lacks the capability.
    Lacks(String),
    /// This machine lacks the set-up.
    Absent(String),
    /// It does not hold.
    Failed(String),
}

/// All outcomes.
#[derive(Debug, Default)]
pub(crate) struct Results(Mutex<BTreeMap<(Kind, String), Cell>>);

impl Results {
    pub(crate) fn put(&self, kind: Kind, check: &Check, cell: Cell) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert((kind, check.id()), cell);
    }

    fn get(&self, kind: Kind, id: &str) -> Option<Cell> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(kind, id.to_owned())).cloned()
    }
}

/// Prints the table; writes it when asked (`HANDLER_MADE=1`), else compares it with the one in `docs/`.
pub(crate) fn settle(results: &Results) {
    let text = render(results);
    println!("{text}");
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    if std::env::var_os("HANDLER_MADE").is_some_and(|value| value == "1") {
        std::fs::write(&page, text).expect("the page can be written");
        return;
    }
    let is_partial = setup::ALL.iter().any(|kind| {
        checks::all().iter().any(|check| {
            matches!(
                results.get(*kind, &check.id()),
                None | Some(Cell::Absent(_) | Cell::Failed(_))
            )
        })
    });
    if is_partial {
        println!("docs/conformance.md is not compared: not every set-up was run to its end here.");
        return;
    }
    let kept = std::fs::read_to_string(&page).unwrap_or_default();
    if kept != text {
        // Another version of an engine may have more or fewer capabilities: told, no failure.
        println!(
            "docs/conformance.md is not what ran: HANDLER_MADE=1 cargo test -p handler-conformance"
        );
    }
}

fn render(results: &Results) -> String {
    let mut out = String::from(
        "# Conformance: each promise on each engine\n\n\
         Made by `HANDLER_MADE=1 cargo test -p handler-conformance`; a change by hand is undone. The tests run the real engines.\n\n\
         ✓ holds · – the engine declares that it lacks this (see below) · ✗ fails\n",
    );
    let mut reasons = BTreeMap::new();
    for group in checks::GROUPS {
        write!(out, "\n## {}\n\n| check |", group.1).unwrap();
        for kind in setup::ALL {
            write!(out, " {} |", kind.title()).unwrap();
        }
        out.push_str("\n|---|");
        out.push_str(&"---|".repeat(setup::ALL.len()));
        out.push('\n');
        for check in checks::all().iter().filter(|check| check.group == group.0) {
            write!(out, "| {} |", check.title()).unwrap();
            for kind in setup::ALL {
                let mark = match results.get(*kind, &check.id()) {
                    Some(Cell::Passed) => "✓",
                    Some(Cell::Lacks(why)) => {
                        reasons.insert((kind.title(), why), ());
                        "–"
                    }
                    Some(Cell::Failed(_)) => "✗",
                    Some(Cell::Absent(_)) | None => "not run",
                };
                write!(out, " {mark} |").unwrap();
            }
            out.push('\n');
        }
    }
    if !reasons.is_empty() {
        out.push_str("\n## What an engine lacks\n\n");
        for (kind, why) in reasons.keys() {
            writeln!(out, "- {kind}: {why}").unwrap();
        }
    }
    out
}
