//! Bytes that draw the screen again on another terminal of the same size, whatever that one shows.

use crate::modes::Modes;
use crate::probe::{Probe, copy, main_screen};
use crate::screen::Screen;
use crate::scrollback::Line;
use std::fmt::Write as _;
use vt100::Color;

/// Ends whatever sequence the other terminal is in and sets what drawing depends on.
const FRESH: &str = "\x18\x1b\\\x1b[?1049l\x1b[?6l\x1b[r\x1b[m\x1b(B\x1b)B\x0f\x1b[0 q\x1b>\
    \x1b[?1l\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?2004l";

impl Screen {
    /// Bytes that put a terminal of this size into this state: at most `lines` of what has left the screen, then
    /// both screens, colours, modes, title and cursor. The stream may go on right behind them, wherever it was cut.
    #[must_use]
    pub fn redraw(&self, lines: usize) -> Vec<u8> {
        let mut out = FRESH.as_bytes().to_vec();
        Modes::write_off(&mut out);
        let all = self.scrolled_lines();
        write_lines(
            &all[all.len().saturating_sub(lines)..],
            self.size(),
            &mut out,
        );
        self.write_state(&mut out);
        out
    }

    /// Bytes that put the terminal which shows this screen back to its usual modes and leave its text alone.
    #[must_use]
    pub fn undo(&self) -> Vec<u8> {
        let mut out = b"\x18\x1b\\".to_vec();
        if self.is_alternate() {
            out.extend_from_slice(b"\x1b[?1049l");
        }
        out.extend_from_slice(
            b"\x1b[?6l\x1b7\x1b[r\x1b8\x1b[m\x1b(B\x1b)B\x0f\x1b[0 q\x1b>\x1b[?25h",
        );
        out.extend_from_slice(
            b"\x1b[?1l\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?2004l",
        );
        Modes::write_off(&mut out);
        out
    }

    /// Whether nothing was drawn yet, or all of it was cleared.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        !self.is_alternate()
            && self.cursor() == (0, 0)
            && self.rows_text().iter().all(String::is_empty)
    }

    /// The part behind the lines that have left the screen.
    pub(crate) fn write_state(&self, out: &mut Vec<u8>) {
        let now = self.vt.screen();
        if let Some(main) = main_screen(now) {
            write_grid(&main, out);
            out.extend_from_slice(b"\x1b[?1049h");
        }
        write_grid(now, out);
        out.extend_from_slice(now.input_mode_formatted().as_bytes());
        let cursor: &[u8] = if now.hide_cursor() {
            b"\x1b[?25l"
        } else {
            b"\x1b[?25h"
        };
        out.extend_from_slice(cursor);
        self.osc.write_titles(out);
        self.modes.write(out);
        self.charsets.write(out);
        out.extend_from_slice(self.scanner.pending());
    }

    /// All lines that have left the screen, oldest first.
    pub(crate) fn scrolled_lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = self.vt.callbacks().far.lines().cloned().collect();
        lines.extend(self.near_lines());
        lines
    }

    /// The ones the emulator keeps.
    pub(crate) fn near_lines(&self) -> Vec<Line> {
        let main = main_screen(self.vt.screen());
        let mut parser = copy(main.as_ref().unwrap_or(self.vt.screen()));
        let screen = parser.screen_mut();
        screen.set_scrollback(usize::MAX);
        let mut left = screen.scrollback();
        let rows = usize::from(screen.size().0.get());
        let mut lines = Vec::with_capacity(left);
        while left > 0 {
            screen.set_scrollback(left);
            let here = left.min(rows);
            // At most the rows of the screen.
            lines.extend((0..here).map(|row| line_of(screen, u16::try_from(row).unwrap_or(0))));
            left -= here;
        }
        lines
    }

    /// Text of the lines that have left the screen (at most the last `lines`) and of the screen's rows.
    #[must_use]
    pub fn text(&self, lines: usize) -> String {
        let all = self.scrolled_lines();
        let mut out = String::new();
        for line in &all[all.len().saturating_sub(lines)..] {
            let plain = line.plain();
            out.push_str(if line.wrapped {
                &plain
            } else {
                plain.trim_end()
            });
            if !line.wrapped {
                out.push('\n');
            }
        }
        for row in self.rows_text() {
            out.push_str(&row);
            out.push('\n');
        }
        out
    }

    /// The same with colours; each line ends with the usual ones.
    #[must_use]
    pub fn ansi(&self, lines: usize) -> String {
        let all = self.scrolled_lines();
        let mut out = String::new();
        let screen = self.vt.screen();
        let rows = (0..self.size().rows).map(|row| line_of(screen, row));
        let before = all[all.len().saturating_sub(lines)..].iter().cloned();
        for line in before.chain(rows) {
            out.push_str(&line.text);
            if !line.wrapped {
                out.push('\n');
            }
        }
        out
    }
}

/// Lets lines leave the screen again.
pub(crate) fn write_lines(lines: &[Line], size: crate::Size, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x1b[H\x1b[J");
    if lines.is_empty() {
        return;
    }
    let cols = usize::from(size.cols);
    for (index, line) in lines.iter().enumerate() {
        out.extend_from_slice(line.text.as_bytes());
        // A line as wide as the screen wraps by itself when the next one is written.
        let is_last = index + 1 == lines.len();
        let wraps = !is_last && line.wrapped && line.width() == cols;
        if !wraps {
            out.extend_from_slice(b"\r\n");
        }
    }
    let left = lines.len().min(usize::from(size.rows) - 1);
    out.extend_from_slice(format!("\x1b[m\x1b[{};1H", size.rows).as_bytes());
    out.extend(std::iter::repeat_n(b'\n', left));
}

/// A row's text with its colours.
pub(crate) fn line_of(screen: &vt100::Screen, row: u16) -> Line {
    let cols = screen.size().1.get();
    let mut text = String::new();
    let mut blanks = 0;
    let mut now = "\x1b[m".to_owned();
    for col in 0..cols {
        let Some(cell) = screen.cell(row, col) else {
            break;
        };
        if cell.is_wide_continuation() {
            continue;
        }
        let colours = sgr(cell);
        if !cell.has_contents() && colours == "\x1b[m" {
            blanks += 1;
            continue;
        }
        // Blanks before it have no colours.
        if blanks > 0 && now != "\x1b[m" {
            now = "\x1b[m".to_owned();
            text.push_str(&now);
        }
        text.extend(std::iter::repeat_n(' ', std::mem::take(&mut blanks)));
        if colours != now {
            text.push_str(&colours);
            now = colours;
        }
        text.push_str(if cell.has_contents() {
            cell.contents()
        } else {
            " "
        });
    }
    if now != "\x1b[m" {
        text.push_str("\x1b[m");
    }
    Line {
        text: text.into(),
        wrapped: screen.row_wrapped(row),
    }
}

/// A cell's attributes, whatever was set before.
fn sgr(cell: &vt100::Cell) -> String {
    let mut out = String::from("\x1b[");
    let flags = [
        (cell.bold(), ";1"),
        (cell.dim(), ";2"),
        (cell.italic(), ";3"),
        (cell.underline(), ";4"),
        (cell.inverse(), ";7"),
    ];
    out.extend(flags.iter().filter(|(on, _)| *on).map(|(_, code)| *code));
    colour(cell.fgcolor(), 38, &mut out);
    colour(cell.bgcolor(), 48, &mut out);
    out.push('m');
    out
}

fn colour(colour: Color, base: u8, out: &mut String) {
    // A string takes everything.
    match colour {
        Color::Default => Ok(()),
        Color::Idx(index) => write!(out, ";{base};5;{index}"),
        Color::Rgb(r, g, b) => write!(out, ";{base};2;{r};{g};{b}"),
    }
    .ok();
}

/// Draws one screen, and what its cursor does next.
fn write_grid(screen: &vt100::Screen, out: &mut Vec<u8>) {
    let probe = Probe::of(screen);
    out.extend_from_slice(b"\x1b[?6l\x1b[r\x1b[m");
    out.extend_from_slice(screen.contents_formatted().as_bytes());
    if probe.saved_origin {
        out.extend_from_slice(b"\x1b[?6h");
    }
    place(screen, probe.saved, 0, out);
    out.extend_from_slice(probe.saved_attributes.as_bytes());
    out.extend_from_slice(b"\x1b7\x1b[?6l");
    let (top, bottom) = probe.region;
    if (top, bottom) != (0, screen.size().0.get() - 1) {
        out.extend_from_slice(format!("\x1b[{};{}r", top + 1, bottom + 1).as_bytes());
    }
    if probe.origin {
        out.extend_from_slice(b"\x1b[?6h");
    }
    let first = if probe.origin { top } else { 0 };
    place(screen, screen.cursor_position(), first, out);
    out.extend_from_slice(screen.attributes_formatted().as_bytes());
}

/// Moves the cursor; behind the last column by drawing that column again.
fn place(screen: &vt100::Screen, at: (u16, u16), first: u16, out: &mut Vec<u8>) {
    let cols = screen.size().1.get();
    let row = at.0.saturating_sub(first) + 1;
    let last = cols - 1;
    let is_half = |col| {
        screen
            .cell(at.0, col)
            .is_some_and(vt100::Cell::is_wide_continuation)
    };
    let col = match at.1 {
        col if col < cols => col,
        _ if is_half(last) && last > 0 => last - 1,
        _ => last,
    };
    out.extend_from_slice(format!("\x1b[{row};{}H", col + 1).as_bytes());
    if at.1 >= cols
        && let Some(cell) = screen.cell(at.0, col).filter(|cell| cell.has_contents())
    {
        out.extend_from_slice(sgr(cell).as_bytes());
        out.extend_from_slice(cell.contents().as_bytes());
    }
}

/// Attributes in words the emulator knows: it takes what it does not know for others.
pub(crate) fn plain_sgr(unit: &[u8]) -> Vec<u8> {
    let body = &unit[2..unit.len() - 1];
    if !body.contains(&b':') && !body.windows(2).any(|two| two == b"58" || two == b"21") {
        return unit.to_vec();
    }
    let text = String::from_utf8_lossy(body);
    let mut params = text.split(';');
    let mut known: Vec<String> = Vec::new();
    while let Some(param) = params.next() {
        let parts: Vec<&str> = param.split(':').collect();
        match parts.as_slice() {
            ["58"] => {
                let skipped = match params.next() {
                    Some("2") => 3,
                    Some("5") => 1,
                    _ => 0,
                };
                params.by_ref().take(skipped).for_each(drop);
            }
            ["58", ..] => {}
            ["38" | "48"] => {
                known.push(param.to_owned());
                let Some(kind) = params.next() else { break };
                known.push(kind.to_owned());
                let more = if kind == "2" { 3 } else { 1 };
                known.extend(params.by_ref().take(more).map(str::to_owned));
            }
            ["4", "0"] => known.push("24".to_owned()),
            ["4", ..] | ["21"] => known.push("4".to_owned()),
            [base, "2", .., r, g, b] => known.push(format!("{base};2;{r};{g};{b}")),
            [base, "5", index] => known.push(format!("{base};5;{index}")),
            _ => known.push(param.to_owned()),
        }
    }
    if known.is_empty() {
        return Vec::new();
    }
    format!("\x1b[{}m", known.join(";")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_attributes_are_not_taken_for_others() {
        let plain = |unit: &[u8]| String::from_utf8(plain_sgr(unit)).expect("text");
        assert_eq!(plain(b"\x1b[1;58;2;9;4;7;3m"), "\x1b[1;3m");
        assert_eq!(plain(b"\x1b[4:3;58:5:9m"), "\x1b[4m");
        assert_eq!(plain(b"\x1b[38:2::10:20:30m"), "\x1b[38;2;10;20;30m");
        assert_eq!(plain(b"\x1b[38;5;58m"), "\x1b[38;5;58m");
        assert_eq!(plain(b"\x1b[58;5;3m"), "");
        assert_eq!(plain(b"\x1b[m"), "\x1b[m");
    }
}
