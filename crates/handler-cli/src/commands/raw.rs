//! Our own terminal: its size, and raw mode that ends whatever happens.

use handler_types::guest::TtySize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::IsTerminal as _;

/// The size of our terminal, if standard output is one.
pub(super) fn size() -> Option<TtySize> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(TtySize {
        cols: size.ws_col,
        rows: size.ws_row,
    })
}

/// Our terminal in raw mode until dropped.
pub(super) struct RawMode(Option<Termios>);

impl RawMode {
    pub(super) fn enter() -> Self {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Self(None);
        }
        let Ok(before) = tcgetattr(&stdin) else {
            return Self(None);
        };
        let mut raw = before.clone();
        raw.make_raw();
        // What was typed ahead is kept: it is meant for the shell inside.
        if tcsetattr(&stdin, OptionalActions::Drain, &raw).is_err() {
            return Self(None);
        }
        Self(Some(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            tcsetattr(std::io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}
