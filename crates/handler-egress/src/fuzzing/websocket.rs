//! WebSocket frames of any bytes, both ways.

use super::{own, rules};
use crate::scan::Needles;
use crate::websocket::{Broken, Frames, Head, Opcode, Sender};

/// What comes out is frames, with the same messages however the bytes were cut.
pub fn websocket(data: &[u8]) {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    let (sender, needles) = match how & 1 {
        0 => (Sender::Client, Needles::for_request(rules(), &own(), false)),
        _ => (Sender::Server, Needles::for_response(rules(), &own())),
    };
    let frames = || Frames::new(sender, needles.clone());
    let whole = pushed(frames(), [data].into_iter());
    let cut = pushed(frames(), data.chunks(usize::from(how >> 1) + 1));
    let (whole, cut) = match (whole, cut) {
        (Ok(whole), Ok(cut)) => (whole, cut),
        (whole, cut) => return assert_eq!(whole.err(), cut.err()),
    };
    let (whole, cut) = (messages(sender, &whole), messages(sender, &cut));
    // Of a message under way more may have come out in one than in the other.
    let whole_ones = |all: &[Message]| {
        all.iter()
            .filter(|one| one.ended)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(whole_ones(&whole), whole_ones(&cut));
}

fn pushed<'a>(
    mut frames: Frames,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, Broken> {
    let (mut out, mut found) = (Vec::new(), Vec::new());
    for piece in pieces {
        frames.push(piece, &mut out, &mut found)?;
    }
    Ok(out)
}

#[derive(Debug, Clone, PartialEq)]
struct Message {
    opcode: Opcode,
    text: Vec<u8>,
    ended: bool,
}

/// Messages and control frames in the order in which they begin; panics at what is no frame.
fn messages(sender: Sender, mut bytes: &[u8]) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::new();
    let mut open: Option<usize> = None;
    while !bytes.is_empty() {
        let head = Head::read(&mut Vec::new(), &mut bytes).expect("a head");
        let Some(head) = head else { break };
        assert_eq!(head.key.is_some(), sender == Sender::Client);
        let length = usize::try_from(head.length)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let (payload, rest) = bytes.split_at(length);
        bytes = rest;
        let text = head.masked(payload, 0);
        let ended = head.last && length as u64 == head.length;
        if head.opcode == Opcode::Continuation {
            let message = &mut all[open.expect("a message under way")];
            message.text.extend_from_slice(&text);
            message.ended = ended;
        } else {
            if !head.opcode.is_control() {
                assert_eq!(open, None, "a message within a message");
                open = Some(all.len());
            }
            let opcode = head.opcode;
            all.push(Message {
                opcode,
                text,
                ended,
            });
        }
        if head.last && !head.opcode.is_control() {
            open = None;
        }
    }
    all
}
