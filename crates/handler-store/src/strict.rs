//! Strict reading of hand-written TOML: everything that is not known is a problem that names the file,
//! the line and the nearest known key.
//!
//! Values are never quoted in a problem: a secret may have been written where it does not belong.

use std::ops::Range;
use toml_edit::{Document, Item, TableLike};

/// Most problems told about one file.
const MAX_PROBLEMS: usize = 20;
/// Longest key repeated in a problem, in characters.
const MAX_SHOWN: usize = 60;

/// Largest hand-written file read, bytes.
pub(crate) const MAX_FILE: u64 = 1024 * 1024;

/// Collects the problems of one file.
#[derive(Debug)]
pub(crate) struct Checker<'t> {
    file: &'t str,
    text: &'t str,
    problems: Vec<String>,
}

impl<'t> Checker<'t> {
    /// `file` is the name shown.
    pub(crate) fn new(file: &'t str, text: &'t str) -> Self {
        Self {
            file,
            text,
            problems: Vec::new(),
        }
    }

    /// Reads the text as TOML; a syntax error is noted.
    pub(crate) fn parse(&mut self) -> Option<Document<&'t str>> {
        match Document::parse(self.text) {
            Ok(document) => Some(document),
            Err(error) => {
                // Its full text would show the line.
                let message = error.message().lines().next().unwrap_or("syntax error");
                let message = format!("not TOML: {message}");
                self.problem(error.span(), &message);
                None
            }
        }
    }

    /// Notes a problem at a place in the text.
    pub(crate) fn problem(&mut self, span: Option<Range<usize>>, message: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            let line = span.map_or(1, |span| self.line_of(span.start));
            self.problems
                .push(format!("{}:{line}: {message}", self.file));
        }
    }

    /// Notes every key of a table that is not known. `place` is where, e.g. ` in models`, or empty.
    pub(crate) fn known_keys(&mut self, table: &dyn TableLike, known: &[&str], place: &str) {
        for (key, item) in table.iter() {
            if known.contains(&key) {
                continue;
            }
            let span = table
                .key(key)
                .and_then(toml_edit::Key::span)
                .or_else(|| item.span());
            let shown: String = key.chars().take(MAX_SHOWN).collect();
            let hint = match nearest(key, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys: {}", known.join(", ")),
            };
            self.problem(span, &format!("unknown key `{shown}`{place}; {hint}"));
        }
    }

    /// The text of an item; anything else is noted.
    pub(crate) fn text<'i>(&mut self, item: &'i Item, what: &str) -> Option<&'i str> {
        let text = item.as_str();
        if text.is_none() {
            self.problem(item.span(), &format!("{what} must be a text"));
        }
        text
    }

    /// The problems, in the order of the checks.
    pub(crate) fn into_problems(self) -> Vec<String> {
        self.problems
    }

    /// Whether a problem was noted.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    fn line_of(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        memchr::memchr_iter(b'\n', before).count() + 1
    }
}

/// The known word that looks most like `word`, when one is near enough to have been meant.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: Vec<char> = word.to_lowercase().chars().take(MAX_SHOWN).collect();
    known
        .iter()
        .map(|candidate| {
            let letters: Vec<char> = candidate.to_lowercase().chars().collect();
            (distance(&word, &letters), letters.len(), *candidate)
        })
        .filter(|(distance, length, _)| *distance <= (length.max(&word.len()) / 2).max(1))
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., candidate)| candidate)
}

/// Edits (insert, remove, replace, swap of neighbours) that make one word the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["apiVersion", "endpoints", "apiKey", "models"];

    #[test]
    fn the_nearest_known_word_is_found_and_a_far_one_is_not() {
        for (word, near) in [
            ("modles", Some("models")),
            ("model", Some("models")),
            ("api_key", Some("apiKey")),
            ("apikey", Some("apiKey")),
            ("ApiVersoin", Some("apiVersion")),
            ("endpoint", Some("endpoints")),
            ("zzzzzzzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, KNOWN), near, "{word}");
        }
    }

    #[test]
    fn a_swap_is_one_edit() {
        let letters = |word: &str| word.chars().collect::<Vec<_>>();
        assert_eq!(distance(&letters("ab"), &letters("ba")), 1);
        assert_eq!(distance(&letters("kitten"), &letters("sitting")), 3);
        assert_eq!(distance(&letters(""), &letters("abc")), 3);
    }

    #[test]
    fn problems_name_file_and_line_and_no_value() {
        let text = "# top\n\nmodels = 1\nsecrte = \"sk-hidden\"\n";
        let mut checker = Checker::new("a.toml", text);
        let document = checker.parse().expect("TOML");
        checker.known_keys(document.as_table(), &["models", "secret"], "");
        assert_eq!(
            checker.into_problems(),
            ["a.toml:4: unknown key `secrte`; did you mean `secret`?"]
        );
        let mut checker = Checker::new("a.toml", "x = 1\ny = \"sk-hidden\n");
        assert!(checker.parse().is_none());
        let problems = checker.into_problems();
        assert!(
            problems[0].starts_with("a.toml:2: not TOML"),
            "{problems:?}"
        );
        assert!(!problems[0].contains("sk-hidden"), "{problems:?}");
    }
}
