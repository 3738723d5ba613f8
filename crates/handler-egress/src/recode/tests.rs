//! The property over all of it: any coding, any spelling, any cuts, both ways.

use super::*;
use crate::body::Rewritten;
use crate::form::Form;
use crate::scan::{Needles, Scanner};
use crate::settings::{Rules, tests::settings};
use crate::target::Target;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use proptest::prelude::*;
use std::sync::Arc;
use tokio::sync::Semaphore;

const PHANTOM: &str = "ab/PHANTOM-12";
const VALUE: &str = "ab/secrets-99";
const CODINGS: [Coding; 5] = [
    Coding::Gzip,
    Coding::Deflate,
    Coding::BareDeflate,
    Coding::Brotli,
    Coding::Zstd,
];

fn scanner(response: bool) -> Scanner {
    let secrets = [("path", PHANTOM, VALUE, "a.com:443")];
    let rules = Arc::new(Rules::new(settings(&secrets), 1).expect("settings").0);
    let target = Target::parse("a.com:443", None).expect("target");
    let needles = match response {
        true => Needles::for_response(rules, &target),
        false => Needles::for_request(rules, &target, false),
    };
    Scanner::new(needles.in_form(Form::Json))
}

fn coded(coding: Coding, text: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(coding).expect("encoder");
    let mut out = encoder.push(text).expect("text").to_vec();
    out.extend_from_slice(&encoder.finish().expect("end"));
    out
}

fn plain(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new(coding);
    decoder.push(&Bytes::copy_from_slice(bytes));
    decoder.close();
    let mut out = Vec::new();
    while let Decoded::Text(text) = decoder.step().expect("coded") {
        out.extend_from_slice(&text);
    }
    out
}

/// Each character as `how` says: as it is, escaped for JSON, percent-encoded.
fn spelled(text: &str, how: &[u8]) -> String {
    text.bytes()
        .zip(how.iter().cycle())
        .map(|(byte, how)| match how {
            1 => format!("\\u00{byte:02x}"),
            2 => format!("%{byte:02X}"),
            3 if byte == b'/' => "\\/".to_owned(),
            _ => char::from(byte).to_string(),
        })
        .collect()
}

/// What comes out of a body that comes in these pieces, as plain text.
async fn through(coding: Option<Coding>, response: bool, bytes: &[u8], cuts: &[usize]) -> String {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(bytes.len());
    let mut from = 0;
    let frames: Vec<_> = cuts
        .into_iter()
        .map(|cut| {
            let piece = Bytes::copy_from_slice(&bytes[from..cut]);
            from = cut;
            Ok::<_, hyper::Error>(Frame::data(piece))
        })
        .collect();
    let inner = StreamBody::new(futures::stream::iter(frames));
    let mut body = Rewritten::new(inner, scanner(response), None);
    if let Some(coding) = coding {
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned();
        // A bare stream is told by its bytes.
        let named = match coding {
            Coding::BareDeflate => Coding::Deflate,
            other => other,
        };
        body.decode(named, !response, room.expect("room"));
    }
    let out = body.collect().await.expect("body").to_bytes();
    let text = match coding {
        Some(coding) if !response => plain(coding, &out),
        _ => out.to_vec(),
    };
    String::from_utf8(text).expect("text")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_coding_any_spelling_and_any_cuts_give_the_same_both_ways(
        coding in proptest::option::of(0..CODINGS.len()),
        response in any::<bool>(),
        how in proptest::collection::vec(0u8..4, 1..14),
        fill in proptest::collection::vec("[ -~]{0,12}", 1..5),
        cuts in proptest::collection::vec(0usize..600, 0..8),
    ) {
        let coding = coding.map(|index| CODINGS[index]);
        let (given, wanted) = if response { (VALUE, PHANTOM) } else { (PHANTOM, VALUE) };
        let text = fill.join(&format!(" {} ", spelled(given, &how)));
        let wanted = fill.join(&format!(" {} ", spelled(wanted, &how)));
        let bytes = match coding {
            Some(coding) => coded(coding, text.as_bytes()),
            None => text.clone().into_bytes(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let out = runtime.block_on(through(coding, response, &bytes, &cuts));
        // The two cases of hexadecimal digits are one.
        prop_assert_eq!(out.to_ascii_lowercase(), wanted.to_ascii_lowercase());
    }
}
