//! Stand-ins and values in any bytes, cut anywhere; content codings.

use super::{cut, own, rules};
use crate::coding::{Coding, Corrupt, Decoded, Decoder, Encoder};
use crate::form::Form;
use crate::scan::{Leak, Needles, Scanner};
use bytes::Bytes;

/// Text that is looked at of a bomb, bytes.
const ENOUGH: usize = 1 << 20;

/// What is swapped does not depend on the cuts; a length that is to stay stays; no more is held than is bounded.
pub fn scanner(data: &[u8]) {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    let needles = match how & 3 {
        0 => Needles::for_request(rules(), &own(), false),
        1 => Needles::for_request(rules(), &own(), true),
        _ => Needles::for_response(rules(), &own()),
    };
    let form = [Form::Loose, Form::Json, Form::Percent][usize::from(how >> 2) % 3];
    let needles = needles.in_form(form);
    let (bytes, pieces) = cut(data);
    let whole = swapped(&needles, [bytes].into_iter());
    assert_eq!(swapped(&needles, pieces), whole);
    if let Ok((out, found)) = whole {
        assert!(!needles.keeps_length() || out.len() == bytes.len());
        assert!(
            !found.is_empty() || out == bytes,
            "changed, and nothing was found"
        );
    }
}

fn swapped<'a>(
    needles: &Needles,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, Vec<usize>), Leak> {
    let mut scanner = Scanner::new(needles.clone());
    let (mut out, mut found) = (Vec::new(), Vec::new());
    for piece in pieces {
        out.extend_from_slice(&scanner.push(Bytes::copy_from_slice(piece), &mut found)?);
        // The longest needle has 12 characters, the longest escape 6.
        assert!(scanner.held() < 12 * 6);
    }
    out.extend_from_slice(&scanner.finish(&mut found)?);
    Ok((out, found))
}

/// A coding is undone to the same text however it is cut, in pieces of bounded length; the text coded again is itself.
pub fn codings(data: &[u8]) {
    const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];
    let Some((which, data)) = data.split_first() else {
        return;
    };
    let coding = ALL[usize::from(which % 4)];
    let (bytes, pieces) = cut(data);
    let whole = undone(coding, [bytes].into_iter());
    let in_pieces = undone(coding, pieces);
    let text = match (whole, in_pieces) {
        (Ok(whole), Ok(in_pieces)) => {
            let length = whole.len().min(in_pieces.len());
            assert_eq!(whole[..length], in_pieces[..length]);
            assert!(whole.len() == in_pieces.len() || length >= ENOUGH);
            whole
        }
        (whole, in_pieces) => return assert_eq!(whole.is_ok(), in_pieces.is_ok(), "{coding:?}"),
    };
    let mut encoder = Encoder::new(coding).expect("encoder");
    let mut again = encoder.push(&text).expect("text").to_vec();
    again.extend_from_slice(&encoder.finish().expect("end"));
    let again = undone(coding, [&*again].into_iter()).expect("what was coded here");
    assert_eq!(again[..text.len().min(again.len())], text[..]);
}

fn undone<'a>(coding: Coding, pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, Corrupt> {
    let mut decoder = Decoder::new(coding);
    let mut out = Vec::new();
    for piece in pieces {
        decoder.push(&Bytes::copy_from_slice(piece));
        if drained(&mut decoder, &mut out)? {
            return Ok(out);
        }
    }
    decoder.close();
    drained(&mut decoder, &mut out)?;
    Ok(out)
}

/// Takes out what is there; whether that is enough.
fn drained(decoder: &mut Decoder, out: &mut Vec<u8>) -> Result<bool, Corrupt> {
    while let Decoded::Text(text) = decoder.step()? {
        assert!(text.len() <= 32 * 1024, "a piece of {} bytes", text.len());
        out.extend_from_slice(&text);
        if out.len() >= ENOUGH {
            return Ok(true);
        }
    }
    Ok(false)
}
