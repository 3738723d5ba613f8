//! Each coding in pieces, both ways, and what is not one.

use super::*;
use crate::coding::decode::Decoded;
use bytes::Bytes;
use std::io::Write as _;

const ALL: [Coding; 5] = [
    Coding::Gzip,
    Coding::Deflate,
    Coding::BareDeflate,
    Coding::Brotli,
    Coding::Zstd,
];

/// What a client may name; a bare stream is known by its bytes.
fn named(coding: Coding) -> Coding {
    match coding {
        Coding::BareDeflate => Coding::Deflate,
        other => other,
    }
}

fn coded(coding: Coding, text: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(coding).expect("encoder");
    let mut out = encoder.push(text).expect("text").to_vec();
    out.extend_from_slice(&encoder.finish().expect("end"));
    out
}

/// Feeds pieces and gives the text; every step is bounded.
fn plain(coding: Coding, pieces: &[&[u8]]) -> Result<Vec<u8>, Corrupt> {
    let mut decoder = Decoder::new(named(coding));
    let mut text = Vec::new();
    let mut pieces = pieces.iter();
    loop {
        match decoder.step()? {
            Decoded::Text(piece) => {
                assert!(piece.len() <= 32 * 1024);
                text.extend_from_slice(&piece);
            }
            Decoded::Hungry => match pieces.next() {
                Some(piece) => decoder.push(&Bytes::copy_from_slice(piece)),
                None => decoder.close(),
            },
            Decoded::End => {
                assert!(text.is_empty() || decoder.coding() == coding);
                return Ok(text);
            }
        }
    }
}

#[test]
fn a_coded_body_comes_out_the_same_wherever_it_is_cut() {
    let text = b"{\"key\":\"phantom-1234\", \"more\": \"phantom-1234\"}".repeat(3);
    for coding in ALL {
        let whole = coded(coding, &text);
        for at in 0..=whole.len() {
            let (front, back) = whole.split_at(at);
            assert_eq!(
                plain(coding, &[front, back]),
                Ok(text.clone()),
                "{coding:?} {at}"
            );
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(plain(coding, &bytes), Ok(text.clone()), "{coding:?}");
    }
}

#[test]
fn what_other_programs_write_is_read() {
    let text = b"any text at all".repeat(100);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&text).expect("gzip");
    let mut gzip = gzip.finish().expect("gzip");
    assert_eq!(plain(Coding::Gzip, &[&gzip]), Ok(text.clone()));
    // Several members in a row are one text.
    gzip.extend_from_within(..);
    assert_eq!(plain(Coding::Gzip, &[&gzip]), Ok(text.repeat(2)));
    let zstd = zstd::encode_all(&text[..], 19).expect("zstd");
    assert_eq!(plain(Coding::Zstd, &[&zstd]), Ok(text));
}

#[test]
fn a_body_that_ends_early_or_goes_on_or_is_none_is_corrupt() {
    let text = b"phantom-1234".repeat(20);
    for coding in ALL {
        let whole = coded(coding, &text);
        for length in 2..whole.len() {
            let short = plain(coding, &[&whole[..length]]);
            assert_eq!(short, Err(Corrupt), "{coding:?} {length}");
        }
        let (junk, later): (&[u8], &[u8]) = (b"\xff\xfe\xfdjunk", b"phantom-1234");
        if let Ok(got) = plain(coding, &[&whole, junk, later]) {
            panic!("{coding:?} {}", String::from_utf8_lossy(&got));
        }
        assert_eq!(
            plain(coding, &[b"\xff\xff\xff\xffnothing of it"]),
            Err(Corrupt)
        );
        assert_eq!(plain(coding, &[]), Ok(Vec::new()), "no body at all");
    }
}

#[test]
fn what_was_flushed_can_be_read_before_the_end() {
    for coding in ALL {
        let mut encoder = Encoder::new(coding).expect("encoder");
        let mut out = encoder.push(b"first half").expect("text").to_vec();
        out.extend_from_slice(&encoder.flush().expect("flush"));
        let mut decoder = Decoder::new(named(coding));
        decoder.push(&Bytes::from(out));
        let mut text = Vec::new();
        while let Decoded::Text(piece) = decoder.step().expect("text") {
            text.extend_from_slice(&piece);
        }
        assert_eq!(String::from_utf8_lossy(&text), "first half", "{coding:?}");
        assert!(encoder.flush().expect("flush").is_empty(), "nothing waits");
    }
}

#[test]
fn a_bomb_comes_out_in_small_pieces_and_goes_in_small() {
    static PIECE: [u8; 64 * 1024] = [0; 64 * 1024];
    const PIECES: usize = 1024;
    for coding in ALL {
        let mut encoder = Encoder::new(coding).expect("encoder");
        let mut bomb = Vec::new();
        for _ in 0..PIECES {
            bomb.extend_from_slice(&encoder.push(&PIECE).expect("zeros"));
        }
        bomb.extend_from_slice(&encoder.finish().expect("end"));
        assert!(bomb.len() < 1024 * 1024, "{coding:?} {}", bomb.len());
        let mut decoder = Decoder::new(named(coding));
        decoder.push(&Bytes::from(bomb));
        let mut length = 0;
        while let Decoded::Text(piece) = decoder.step().expect("zeros") {
            assert!(piece.len() <= 32 * 1024);
            length += piece.len();
        }
        assert_eq!(length, PIECES * PIECE.len());
    }
}

#[test]
fn a_window_larger_than_content_codings_may_have_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("encoder");
    encoder.window_log(25).expect("window");
    encoder.write_all(&[7; 1000]).expect("text");
    encoder.flush().expect("flush");
    let bytes = encoder.finish().expect("end");
    assert_eq!(plain(Coding::Zstd, &[&bytes]), Err(Corrupt));
}

#[test]
fn one_known_coding_is_understood_and_nothing_else() {
    let of = |list: &[(&'static str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().expect("header"));
        }
        coding_of(&headers)
    };
    let name = "content-encoding";
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(of(&[(name, "identity")]), Ok(None));
    assert_eq!(of(&[(name, " GZip")]), Ok(Some(Coding::Gzip)));
    assert_eq!(of(&[(name, "x-gzip, identity")]), Ok(Some(Coding::Gzip)));
    assert_eq!(of(&[(name, "br")]), Ok(Some(Coding::Brotli)));
    assert_eq!(of(&[(name, "zstd")]), Ok(Some(Coding::Zstd)));
    assert_eq!(of(&[(name, "deflate")]), Ok(Some(Coding::Deflate)));
    for value in ["gzip, br", "compress", "aes128gcm", "gzip;q=1", "\u{e9}"] {
        assert_eq!(of(&[(name, value)]), Err(UnknownCoding), "{value}");
    }
    assert_eq!(of(&[(name, "gzip"), (name, "gzip")]), Err(UnknownCoding));
    let transfer = "transfer-encoding";
    assert_eq!(of(&[(transfer, "chunked")]), Ok(None));
    assert_eq!(of(&[(transfer, "gzip, chunked")]), Err(UnknownCoding));
}
