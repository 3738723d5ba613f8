//! First bytes whole, in any pieces, and of protocols that only look like HTTP or TLS.

use super::*;
use crate::hello::tests::{greeting, in_records};
use proptest::prelude::*;

fn open(bytes: &[u8], step: usize) -> Option<Opened> {
    let mut opening = Opening::default();
    bytes.chunks(step).find_map(|part| opening.push(part))
}

#[test]
fn bytes_are_kept_back_only_while_they_begin_like_tls_or_a_request() {
    for text in [
        "",
        "GET",
        "GET ",
        "GET h",
        "PUT htt",
        "GET /a b",
        "\x16",
        "\x16\x03\x01",
    ] {
        assert_eq!(open(text.as_bytes(), 1), None, "{text:?}");
    }
    for text in [
        "early bytes",
        "JDWP-Handshake",
        "VERSION-CONTROLLED",
        "get / HTTP/1.1\r\n",
        "EHLO me\r\n",
        "SSH-2.0-x\r\n",
        "\r\n",
        " /",
        "GET /old\r\n",
        "SET /key 1\r\n",
        "GET ftp://a/ HTTP/1.1\r\n",
        "\x16\x02",
        "\0\0\0\x08\x04\u{d2}\x16/",
    ] {
        for step in [1, 100] {
            assert_eq!(
                open(text.as_bytes(), step),
                Some(Opened::Opaque),
                "{text:?}"
            );
        }
    }
    let longest = methods().map(<[u8]>::len).max();
    assert_eq!(longest, Some(LONGEST_METHOD));
}

#[test]
fn every_host_that_a_request_names_is_seen() {
    for (text, wanted) in [
        ("GET / HTTP/1.1\r\nHost: a.com\r\n\r\n", &["a.com"][..]),
        ("PATCH /x HTTP/1.1\nhOST:a.com:1\n\n", &["a.com:1"]),
        ("OPTIONS * HTTP/1.1\r\nHost: \r\n\r\n", &[""]),
        ("GET / HTTP/1.0\r\n\r\n", &[]),
        (
            "GET http://u@b.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
            &["a.com", "u@b.com"],
        ),
    ] {
        let wanted: Vec<String> = wanted.iter().map(|host| (*host).to_owned()).collect();
        for step in [1, 5, 500] {
            let opened = Some(Opened::Http(wanted.clone()));
            assert_eq!(open(text.as_bytes(), step), opened, "{text:?}");
        }
    }
    let text = "CONNECT b.com:1 HTTP/1.1\r\nHost: a.com\r\n\r\nbody";
    let wanted = ["a.com", "b.com:1"].map(str::to_owned).to_vec();
    for step in [1, 5, 500] {
        let opened = Some(Opened::Connect(wanted.clone()));
        assert_eq!(open(text.as_bytes(), step), opened);
    }
}

#[test]
fn the_preface_of_http_2_is_known_once_it_is_whole() {
    let text = std::str::from_utf8(PREFACE).expect("text");
    for step in [1, 5, 500] {
        for shorter in 1..text.len() {
            assert_eq!(open(&PREFACE[..shorter], step), None, "{shorter}");
        }
        let more = [PREFACE, b"\0\0\0\x04\0\0\0\0\0"].concat();
        assert_eq!(open(&more, step), Some(Opened::Http2));
        for other in [
            "PRI * HTTP/2.0\r\nHost: a.com\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\n\n\n",
            "PRI * HTTP/2.0\n\nSM\n\n",
        ] {
            let opened = open(other.as_bytes(), step);
            assert_eq!(opened, Some(Opened::Malformed), "{other:?}");
        }
    }
}

#[test]
fn a_head_that_could_be_read_in_two_ways_is_malformed() {
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com\r\nHost: a.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a.com\r\n\r\n",
        "GET / HTTP/1.1\r\nx: 1\r\n Host: b.com\r\nHost: a.com\r\n\r\n",
        "GET / HTTP/1.1\r\nx: 1\rHost: b.com\r\nHost: a.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com\0\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "GET / http/1.1\r\nHost: a.com\r\n\r\n",
        "GET / HTTP/3.0\r\nHost: a.com\r\n\r\n",
        "GET http:// HTTP/1.1\r\nHost: a.com\r\n\r\n",
    ] {
        for step in [1, 500] {
            assert_eq!(
                open(text.as_bytes(), step),
                Some(Opened::Malformed),
                "{text:?}"
            );
        }
    }
    for endless in ["GET /".to_owned(), "GET / HTTP/1.1\r\nx: ".to_owned()] {
        let text = endless + &"y".repeat(LONGEST_HEAD);
        assert_eq!(open(text.as_bytes(), 999), Some(Opened::Malformed));
    }
}

#[test]
fn what_was_begun_and_not_ended_is_not_given_on() {
    for (text, wanted) in [
        ("GET / HTTP/1.1\r\nHost: b.com\r\n", Opened::Malformed),
        ("\x16\x03\x01", Opened::Malformed),
        ("PRI * HTTP/2.0\r\n\r\nSM", Opened::Malformed),
        ("GET /", Opened::Opaque),
        ("\x16", Opened::Opaque),
        ("", Opened::Opaque),
    ] {
        let mut opening = Opening::default();
        assert_eq!(opening.push(text.as_bytes()), None);
        assert_eq!(opening.end(), wanted, "{text:?}");
    }
}

proptest! {
    #[test]
    fn a_greeting_in_any_pieces_gives_its_name(size in 1usize..600, step in 1usize..600) {
        let bytes = in_records(&greeting("a.example.test", &[], true), size);
        let wanted = Some("a.example.test".to_owned());
        prop_assert_eq!(open(&bytes, step), Some(Opened::Tls(wanted)));
    }

    #[test]
    fn a_request_made_of_any_lines_is_read_alike_in_any_pieces(
        lines in proptest::collection::vec("[ -~\\t\\x00\\r]{0,20}", 1..6),
        end in "\r?\n\r?\n",
        step in 1usize..40,
    ) {
        let text = format!("GET / HTTP/1.1\r\n{}{end}", lines.join("\r\n"));
        prop_assert_eq!(open(text.as_bytes(), step), open(text.as_bytes(), usize::MAX));
    }
}
