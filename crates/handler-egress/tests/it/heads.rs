//! Heads made of parts that are apt to be misread, put together at random: whatever comes out at the
//! origin is one clear request for the host that was judged.

use crate::world::{Filter, enforce};
use handler_egress::Limits;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Lines of a head; `{}` is the origin.
const FIELDS: &[&str] = &[
    "Host: {}",
    "Host: other.example",
    "host:\t{}",
    "Host : {}",
    "Content-Length: 3",
    "Content-Length: 4",
    "Content-Length: 0",
    "Content-Length: 3, 3",
    "Content-Length: +3",
    "Content_Length: 9",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding:\u{b}chunked",
    "transfer-encoding: CHUNKED",
    "Connection: close",
    "Connection: keep-alive, content-length, transfer-encoding, host",
    "Proxy-Connection: keep-alive",
    "Proxy-Authorization: Basic eA==",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "TE: trailers, gzip",
    "Expect: 100-continue",
    "Trailer: host",
    " folded",
    "\tHost: other.example",
    "X: \rHost: other.example",
    "X: \0",
    "X-\u{e4}: 1",
    "X: \u{e4}",
    ": empty",
    "no colon",
    "",
];

const LINES: &[&str] = &[
    "GET http://{}/a?b HTTP/1.1",
    "POST http://{}/ HTTP/1.1",
    "POST http://{} HTTP/1.1",
    "GET HTTP://{}/%00/../x HTTP/1.1",
    "OPTIONS http://{}/* HTTP/1.0",
    "GET http://other.example/ HTTP/1.1",
    "GET http://{}@other.example/ HTTP/1.1",
    "GET / HTTP/1.1",
    "\r\nGET http://{}/ HTTP/1.1",
    "GET http://{}/ HTTP/1.1 ",
    "GET http://{}/",
];

const BODIES: &[&str] = &[
    "",
    "abc",
    "3\r\nabc\r\n0\r\n\r\n",
    "0\r\n\r\nGET http://{}/second HTTP/1.1\r\nHost: x\r\n\r\n",
];

fn request() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        8 => proptest::sample::select(FIELDS).prop_map(str::to_owned),
        1 => "[ -~]{0,12}",
    ];
    let end = proptest::sample::select(&["\r\n", "\r\n", "\r\n", "\n"][..]);
    (
        proptest::sample::select(LINES),
        proptest::collection::vec(field, 0..5),
        end,
        proptest::sample::select(BODIES),
    )
        .prop_map(|(line, fields, end, body)| {
            let fields: Vec<String> = fields.into_iter().map(|field| field + end).collect();
            format!("{line}{end}{}{end}{body}", fields.concat())
        })
}

/// Sends it and gives what the origin got up to the end of a head; nothing if the filter answered itself.
async fn heard(filter: &Filter, listener: &TcpListener, text: &str) -> Option<Vec<u8>> {
    let mut client = filter.client().await;
    client.write_all(text.as_bytes()).await.unwrap();
    let origin = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return None,
            }
        }
        Some(head)
    };
    let mut first = [0; 12];
    tokio::select! {
        head = origin => head,
        read = client.read_exact(&mut first) => {
            if read.is_ok() {
                let status = String::from_utf8_lossy(&first).into_owned();
                assert!(!status.ends_with(" 200"), "{text:?}");
            }
            None
        }
    }
}

/// One request line, one host, one framing, fields that nobody reads as two.
fn assert_clear(head: &[u8], host: &str) {
    let text: String = head.iter().copied().map(char::from).collect();
    let lines: Vec<&str> = text
        .strip_suffix("\r\n\r\n")
        .unwrap()
        .split("\r\n")
        .collect();
    let parts: Vec<&str> = lines[0].split(' ').collect();
    assert!(
        matches!(parts[..], [_, path, "HTTP/1.1"] if path.starts_with('/')),
        "{text:?}"
    );
    let mut fields = Vec::new();
    for line in &lines[1..] {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line:?}"));
        // No space is written before a value that is empty.
        let value = value.strip_prefix(' ').unwrap_or(value);
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        assert!(!name.is_empty() && name.bytes().all(token), "{line:?}");
        assert!(!value.contains(['\r', '\n', '\0']), "{line:?}");
        fields.push((name.to_lowercase(), value));
    }
    let of = |name: &str| -> Vec<&str> {
        let named = fields.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| *value).collect()
    };
    assert_eq!(of("host"), [host], "{text:?}");
    let (lengths, codings) = (of("content-length"), of("transfer-encoding"));
    assert!(lengths.len() + codings.len() <= 1, "{text:?}");
    assert!(
        lengths
            .iter()
            .all(|length| length.bytes().all(|b| b.is_ascii_digit()))
    );
    assert!(
        codings.iter().all(|coding| *coding == "chunked"),
        "{text:?}"
    );
    for name in [
        "proxy-connection",
        "proxy-authorization",
        "keep-alive",
        "expect",
    ] {
        assert!(of(name).is_empty(), "{text:?}");
    }
}

#[test]
fn whatever_is_sent_one_clear_request_for_the_judged_host_comes_out() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (listener, host, filter) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!(
            "host.containers.internal:{}",
            listener.local_addr().unwrap().port()
        );
        let filter = Filter::start(|config| {
            config.limits = Limits {
                head: Duration::from_millis(50),
                ..Limits::default()
            };
        })
        .await;
        filter.put(enforce(&[&host]), vec![]).await;
        (listener, host, filter)
    });
    let came_through = std::cell::Cell::new(0);
    let config = Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&request(), |text| {
        let text = text.replace("{}", &host);
        if let Some(head) = runtime.block_on(heard(&filter, &listener, &text)) {
            assert_clear(&head, &host);
            came_through.set(came_through.get() + 1);
        }
        Ok(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    let count = came_through.get();
    assert!(count > 20, "only {count} came through");
}
