//! Finds out what the emulator does not tell: it is asked on a copy.

/// What a grid would do next.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    /// Where the cursor goes back to: row, column.
    pub(crate) saved: (u16, u16),
    /// Escape codes of the attributes it goes back to.
    pub(crate) saved_attributes: String,
    /// Whether it then counts from the scroll region.
    pub(crate) saved_origin: bool,
    /// Whether positions count from the scroll region now.
    pub(crate) origin: bool,
    /// First and last row of the scroll region.
    pub(crate) region: (u16, u16),
}

/// A copy to ask, without what has left the screen.
pub(crate) fn copy(screen: &vt100::Screen) -> vt100::Parser {
    let (rows, cols) = screen.size();
    let mut parser = vt100::Parser::new(rows, cols, 0);
    *parser.screen_mut() = screen.clone();
    parser
}

/// The main screen, when the other one is shown.
pub(crate) fn main_screen(screen: &vt100::Screen) -> Option<vt100::Screen> {
    screen.alternate_screen().then(|| {
        let mut parser = copy(screen);
        parser.process(b"\x1b[?47l");
        parser.screen().clone()
    })
}

impl Probe {
    /// Asks.
    pub(crate) fn of(screen: &vt100::Screen) -> Self {
        let mut parser = copy(screen);
        parser.process(b"\x1b[?6h");
        let top = parser.screen().cursor_position().0;
        parser.process(b"\x1b[65535B");
        let bottom = parser.screen().cursor_position().0;
        *parser.screen_mut() = screen.clone();
        let origin = is_origin(&mut parser);
        *parser.screen_mut() = screen.clone();
        parser.process(b"\x1b8");
        let saved = parser.screen().cursor_position();
        let saved_attributes = parser.screen().attributes_formatted();
        let saved_origin = is_origin(&mut parser);
        Self {
            saved,
            saved_attributes,
            saved_origin,
            origin,
            region: (top, bottom),
        }
    }
}

/// Whether home is the top of the scroll region. On one or two rows it makes no difference.
fn is_origin(parser: &mut vt100::Parser) -> bool {
    parser.process(b"\x1b[2;3r\x1b[H");
    parser.screen().cursor_position().0 == 1
}
