//! The workspace's tests, with one second chance for a few that failed.
//!
//! Tests of real engines, terminals and sockets can lose a race on a loaded machine. A handful that failed
//! are run once more, one at a time; one that passes then is named as FLAKY at the end, where a reader of
//! the log finds it. More than a handful, or a test program that died, is a failure at once.

use crate::run::{cargo, root};
use anyhow::{Context as _, bail};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

/// More failed tests than this are no accident.
const SECOND_CHANCES: usize = 6;

/// Runs them all.
pub(crate) fn run_all() -> anyhow::Result<()> {
    let first = run_some(&[])?;
    if first.success {
        return Ok(());
    }
    let again = second_chances(&first)?;
    let mut twice = Vec::new();
    for name in again {
        println!("== once more, alone: {name}");
        // One name at a time: not every test program takes more.
        let second = run_some(&["--exact", "--test-threads=1", &name])?;
        if second.success && second.passed > 0 {
            println!("FLAKY: {name} failed once and passed when it was run alone");
        } else {
            twice.push(name);
        }
    }
    if twice.is_empty() {
        return Ok(());
    }
    bail!("failed twice: {}", twice.join(", "))
}

/// What one run showed.
#[derive(Debug, Default)]
struct Outcome {
    success: bool,
    failed: Vec<String>,
    passed: usize,
    /// Test programs that ended with a count of failures, rather than died.
    counted: usize,
    /// Test programs that cargo says failed.
    programs: usize,
}

impl Outcome {
    /// Reads one line of a test program's standard output.
    fn line(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.counted += usize::from(result.starts_with("FAILED"));
            self.passed += passed(result).unwrap_or(0);
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|test| test.strip_suffix(" ... FAILED"))
        {
            self.failed.push(name.trim_end().to_owned());
        }
    }

    /// Reads one line of cargo's own.
    fn word(&mut self, line: &str) {
        // "error: 2 targets failed:", then a line for each; one alone is named in the same way.
        if let Some(rest) = line.strip_prefix("error: ")
            && let Some((count, _)) = rest.split_once(" target")
        {
            self.programs = count.parse().unwrap_or(usize::MAX);
        }
    }
}

/// The number in `ok. 12 passed; 0 failed; …`.
fn passed(result: &str) -> Option<usize> {
    let (before, _) = result.split_once(" passed")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// The tests to run again, or why none are.
fn second_chances(outcome: &Outcome) -> anyhow::Result<Vec<String>> {
    let mut names = outcome.failed.clone();
    names.sort();
    names.dedup();
    if names.is_empty() || outcome.counted != outcome.programs {
        bail!("a test program did not build, or died");
    }
    if names.len() > SECOND_CHANCES {
        bail!("{} tests failed: {}", names.len(), names.join(", "));
    }
    Ok(names)
}

/// Runs `cargo test` on the workspace, showing what it says.
fn run_some(arguments: &[&str]) -> anyhow::Result<Outcome> {
    let mut child = cargo()
        .args(["test", "--workspace", "--no-fail-fast", "--"])
        .args(arguments)
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo test")?;
    let errors = child.stderr.take().context("no standard error")?;
    let words = std::thread::spawn(move || {
        let mut outcome = Outcome::default();
        each_line(errors, |line| {
            eprintln!("{line}");
            outcome.word(line);
        });
        outcome.programs
    });
    let mut outcome = Outcome::default();
    let output = child.stdout.take().context("no standard output")?;
    each_line(output, |line| {
        let _ = writeln!(std::io::stdout(), "{line}");
        outcome.line(line);
    });
    outcome.success = child.wait().context("cargo test")?.success();
    outcome.programs = words.join().unwrap_or(usize::MAX);
    Ok(outcome)
}

fn each_line(from: impl std::io::Read, mut with: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        with(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(output: &[&str], words: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        output.iter().for_each(|line| outcome.line(line));
        words.iter().for_each(|line| outcome.word(line));
        outcome
    }

    #[test]
    fn a_few_that_failed_are_named_once() {
        let seen = outcome(
            &[
                "test a::c ... FAILED",
                "test a::c ... FAILED",
                "test result: FAILED. 1 passed; 1 failed",
                "test result: FAILED. 1 passed; 1 failed",
            ],
            &["error: 2 targets failed:", "    `-p x --test it`"],
        );
        assert_eq!(seen.passed, 2);
        assert_eq!(second_chances(&seen).expect("some"), ["a::c"]);
    }

    #[test]
    fn a_program_that_died_gets_none() {
        let died = outcome(
            &[
                "test a ... FAILED",
                "test result: FAILED. 0 passed; 1 failed",
            ],
            &["error: 2 targets failed:"],
        );
        assert!(second_chances(&died).is_err());
        let unbuilt = outcome(&[], &["error: could not compile `x` (lib)"]);
        assert!(second_chances(&unbuilt).is_err());
    }

    #[test]
    fn many_that_failed_get_none() {
        let lines: Vec<String> = (0..=SECOND_CHANCES)
            .map(|number| format!("test t{number} ... FAILED"))
            .collect();
        let mut seen = outcome(
            &["test result: FAILED. 0 passed"],
            &["error: 1 target failed:"],
        );
        lines.iter().for_each(|line| seen.line(line));
        assert!(second_chances(&seen).is_err());
    }
}
