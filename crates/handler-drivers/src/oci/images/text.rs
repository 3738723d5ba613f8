//! Output of builders and registries made into plain lines: escape sequences and control characters go, lines
//! have a length, the rest of a chunk waits for its end.

/// Longest line passed on, bytes.
const MAX_LINE: usize = 4096;

/// Cuts a stream of text into clean lines.
#[derive(Debug, Default)]
pub(super) struct LineCutter {
    rest: Vec<u8>,
}

impl LineCutter {
    /// Takes a piece and answers the lines it completes. A carriage return ends a line too (progress bars).
    pub(super) fn push(&mut self, piece: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for &byte in piece {
            if byte == b'\n' || byte == b'\r' || self.rest.len() >= MAX_LINE {
                lines.extend(self.take());
            }
            if byte != b'\n' && byte != b'\r' {
                self.rest.push(byte);
            }
        }
        lines
    }

    /// What is left when the stream ends.
    pub(super) fn take(&mut self) -> Option<String> {
        let line = clean(&String::from_utf8_lossy(&std::mem::take(&mut self.rest)));
        (!line.trim().is_empty()).then_some(line)
    }
}

/// Text without escape sequences and other control characters.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_control_sequence(&mut chars),
            '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => skip_control_sequence(chars),
        // Title and link strings, up to BEL or ESC \.
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' || c == '\u{9c}' {
                    return;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    return;
                }
            }
        }
        // Two-character ones with an intermediate, e.g. ESC ( B.
        Some(c) if (' '..='/').contains(&c) => {
            chars.next();
        }
        _ => {}
    }
}

fn skip_control_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    for c in chars {
        if ('@'..='~').contains(&c) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_control_characters_go() {
        assert_eq!(clean("a\u{1b}[1;31mred\u{1b}[0m\u{7}b\tc"), "aredb\tc");
        assert_eq!(
            clean("x\u{1b}]0;title\u{7}y\u{1b}]8;;u\u{1b}\\z\u{1b}(B!"),
            "xyz!"
        );
        assert_eq!(clean("open \u{1b}]0;never ends"), "open ");
        assert_eq!(clean("\u{9b}2Kz"), "z");
    }

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        let text = "one\ntwo\rthree \u{1b}[32mé\u{1b}[m\n\n".as_bytes();
        for cut in 0..text.len() {
            let mut cutter = LineCutter::default();
            let mut lines = cutter.push(&text[..cut]);
            lines.extend(cutter.push(&text[cut..]));
            lines.extend(cutter.take());
            assert_eq!(lines, ["one", "two", "three é"], "{cut}");
        }
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut cutter = LineCutter::default();
        let lines = cutter.push(&vec![b'x'; 3 * MAX_LINE + 5]);
        assert_eq!(lines.len(), 3);
        assert_eq!(cutter.take().map(|l| l.len()), Some(5));
    }
}
