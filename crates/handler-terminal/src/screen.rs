//! The screen: what the output so far has drawn.
//!
//! Invariant: the state depends on the bytes fed and the sizes set, not on how the bytes were cut.

use crate::charset::{Charsets, drawn};
use crate::csi::Csi;
use crate::modes::Modes;
use crate::osc::OscState;
use crate::reply;
use crate::scan::{Scanner, Unit};
use crate::scrollback::{Limits, Line, Scrollback};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;
use std::panic::AssertUnwindSafe;
use unicode_width::UnicodeWidthChar as _;

pub use vt100::Cell;

/// Lines the emulator itself keeps, to give them back when the screen grows.
const NEAR_LINES: usize = 64;

/// The variation selector that asks for an emoji of two columns.
const WIDENS: &[u8] = "\u{fe0f}".as_bytes();

/// Size of a screen in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns, at least 1.
    pub cols: u16,
    /// Rows, at least 1.
    pub rows: u16,
}

impl Size {
    /// Most columns a screen has here.
    pub const MAX_COLS: u16 = 1000;
    /// Most rows a screen has here.
    pub const MAX_ROWS: u16 = 500;

    /// The nearest size within what is kept.
    #[must_use]
    pub fn clamped(self) -> Self {
        Self {
            cols: self.cols.clamp(1, Self::MAX_COLS),
            rows: self.rows.clamp(1, Self::MAX_ROWS),
        }
    }

    fn parts(self) -> (NonZeroU16, NonZeroU16) {
        let size = self.clamped();
        (
            NonZeroU16::new(size.rows).unwrap_or(NonZeroU16::MIN),
            NonZeroU16::new(size.cols).unwrap_or(NonZeroU16::MIN),
        )
    }
}

/// How the cursor is drawn.
pub type CursorShape = vt100::CursorStyle;

/// What someone sees who looks at a terminal once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Look {
    /// Text of each row, without trailing blanks.
    pub rows: Vec<String>,
    /// Row and column of the cursor, from 0.
    pub cursor: (u16, u16),
    /// Window title.
    pub title: Option<String>,
    /// Whether a full-screen program has the alternate screen.
    pub alt: bool,
    /// What programs told about themselves.
    pub osc: OscState,
    /// When output came last, milliseconds since the epoch.
    pub changed_ms: i64,
    /// Exit code, once the terminal's program has ended.
    pub exit: Option<i32>,
}

/// What the emulator tells while it works.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) far: Scrollback,
    bells: u64,
}

impl vt100::Callbacks for Notes {
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.bells += 1;
    }

    fn on_scroll(&mut self, row: vt100::capture::RowContents<'_>, is_alternate: bool) {
        if !is_alternate {
            self.far.push(Line::of(&row));
        }
    }
}

/// A terminal's screen.
pub struct Screen {
    pub(crate) vt: vt100::Parser<Notes>,
    pub(crate) scanner: Scanner,
    pub(crate) charsets: Charsets,
    pub(crate) modes: Modes,
    pub(crate) osc: OscState,
    replies: Vec<u8>,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("size", &self.size())
            .field("title", &self.osc.title)
            .finish_non_exhaustive()
    }
}

impl Screen {
    /// A blank screen. A size out of range becomes the nearest one within.
    #[must_use]
    pub fn new(size: Size, limits: Limits) -> Self {
        Self {
            vt: emulator(size, Scrollback::new(limits)),
            scanner: Scanner::default(),
            charsets: Charsets::default(),
            modes: Modes::default(),
            osc: OscState::default(),
            replies: Vec::new(),
        }
    }

    /// Takes output, cut anywhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut scanner = std::mem::take(&mut self.scanner);
        let fed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            scanner.feed(bytes, |unit| self.take(unit));
        }));
        self.scanner = scanner;
        if fed.is_err() {
            // The output of a sandbox must not end a daemon, whatever the emulator thinks of it.
            tracing::error!("the terminal's emulator failed; its screen begins anew");
            let notes = std::mem::take(self.vt.callbacks_mut());
            self.vt = emulator(self.size(), notes.far);
        }
        self.osc.bells += std::mem::take(&mut self.vt.callbacks_mut().bells);
    }

    fn take(&mut self, unit: Unit<'_>) {
        match unit {
            Unit::Run(bytes) => self.run(bytes),
            Unit::Control(shift @ (0x0e | 0x0f)) => self.charsets.shift(shift),
            Unit::Control(control) => self.vt.process(&[control]),
            Unit::Escape(escape) => self.escape(escape),
            Unit::Csi(unit) => self.csi(unit),
            Unit::Osc(body) => self.osc.take(body),
        }
    }

    fn run(&mut self, bytes: &[u8]) {
        if !self.charsets.draws() && !self.modes.touch_text() {
            return self.plain(bytes);
        }
        for c in String::from_utf8_lossy(bytes).chars() {
            let c = if self.charsets.draws() { drawn(c) } else { c };
            if self.modes.touch_text() {
                self.make_room(c);
            }
            self.plain(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    /// Draws text. A selector that would widen a character beyond the last column is left out: the emulator loses
    /// its way when the screen scrolls for it.
    fn plain(&mut self, mut bytes: &[u8]) {
        while let Some(at) = memchr::memmem::find(bytes, WIDENS) {
            let (before, after) = bytes.split_at(at);
            self.vt.process(before);
            if self.vt.screen().cursor_position().1 < self.size().cols {
                self.vt.process(WIDENS);
            }
            bytes = &after[WIDENS.len()..];
        }
        self.vt.process(bytes);
    }

    /// Before a character that is inserted, or that must not wrap.
    fn make_room(&mut self, c: char) {
        let width = c.width().unwrap_or(0);
        if width == 0 {
            return;
        }
        let cols = usize::from(self.size().cols);
        let col = usize::from(self.vt.screen().cursor_position().1);
        if self.modes.no_wrap && col + width > cols {
            let at = (cols + 1).saturating_sub(width).max(1);
            self.vt.process(format!("\x1b[{at}G").as_bytes());
        }
        if self.modes.insert {
            self.vt.process(format!("\x1b[{width}@").as_bytes());
        }
    }

    fn escape(&mut self, escape: &[u8]) {
        if self.charsets.designate(escape) {
            return;
        }
        match escape {
            b"\x1bD" => self.vt.process(b"\n"),
            b"\x1bE" => self.vt.process(b"\r\n"),
            b"\x1bc" => {
                self.vt.process(escape);
                self.vt.callbacks_mut().far.clear();
                self.charsets = Charsets::default();
                self.modes = Modes::default();
            }
            _ => self.vt.process(escape),
        }
        self.settle();
    }

    fn csi(&mut self, unit: &[u8]) {
        let Some(csi) = Csi::parse(unit) else { return };
        reply::answer(&csi, self.vt.screen().cursor_position(), &mut self.replies);
        if self.modes.take(&csi) {
            return;
        }
        match csi.kind() {
            (b'?', 0, b'h' | b'l') => self.private_modes(&csi),
            (0, b'!', b'p') => self.soft_reset(),
            (0, 0, b'm') => self.vt.process(&crate::redraw::plain_sgr(unit)),
            (0, 0, b's') => self.vt.process(b"\x1b7"),
            (0, 0, b'u') => self.vt.process(b"\x1b8"),
            (0, 0, b'I') => (0..csi.param(0, 1).min(200)).for_each(|_| self.vt.process(b"\t")),
            (0, 0, b'Z') => self.back_tabs(csi.param(0, 1)),
            (0, 0, b'a') => self.number(csi.param(0, 1), 'C'),
            (0, 0, b'e') => self.number(csi.param(0, 1), 'B'),
            (0, 0, b't') if csi.param(0, 0) == 22 => self.osc.push_title(),
            (0, 0, b't') if csi.param(0, 0) == 23 => self.osc.pop_title(),
            (0, 0, b'J') => {
                self.vt.process(unit);
                if csi.param(0, 0) == 3 {
                    self.vt.callbacks_mut().far.clear();
                }
            }
            _ => self.vt.process(unit),
        }
        self.settle();
    }

    fn number(&mut self, count: u16, last: char) {
        self.vt.process(format!("\x1b[{count}{last}").as_bytes());
    }

    fn back_tabs(&mut self, count: u16) {
        let col = self.vt.screen().cursor_position().1;
        let stops = col.div_ceil(8);
        let at = stops.saturating_sub(count) * 8;
        self.number(at + 1, 'G');
    }

    /// One mode at a time: the three ways to the other screen are one here, as in terminals of today.
    fn private_modes(&mut self, csi: &Csi) {
        let on = csi.last == b'h';
        for mode in &csi.params {
            match mode {
                47 | 1047 if on == self.vt.screen().alternate_screen() => {}
                47 | 1047 => self.private(1049, on),
                1048 => self.vt.process(if on { b"\x1b7" } else { b"\x1b8" }),
                mode => self.private(*mode, on),
            }
        }
    }

    fn private(&mut self, mode: u16, on: bool) {
        let last = if on { 'h' } else { 'l' };
        self.vt.process(format!("\x1b[?{mode}{last}").as_bytes());
    }

    fn soft_reset(&mut self) {
        let (row, col) = self.vt.screen().cursor_position();
        let reset = "\x1b[?6l\x1b[r\x1b[m\x1b[H\x1b7\x1b[?25h\x1b[?1l\x1b>";
        let back = format!("{reset}\x1b[{};{}H", row + 1, col + 1);
        self.vt.process(back.as_bytes());
        self.modes.soft_reset();
        self.charsets = Charsets::default();
    }

    /// A cursor behind the last column stays there only while that column shows what brought it there: no bytes
    /// could put another terminal into the other state.
    fn settle(&mut self) {
        let cols = self.size().cols;
        let screen = self.vt.screen();
        let (row, col) = screen.cursor_position();
        let is_bare = col >= cols
            && screen
                .cell(row, cols - 1)
                .is_none_or(|cell| !cell.has_contents() && !cell.is_wide_continuation());
        if is_bare {
            self.number(cols, 'G');
        }
    }

    /// Sets the size. What falls off the top goes where scrolled lines go.
    pub fn resize(&mut self, size: Size) {
        let (rows, cols) = size.parts();
        let resized = std::panic::catch_unwind(AssertUnwindSafe(|| {
            self.vt.set_size(rows, cols);
        }));
        if resized.is_err() {
            tracing::error!(
                "the terminal's emulator failed to change its size; its screen begins anew"
            );
            let notes = std::mem::take(self.vt.callbacks_mut());
            self.vt = emulator(size, notes.far);
        }
    }

    /// The present size.
    #[must_use]
    pub fn size(&self) -> Size {
        let (rows, cols) = self.vt.screen().size();
        Size {
            cols: cols.get(),
            rows: rows.get(),
        }
    }

    /// Text of each row, without trailing blanks.
    #[must_use]
    pub fn rows_text(&self) -> Vec<String> {
        let cols = self.size().cols;
        let rows = self.vt.screen().rows(0, cols);
        rows.map(|row| row.trim_end().to_owned()).collect()
    }

    /// Row and column of the cursor, from 0; the column may be one behind the last.
    #[must_use]
    pub fn cursor(&self) -> (u16, u16) {
        self.vt.screen().cursor_position()
    }

    /// Whether the cursor is shown.
    #[must_use]
    pub fn shows_cursor(&self) -> bool {
        !self.vt.screen().hide_cursor()
    }

    /// How the cursor is drawn.
    #[must_use]
    pub fn cursor_shape(&self) -> CursorShape {
        self.vt.screen().cursor_style()
    }

    /// Whether the alternate screen is shown.
    #[must_use]
    pub fn is_alternate(&self) -> bool {
        self.vt.screen().alternate_screen()
    }

    /// Whether pasted text is to be bracketed.
    #[must_use]
    pub fn wants_bracketed_paste(&self) -> bool {
        self.vt.screen().bracketed_paste()
    }

    /// Whether the program listens to the mouse.
    #[must_use]
    pub fn wants_mouse(&self) -> bool {
        self.vt.screen().mouse_protocol_mode() != vt100::MouseProtocolMode::None
    }

    /// Whether cursor keys send their application codes.
    #[must_use]
    pub fn has_application_keys(&self) -> bool {
        self.vt.screen().application_cursor()
    }

    /// One cell, from 0.
    #[must_use]
    pub fn cell(&self, row: u16, col: u16) -> Option<&Cell> {
        self.vt.screen().cell(row, col)
    }

    /// What programs told about themselves.
    #[must_use]
    pub fn osc(&self) -> &OscState {
        &self.osc
    }

    /// Takes the answers to questions the program asked its terminal since the last call. To be sent only when no
    /// viewer's terminal answers.
    pub fn take_replies(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.replies)
    }

    /// What someone sees who looks once.
    #[must_use]
    pub fn look(&self, changed_ms: i64, exit: Option<i32>) -> Look {
        Look {
            rows: self.rows_text(),
            cursor: self.cursor(),
            title: self.osc.title.clone(),
            alt: self.is_alternate(),
            osc: self.osc.clone(),
            changed_ms,
            exit,
        }
    }
}

pub(crate) fn emulator(size: Size, far: Scrollback) -> vt100::Parser<Notes> {
    let (rows, cols) = size.parts();
    let notes = Notes { far, bells: 0 };
    vt100::Parser::new_with_callbacks(rows, cols, NEAR_LINES, notes)
}
