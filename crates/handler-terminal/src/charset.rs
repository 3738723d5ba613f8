//! Character sets: which of the two is in use, and the line drawing of the VT100 as what it draws.

/// The sets chosen for the two places, and the place in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Charsets {
    is_drawing: [bool; 2],
    shifted: bool,
}

impl Charsets {
    /// Takes an escape sequence; whether it was one of these.
    pub(crate) fn designate(&mut self, escape: &[u8]) -> bool {
        let place = match escape.get(1) {
            Some(b'(') => 0,
            Some(b')') => 1,
            _ => return false,
        };
        self.is_drawing[place] = escape.get(2) == Some(&b'0');
        true
    }

    /// Shift out (0x0e) or in (0x0f).
    pub(crate) fn shift(&mut self, control: u8) {
        self.shifted = control == 0x0e;
    }

    /// Whether text is line drawing now.
    pub(crate) fn draws(&self) -> bool {
        self.is_drawing[usize::from(self.shifted)]
    }

    /// Bytes that set a terminal which has the usual sets to these.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if self.is_drawing[0] {
            out.extend_from_slice(b"\x1b(0");
        }
        if self.is_drawing[1] {
            out.extend_from_slice(b"\x1b)0");
        }
        if self.shifted {
            out.push(0x0e);
        }
    }
}

/// What a character means in the line drawing set.
pub(crate) fn drawn(c: char) -> char {
    const FROM_BACKQUOTE: &str = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";
    match c {
        '`'..='~' => FROM_BACKQUOTE
            .chars()
            .nth(c as usize - '`' as usize)
            .unwrap_or(c),
        '_' => ' ',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_a_box() {
        let corners: String = "lqkxmj".chars().map(drawn).collect();
        assert_eq!(corners, "┌─┐│└┘");
        assert_eq!(drawn('~'), '·');
        assert_eq!(drawn('A'), 'A');
    }
}
