//! Tunnels to the host that is allowed whose first words are for another one.

use super::{ALIAS, Case, send_after};

/// A TLS client's first words, for a server of this name.
fn hello(name: &str) -> Vec<u8> {
    let name_length = u16::try_from(name.len()).unwrap();
    let mut server_name = Vec::new();
    server_name.extend_from_slice(&(name_length + 3).to_be_bytes());
    server_name.push(0);
    server_name.extend_from_slice(&name_length.to_be_bytes());
    server_name.extend_from_slice(name.as_bytes());
    let mut extensions = Vec::new();
    for (kind, content) in [
        (43_u16, &[2, 3, 4][..]),
        (10, &[0, 2, 0, 29]),
        (13, &[0, 2, 4, 3]),
        (0, &server_name),
    ] {
        extensions.extend_from_slice(&kind.to_be_bytes());
        extensions.extend_from_slice(&u16::try_from(content.len()).unwrap().to_be_bytes());
        extensions.extend_from_slice(content);
    }
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
    body.extend_from_slice(&u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&extensions);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &body].concat()
}

/// In records of at most so many bytes.
fn records(handshake: &[u8], most: usize) -> Vec<u8> {
    handshake
        .chunks(most)
        .flat_map(|piece| {
            let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
            [&[22, 3, 1], &length[..], piece].concat()
        })
        .collect()
}

const OTHER: &str = "escaped.example";

/// What must arrive, so that the others say something.
pub(super) fn control() -> Case {
    tunnel(
        "tunnel-control",
        "the name of the tunnel",
        &[&records(&hello(ALIAS), 4096)],
    )
}

/// All of them. What is no registered method passes: a tunnel that is not decrypted may carry anything. Requests behind
/// the first one and HTTP/2 in clear text reach the server one by one, judged each; the filter's own tests show that.
pub(super) fn cases() -> Vec<Case> {
    let whole = records(&hello(OTHER), 4096);
    let plain = |head: &str| head.replace('!', OTHER).into_bytes();
    let upper = records(&hello("ESCAPED.example"), 4096);
    vec![
        tunnel("sni", "TLS for another host", &[&whole]),
        tunnel("sni-case", "TLS for another host, mixed case", &[&upper]),
        tunnel(
            "sni-pieces",
            "the same in three writes",
            &[&whole[..3], &whole[3..60], &whole[60..]],
        ),
        tunnel(
            "sni-records",
            "the same, one byte in a record",
            &[&records(&hello(OTHER), 1)],
        ),
        tunnel(
            "sni-two-records",
            "the same in two records, the name in the second",
            &[&records(&hello(OTHER), 70)],
        ),
        tunnel(
            "host",
            "a plain request for another host",
            &[&plain("GET /escaped HTTP/1.1\r\nHost: !\r\n\r\n")],
        ),
        tunnel(
            "host-pieces",
            "the same in two writes",
            &[
                &plain("GET /escaped HTTP/1.1\r\nHo"),
                &plain("st: !\r\n\r\n"),
            ],
        ),
        tunnel(
            "host-absolute",
            "a plain request with the URL of another host",
            &[&plain("GET http://!/escaped HTTP/1.1\r\nHost: !\r\n\r\n")],
        ),
        tunnel(
            "host-bare-lf",
            "line ends without carriage return",
            &[&plain("GET /escaped HTTP/1.1\nHost: !\n\n")],
        ),
        tunnel(
            "host-twice",
            "two `Host` lines",
            &[&plain(&format!(
                "GET /escaped HTTP/1.1\r\nHost: {ALIAS}\r\nHost: !\r\n\r\n"
            ))],
        ),
    ]
}

fn tunnel(name: &str, what: &str, pieces: &[&[u8]]) -> Case {
    let head = format!("CONNECT {ALIAS}:{{R}} HTTP/1.1\r\nHost: {ALIAS}:{{R}}\r\n\r\n");
    Case::new(name, what, send_after(&head, pieces))
}
