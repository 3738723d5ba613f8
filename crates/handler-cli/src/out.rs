//! Where commands print: for people, as JSON, or quietly. The only place here that writes to the terminal.

use crate::exit::Failure;
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _};

/// The printer.
#[derive(Debug, Clone)]
pub struct Out {
    /// Print JSON documents instead of text.
    pub json: bool,
    /// Print only what was asked for.
    pub quiet: bool,
    colour: bool,
}

impl Out {
    /// Colours are used on a terminal unless `NO_COLOR` is set.
    #[must_use]
    pub fn new(json: bool, quiet: bool, no_colour: bool) -> Self {
        let colour = !no_colour && !json && std::io::stdout().is_terminal();
        Self {
            json,
            quiet,
            colour,
        }
    }

    /// Prints a line; a closed pipe ends the printing, not the program's sense.
    pub fn line(&self, text: impl AsRef<str>) {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", text.as_ref()).ok();
    }

    /// Prints text without a line end, at once.
    pub fn text(&self, text: impl AsRef<str>) {
        self.bytes(text.as_ref().as_bytes());
    }

    /// Writes bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).ok();
        stdout.flush().ok();
    }

    /// Writes bytes to standard error.
    pub fn error_bytes(&self, bytes: &[u8]) {
        std::io::stderr().lock().write_all(bytes).ok();
    }

    /// A remark for people, on standard error; not in quiet or JSON mode.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            writeln!(std::io::stderr().lock(), "{}", text.as_ref()).ok();
        }
    }

    /// How far something is, in a line that the next word replaces; empty text clears it. Only on a terminal.
    pub fn progress(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        if !self.quiet && !self.json && stderr.is_terminal() {
            write!(stderr, "\r\x1b[K{}", printable(text)).ok();
            stderr.flush().ok();
        }
    }

    /// A JSON document.
    pub fn document(&self, value: &impl Serialize) {
        if let Ok(text) = serde_json::to_string_pretty(value) {
            self.line(text);
        }
    }

    /// The value as JSON, or what `human` prints.
    pub fn show<T: Serialize>(&self, value: &T, human: impl FnOnce(&Self, &T)) {
        if self.json {
            self.document(value);
        } else {
            human(self, value);
        }
    }

    /// A table with aligned columns; cells have no control characters left in.
    pub fn table(&self, head: &[&str], rows: &[Vec<String>]) {
        let clean: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| printable(cell)).collect())
            .collect();
        let width = |column: usize| {
            clean
                .iter()
                .map(|row| row[column].chars().count())
                .chain([head[column].len()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let render = |cells: &[String]| {
            let padded = cells
                .iter()
                .zip(&widths)
                .map(|(cell, w)| format!("{cell:<w$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
        self.line(self.dim(&render(&head)));
        for row in &clean {
            self.line(render(row));
        }
    }

    /// Faint text.
    #[must_use]
    pub fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Bold text.
    #[must_use]
    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Text in one of the terminal's colours (SGR number).
    #[must_use]
    pub fn paint(&self, sgr: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{sgr}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Tells a failure: cause chain, then a hint.
    pub fn failure(&self, failure: &Failure) {
        if self.json
            && let Failure::Client(handler_client::ClientError::Refused(problem)) = failure
        {
            self.document(problem);
            return;
        }
        let mut text = failure.to_string();
        let mut next = std::error::Error::source(failure);
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            if !text.ends_with(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            next = cause.source();
        }
        let mut stderr = std::io::stderr().lock();
        writeln!(stderr, "handler: {}", printable(&text)).ok();
        if let Some(hint) = failure.hint() {
            writeln!(stderr, "hint: {hint}").ok();
        }
    }
}

/// Text from elsewhere made safe for a terminal: control characters (escape sequences) become visible.
/// Newlines and tabs stay.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() || ('\u{200e}'..='\u{200f}').contains(&c) => '\u{fffd}',
            c if ('\u{202a}'..='\u{202e}').contains(&c)
                || ('\u{2066}'..='\u{2069}').contains(&c) =>
            {
                '\u{fffd}'
            }
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_from_elsewhere_do_not_reach_the_terminal() {
        assert_eq!(
            printable("a\x1b[31mred\u{9b}x\u{202e}y\n\tz"),
            "a\u{fffd}[31mred\u{fffd}x\u{fffd}y\n\tz"
        );
    }
}
