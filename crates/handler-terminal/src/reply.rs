//! Answers a terminal gives to questions of the program in it, for when nobody watches who would.

use crate::csi::Csi;

/// Most bytes of answers kept until someone takes them.
const MAX_REPLIES: usize = 1024;

/// Notes the answer to a question, if this is one whose answer is known here.
pub(crate) fn answer(csi: &Csi, cursor: (u16, u16), replies: &mut Vec<u8>) {
    let text = match (csi.kind(), csi.param(0, 0)) {
        ((0, 0, b'n'), 5) => "\x1b[0n".to_owned(),
        ((0, 0, b'n'), 6) => format!("\x1b[{};{}R", cursor.0 + 1, cursor.1 + 1),
        // A VT220 with colour.
        ((0, 0, b'c'), 0) => "\x1b[?62;22c".to_owned(),
        ((b'>', 0, b'c'), 0) => "\x1b[>1;10;0c".to_owned(),
        _ => return,
    };
    if replies.len() + text.len() <= MAX_REPLIES {
        replies.extend_from_slice(text.as_bytes());
    }
}
