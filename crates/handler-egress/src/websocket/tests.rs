//! Messages cut into fragments and bytes anywhere, both ways; what is no frame; what is held.

use super::*;
use crate::settings::{Rules, tests::settings};
use crate::target::Target;
use proptest::prelude::*;
use std::sync::Arc;

const SECRETS: &[(&str, &str, &str, &str)] = &[
    ("mine", "phantom-1234", "the-value-99", "a.com:443"),
    ("other", "other-phantom", "other-value-1", "b.com:443"),
];

fn frames(sender: Sender) -> Frames {
    let rules = Arc::new(Rules::new(settings(SECRETS), 1).expect("settings").0);
    let target = Target::parse("a.com:443", None).expect("target");
    let needles = match sender {
        Sender::Client => Needles::for_request(rules, &target, false),
        Sender::Server => Needles::for_response(rules, &target),
    };
    Frames::new(sender, needles)
}

/// What goes in and what must come out.
fn words(sender: Sender) -> (&'static str, &'static str) {
    match sender {
        Sender::Client => ("phantom-1234", "the-value-99"),
        Sender::Server => ("the-value-99", "phantom-1234"),
    }
}

fn frame(sender: Sender, last: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let head = Head {
        last,
        opcode,
        key: (sender == Sender::Client).then_some([7, 99, 200, 31]),
        length: payload.len() as u64,
    };
    let mut out = Vec::new();
    head.write(&mut out);
    out.extend_from_slice(&head.masked(payload, 0));
    out
}

/// A message in these fragments, with a ping between each two.
fn message(sender: Sender, fragments: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, fragment) in fragments.iter().enumerate() {
        let opcode = match index {
            0 => Opcode::Text,
            _ => Opcode::Continuation,
        };
        let last = index + 1 == fragments.len();
        out.extend_from_slice(&frame(sender, last, opcode, fragment));
        if !last {
            out.extend_from_slice(&frame(sender, true, Opcode::Ping, b"?"));
        }
    }
    out
}

fn push(frames: &mut Frames, pieces: &[&[u8]]) -> Result<Vec<u8>, Broken> {
    let (mut out, mut found) = (Vec::new(), Vec::new());
    for piece in pieces {
        frames.push(piece, &mut out, &mut found)?;
    }
    Ok(out)
}

/// Whole messages and control frames, in order; panics at what is no frame.
fn read(sender: Sender, mut bytes: &[u8]) -> Vec<(Opcode, String)> {
    let mut all = Vec::new();
    let mut open: Option<(Opcode, Vec<u8>)> = None;
    while !bytes.is_empty() {
        let head = Head::read(&mut Vec::new(), &mut bytes).expect("a head");
        let head = head.expect("a whole head");
        assert_eq!(head.key.is_some(), sender == Sender::Client);
        let (payload, rest) = bytes.split_at(head.length as usize);
        bytes = rest;
        let payload = head.masked(payload, 0);
        if head.opcode.is_control() {
            all.push((head.opcode, String::from_utf8(payload).expect("text")));
            continue;
        }
        assert_eq!(open.is_some(), head.opcode == Opcode::Continuation);
        let (opcode, mut text) = open.take().unwrap_or((head.opcode, Vec::new()));
        text.extend_from_slice(&payload);
        match head.last {
            true => all.push((opcode, String::from_utf8(text).expect("text"))),
            false => open = Some((opcode, text)),
        }
    }
    assert!(open.is_none());
    all
}

fn messages(sender: Sender, bytes: &[u8]) -> Vec<String> {
    let mut all = read(sender, bytes);
    all.retain(|(opcode, _)| !opcode.is_control());
    all.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_message_fragmented_at_every_two_places_is_swapped_in_both_directions() {
    for sender in [Sender::Client, Sender::Server] {
        let (given, wanted) = words(sender);
        let text = format!("x {given} y");
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let bytes = text.as_bytes();
                let cut = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let bytes = message(sender, &cut);
                let single: Vec<&[u8]> = bytes.chunks(1).collect();
                for pieces in [&[&bytes[..]][..], &single[..]] {
                    let out = push(&mut frames(sender), pieces).expect("frames");
                    assert_eq!(messages(sender, &out), [format!("x {wanted} y")]);
                    let pings = read(sender, &out).len() - 1;
                    assert_eq!(pings, 2);
                }
            }
        }
    }
}

#[test]
fn a_message_in_one_frame_stays_one_of_the_same_length() {
    for sender in [Sender::Client, Sender::Server] {
        let (given, wanted) = words(sender);
        for filler in [0, 100, 113, 114, 200, 65_523, 65_524, 70_000] {
            let filler = "y".repeat(filler);
            let bytes = message(sender, &[format!("{filler}{given}").as_bytes()]);
            let wanted = message(sender, &[format!("{filler}{wanted}").as_bytes()]);
            let pieces: Vec<&[u8]> = bytes.chunks(777).collect();
            assert!(push(&mut frames(sender), &pieces) == Ok(wanted));
        }
    }
}

#[test]
fn a_needle_does_not_reach_from_one_message_into_the_next() {
    let sender = Sender::Client;
    let mut bytes = message(sender, &[b"phantom"]);
    bytes.extend_from_slice(&message(sender, &[b"-1234"]));
    let out = push(&mut frames(sender), &[&bytes]).expect("frames");
    assert_eq!(messages(sender, &out), ["phantom", "-1234"]);
}

#[test]
fn control_frames_are_swapped_and_nothing_follows_the_close() {
    let sender = Sender::Server;
    let mut lane = frames(sender);
    let ping = frame(sender, true, Opcode::Ping, b"the-value-99");
    let out = push(&mut lane, &[&ping]).expect("ping");
    assert_eq!(
        read(sender, &out),
        [(Opcode::Ping, "phantom-1234".to_owned())]
    );
    let close = frame(sender, true, Opcode::Close, b"\x03\x69the-value-99");
    let out = push(&mut lane, &[&close]).expect("close");
    assert_eq!(read(sender, &out)[0].1, "\u{3}iphantom-1234");
    assert_eq!(push(&mut lane, &[b""]), Ok(Vec::new()));
    assert_eq!(push(&mut lane, &[&ping]), Err(Broken::Malformed));
}

#[test]
fn a_leak_is_found_across_fragments_and_escapes() {
    let sender = Sender::Client;
    let text = b"x other-phantom";
    for at in 0..=text.len() {
        let (front, back) = text.split_at(at);
        let bytes = message(sender, &[front, back]);
        for piece in [1, bytes.len()] {
            let mut lane = frames(sender);
            let (mut out, mut found) = (Vec::new(), Vec::new());
            let broken = bytes
                .chunks(piece)
                .try_for_each(|piece| lane.push(piece, &mut out, &mut found));
            assert_eq!(broken, Err(Broken::Leak(1)));
        }
    }
    let ping = frame(sender, true, Opcode::Ping, b"other-phantom");
    assert_eq!(push(&mut frames(sender), &[&ping]), Err(Broken::Leak(1)));
    let json = message(sender, &[b"{\"a\":\"other\\u002dphantom\"}"]);
    assert_eq!(push(&mut frames(sender), &[&json]), Err(Broken::Leak(1)));
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    let key = [0u8; 4];
    let masked = |head: &[u8]| [head, &key[..]].concat();
    let long = |length: u64| [&[0x82, 0xff], &length.to_be_bytes()[..]].concat();
    for bytes in [
        masked(&[0xc1, 0x80]),         // a reserved bit
        masked(&[0x83, 0x80]),         // an unknown kind
        masked(&[0x80, 0x80]),         // more of nothing
        masked(&[0x09, 0x80]),         // a ping in fragments
        masked(&[0x89, 0xfe, 0, 200]), // a long ping
        masked(&[0x81, 0xfe, 0, 5]),   // not the shortest form
        masked(&long(65_535)),         // nor this
        masked(&long(u64::MAX)),       // more than there can be
        vec![0x81, 0x00],              // not masked
        [message(Sender::Client, &[b"a"]), vec![0x00]].concat(),
    ] {
        let bytes = [bytes, vec![0x80; 16]].concat();
        let broken = push(&mut frames(Sender::Client), &[&bytes]);
        assert_eq!(broken, Err(Broken::Malformed), "{bytes:x?}");
    }
    let open = frame(Sender::Client, false, Opcode::Text, b"a");
    let bytes = [open.clone(), open].concat();
    let broken = push(&mut frames(Sender::Client), &[&bytes]);
    assert_eq!(broken, Err(Broken::Malformed), "a message within a message");
    let bytes = frame(Sender::Client, true, Opcode::Text, b"a");
    let broken = push(&mut frames(Sender::Server), &[&bytes]);
    assert_eq!(broken, Err(Broken::Malformed), "a server does not mask");
}

#[test]
fn a_long_frame_goes_through_without_being_held_and_says_when_it_is_whole() {
    let sender = Sender::Client;
    let mut lane = frames(sender);
    assert!(lane.is_between());
    let head = Head {
        last: true,
        opcode: Opcode::Binary,
        key: Some([1, 2, 3, 4]),
        length: 1 << 40,
    };
    let mut bytes = Vec::new();
    head.write(&mut bytes);
    let first = push(&mut lane, &[&bytes]).expect("head");
    assert_eq!(first, bytes);
    assert!(!lane.is_between());
    let piece = vec![b'p'; 64 * 1024];
    for _ in 0..8 {
        let out = push(&mut lane, &[&piece]).expect("payload");
        assert!(out.len() + 128 >= piece.len());
    }
}

#[test]
fn a_close_frame_of_ours_is_one() {
    for sender in [Sender::Client, Sender::Server] {
        let bytes = close_frame(sender, 1008);
        let mut rest = &bytes[..];
        let head = Head::read(&mut Vec::new(), &mut rest).expect("head");
        let head = head.expect("whole");
        assert_eq!((head.opcode, head.last), (Opcode::Close, true));
        assert_eq!(head.masked(rest, 0), 1008u16.to_be_bytes());
    }
}

proptest! {
    /// Any fragments of any messages, in any pieces: the messages are those that one pass would give.
    #[test]
    fn the_messages_do_not_depend_on_fragments_and_pieces(
        texts in proptest::collection::vec("(phantom-1234|phantom-|the-value-99|[a-z]){0,6}", 1..4),
        cuts in proptest::collection::vec(0usize..80, 0..6),
        pieces in proptest::collection::vec(1usize..40, 1..6),
        client in any::<bool>(),
    ) {
        let sender = if client { Sender::Client } else { Sender::Server };
        let (given, wanted) = words(sender);
        let mut bytes = Vec::new();
        for text in &texts {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
            places.sort_unstable();
            places.push(text.len());
            let mut from = 0;
            let mut fragments = Vec::new();
            for place in places {
                fragments.push(&text.as_bytes()[from..place]);
                from = place;
            }
            bytes.extend_from_slice(&message(sender, &fragments));
        }
        let mut rest = &bytes[..];
        let mut cut = Vec::new();
        for length in pieces.iter().cycle() {
            let (piece, after) = rest.split_at((*length).min(rest.len()));
            cut.push(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let out = push(&mut frames(sender), &cut).expect("frames");
        let wanted: Vec<String> = texts.iter().map(|text| text.replace(given, wanted)).collect();
        prop_assert_eq!(messages(sender, &out), wanted);
    }

    /// Nothing that comes can make it panic, and what is held is bounded.
    #[test]
    fn any_bytes_are_frames_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), client in any::<bool>(),
    ) {
        let sender = if client { Sender::Client } else { Sender::Server };
        let mut lane = frames(sender);
        if let Ok(out) = push(&mut lane, &[&bytes]) {
            prop_assert!(out.len() <= bytes.len() + 8 * bytes.len());
        }
        prop_assert!(lane.scanner.held() < 13 * 6);
    }
}
