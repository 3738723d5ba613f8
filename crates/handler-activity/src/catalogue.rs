//! The harnesses known, read once from the embedded data files.
//!
//! Invariant: the data is part of the program, so a broken file is a broken build: a test reads every one.

use crate::rules::{Harness, ShellRules};
use std::sync::LazyLock;

const FILES: &[&str] = &[
    include_str!("../data/claude-code.toml"),
    include_str!("../data/codex.toml"),
    include_str!("../data/gemini-cli.toml"),
    include_str!("../data/opencode.toml"),
    include_str!("../data/pi.toml"),
    include_str!("../data/qwen-code.toml"),
    include_str!("../data/vibe.toml"),
];

static HARNESSES: LazyLock<Vec<Harness>> = LazyLock::new(|| {
    FILES
        .iter()
        .map(|file| toml::from_str(file).expect("embedded data is read by a test"))
        .collect()
});

static SHELL: LazyLock<ShellRules> = LazyLock::new(|| {
    toml::from_str(include_str!("../data/shell.toml")).expect("embedded data is read by a test")
});

/// All harnesses.
pub(crate) fn harnesses() -> &'static [Harness] {
    &HARNESSES
}

/// One, by its name.
pub(crate) fn harness(name: &str) -> Option<&'static Harness> {
    harnesses().iter().find(|harness| harness.harness == name)
}

/// Rules for everything else.
pub(crate) fn shell() -> &'static ShellRules {
    &SHELL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_data_file_is_read_and_has_its_own_name() {
        let mut names: Vec<&str> = harnesses().iter().map(|h| h.harness.as_str()).collect();
        names.dedup();
        assert_eq!(names.len(), FILES.len());
        assert!(!shell().questions.is_empty());
    }
}
