//! The terminal's emulator, its redraws and its snapshots.

use handler_terminal::{Limits, Screen, Size};

/// What someone sees.
#[derive(Debug, PartialEq)]
struct Seen {
    rows: Vec<String>,
    cursor: (u16, u16),
    shown: bool,
    alternate: bool,
    modes: [bool; 3],
    title: Option<String>,
}

fn seen(screen: &Screen) -> Seen {
    Seen {
        rows: screen.rows_text(),
        cursor: screen.cursor(),
        shown: screen.shows_cursor(),
        alternate: screen.is_alternate(),
        modes: [
            screen.wants_bracketed_paste(),
            screen.wants_mouse(),
            screen.has_application_keys(),
        ],
        title: screen.look(0, None).title,
    }
}

/// However it is cut the output makes the same screen; its redraw and its snapshot make the same one again, on which
/// the rest of the output does what it does on the first.
pub(crate) fn terminal(data: &[u8]) {
    let [cols, rows, step, output @ ..] = data else {
        return;
    };
    let size = Size {
        cols: u16::from(cols % 40) + 2,
        rows: u16::from(rows % 12) + 1,
    };
    let (before, rest) = output.split_at(output.len() / 2);
    let mut whole = Screen::new(size, Limits::default());
    whole.feed(before);
    let mut pieces = Screen::new(size, Limits::default());
    before
        .chunks(usize::from(*step) + 1)
        .for_each(|piece| pieces.feed(piece));
    assert_eq!(seen(&pieces), seen(&whole), "cut");
    if whole.cursor().1 >= size.cols {
        // Behind the last column of a row that was cleared under it: a redraw cannot put it there (docs/hazards.md).
        return;
    }
    let mut drawn = Screen::new(size, Limits::default());
    drawn.feed(&whole.redraw(0));
    assert_eq!(seen(&drawn), seen(&whole), "drawn again");
    let note = serde_json::json!({"offset": before.len()});
    let restored = Screen::restore(&whole.snapshot(&note), Limits::default());
    let (mut restored, noted) = restored.expect("a snapshot of our own");
    assert_eq!(noted, note);
    assert_eq!(seen(&restored), seen(&whole), "restored");
    for screen in [&mut whole, &mut drawn, &mut restored] {
        screen.feed(rest);
        // Answers are bounded, whatever is asked.
        assert!(screen.take_replies().len() <= 64 * 1024);
    }
    assert_eq!(seen(&drawn), seen(&whole), "drawn again, and the rest");
    assert_eq!(seen(&restored), seen(&whole), "restored, and the rest");
}

/// Any bytes are a snapshot or refused; what is restored is of a size that is kept, and can be kept again.
pub(crate) fn terminal_snapshot(data: &[u8]) {
    let Ok((screen, note)) = Screen::restore(data, Limits::default()) else {
        return;
    };
    assert_eq!(screen.size(), screen.size().clamped());
    let again = Screen::restore(&screen.snapshot(&note), Limits::default());
    let (again, noted) = again.expect("a snapshot of our own");
    assert_eq!(noted, note);
    assert_eq!(seen(&again), seen(&screen));
}
