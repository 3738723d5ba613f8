//! Lines that have left the screen, oldest first, bounded in number and in bytes.

use std::collections::VecDeque;
use std::fmt;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How much is kept of what has left the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Lines.
    pub lines: usize,
    /// Bytes of all lines together.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lines: 5_000,
            bytes: 384 * 1024,
        }
    }
}

/// A line of the screen's width.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    /// Text with its colours and nothing else.
    pub(crate) text: Box<str>,
    /// It goes on in the next line.
    pub(crate) wrapped: bool,
}

impl Line {
    /// A row as it leaves the screen.
    pub(crate) fn of(row: &vt100::capture::RowContents<'_>) -> Self {
        let mut state = vt100::capture::BasicFormattedCaptureState::new();
        let mut text = String::new();
        // Neither the string nor the row refuses.
        row.write_formatted_basic(&mut text, &mut state).ok();
        if text.contains('\u{1b}') {
            text.push_str("\u{1b}[m");
        }
        let mut first = FirstCharacter(None);
        row.write_formatted_basic(&mut first, &mut state).ok();
        Self {
            text: text.into(),
            wrapped: first.0 != Some('\n'),
        }
    }

    /// How many columns its text takes, counted as the emulator does.
    pub(crate) fn width(&self) -> usize {
        let mut columns = 0;
        let mut before = None;
        for c in self.plain().chars() {
            let widened = c == '\u{fe0f}'
                && before
                    .is_some_and(|b: char| b.width() == Some(1) && format!("{b}{c}").width() == 2);
            columns += c.width().unwrap_or(1).min(2) + usize::from(widened);
            before = Some(c);
        }
        columns
    }

    /// Its text without colours.
    pub(crate) fn plain(&self) -> String {
        vt100::capture::basic_formatted_to_plain(&self.text).collect()
    }
}

/// Hears one character and stops the writer.
struct FirstCharacter(Option<char>);

impl fmt::Write for FirstCharacter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = text.chars().next();
        if self.0.is_some() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// The lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scrollback {
    lines: VecDeque<Line>,
    bytes: usize,
    limits: Limits,
}

impl Scrollback {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, line: Line) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > self.limits.lines || self.bytes > self.limits.bytes {
            match self.lines.pop_front() {
                Some(gone) => self.bytes -= gone.text.len(),
                None => break,
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
    }

    pub(crate) fn lines(&self) -> impl DoubleEndedIterator<Item = &Line> + ExactSizeIterator {
        self.lines.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_hold() {
        let mut kept = Scrollback::new(Limits {
            lines: 10,
            bytes: 100,
        });
        for n in 0..50 {
            kept.push(Line {
                text: format!("line {n}").into(),
                wrapped: false,
            });
        }
        assert_eq!(kept.lines().len(), 10);
        assert_eq!(kept.lines().next_back().expect("some").plain(), "line 49");
        kept.push(Line {
            text: "x".repeat(95).into(),
            wrapped: false,
        });
        assert_eq!(kept.lines().len(), 1);
        kept.push(Line {
            text: "x".repeat(101).into(),
            wrapped: false,
        });
        assert_eq!((kept.lines().len(), kept.bytes), (0, 0));
    }
}
