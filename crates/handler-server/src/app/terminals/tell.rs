//! What viewers and readers are told about a screen.

use handler_terminal::{OscState, Screen};
use handler_types::guest::TtySize;
use handler_types::terminal::{ScreenView, TerminalEvent};

/// Tells what changed between two states.
pub(super) fn tell(before: &OscState, now: &OscState, told: impl Fn(TerminalEvent)) {
    if before.title != now.title {
        told(TerminalEvent::Title {
            title: now.title.clone().unwrap_or_default(),
        });
    }
    if let Some(cwd) = now
        .cwd
        .as_ref()
        .filter(|cwd| before.cwd.as_ref() != Some(cwd))
    {
        told(TerminalEvent::Cwd { cwd: cwd.clone() });
    }
    if before.shell != now.shell {
        told(TerminalEvent::Shell {
            at_prompt: now.shell.at_prompt,
            running: now.shell.running,
            last_exit: now.shell.last_exit,
        });
    }
    if let Some(state) = now
        .state
        .as_ref()
        .filter(|s| before.state.as_ref() != Some(s))
    {
        told(TerminalEvent::Told {
            state: state.clone(),
        });
    }
    if before.bells != now.bells {
        told(TerminalEvent::Bell);
    }
}

/// A screen as a document.
pub(super) fn screen_view(screen: &Screen, lines: usize, changed_ms: i64) -> ScreenView {
    let rows = screen.rows_text();
    let mut before: Vec<String> = if lines == 0 {
        Vec::new()
    } else {
        screen.text(lines).lines().map(str::to_owned).collect()
    };
    before.truncate(before.len().saturating_sub(rows.len()));
    let (cursor_row, cursor_col) = screen.cursor();
    let osc = screen.osc();
    let size = screen.size();
    ScreenView {
        size: TtySize {
            cols: size.cols,
            rows: size.rows,
        },
        rows,
        scrollback: before,
        cursor_row,
        cursor_col,
        cursor_visible: screen.shows_cursor(),
        alternate: screen.is_alternate(),
        title: osc.title.clone(),
        cwd: osc.cwd.clone(),
        at_prompt: osc.shell.at_prompt,
        running: osc.shell.running,
        last_exit: osc.shell.last_exit,
        told: osc.state.clone(),
        changed_ms,
    }
}
