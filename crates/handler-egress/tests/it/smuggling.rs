//! Messages that two readers could understand differently: what of each reaches the origin, byte for byte.

use crate::world::{Filter, enforce, injection, next_answer, read_head, within};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An origin that keeps the bytes of every connection and answers what it is told to.
struct Raw {
    host: String,
    filter: Filter,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Raw {
    async fn new(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = format!("host.containers.internal:{port}");
        let heard: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let kept = heard.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let at = {
                    let mut kept = kept.lock().unwrap();
                    kept.push(Vec::new());
                    kept.len() - 1
                };
                tokio::spawn(hear(stream, kept.clone(), at, answer));
            }
        });
        let filter = Filter::start(|_| {}).await;
        filter.put(enforce(&[&host]), vec![]).await;
        Self {
            host,
            filter,
            heard,
        }
    }

    /// What came, on all connections together; forgotten then.
    fn take(&self) -> String {
        let mut heard = self.heard.lock().unwrap();
        let bytes: Vec<u8> = heard.iter().flatten().copied().collect();
        heard.iter_mut().for_each(Vec::clear);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

async fn hear(mut stream: TcpStream, kept: Arc<Mutex<Vec<Vec<u8>>>>, at: usize, answer: &str) {
    let mut buf = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buf).await {
        let whole = {
            let heard = &mut kept.lock().unwrap()[at];
            heard.extend_from_slice(&buf[..read]);
            is_whole(heard)
        };
        if whole && stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Whether a request has ended, for the plain forms that the filter writes.
fn is_whole(heard: &[u8]) -> bool {
    let text = String::from_utf8_lossy(heard);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    if head.contains("transfer-encoding: chunked") || head.contains("Transfer-Encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| {
        line.to_lowercase()
            .strip_prefix("content-length: ")
            .map(str::to_owned)
    });
    body.len() >= length.map_or(0, |length| length.parse().unwrap_or(0))
}

const FINE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Sends to the proxy itself; gives the status and what reached the origin. `{}` in the text is its host.
async fn forward(raw: &Raw, text: &str) -> (u16, String) {
    let mut client = raw.filter.client().await;
    let text = text.replace("{}", &raw.host);
    client.write_all(text.as_bytes()).await.unwrap();
    let head = within("the answer", read_head(&mut client)).await;
    let status = head
        .split(' ')
        .nth(1)
        .map_or(0, |status| status.parse().unwrap());
    (status, raw.take().to_lowercase().replace(&raw.host, "{}"))
}

#[tokio::test]
async fn fields_that_can_be_read_in_two_ways_are_refused_before_a_byte_goes_out() {
    let raw = Raw::new(FINE).await;
    for (what, fields) in [
        ("two lengths", "Content-Length: 3\r\nContent-Length: 4\r\n"),
        ("a list of two lengths", "Content-Length: 3, 4\r\n"),
        ("a length with a sign", "Content-Length: +3\r\n"),
        ("a negative length", "Content-Length: -1\r\n"),
        ("a hexadecimal length", "Content-Length: 0x3\r\n"),
        (
            "a length beyond 64 bits",
            "Content-Length: 18446744073709551616\r\n",
        ),
        ("an empty length", "Content-Length: \r\n"),
        (
            "chunked, then something else",
            "Transfer-Encoding: chunked, identity\r\n",
        ),
        ("an unknown coding", "Transfer-Encoding: xchunked\r\n"),
        (
            "a coding with a tab in its name",
            "Transfer\tEncoding: chunked\r\n",
        ),
        (
            "a space before the colon",
            "Transfer-Encoding : chunked\r\n",
        ),
        ("a space before the name", " Transfer-Encoding: chunked\r\n"),
        ("a folded field", "X: 1\r\n Content-Length: 3\r\n"),
        ("a bare CR in a value", "X: 1\rContent-Length: 3\r\n"),
        (
            "a bare CR at the end of a line",
            "X: 1\r\r\nContent-Length: 3\r\n",
        ),
        ("a NUL in a value", "X: 1\0\r\n"),
        ("a NUL in a name", "X\0: 1\r\n"),
        ("a space in a name", "X Y: 1\r\n"),
        ("a field without a colon", "Content-Length\r\n"),
        ("an empty name", ": 1\r\n"),
    ] {
        let text = format!("POST http://{{}}/ HTTP/1.1\r\nHost: {{}}\r\n{fields}\r\n");
        let (status, heard) = forward(&raw, &text).await;
        assert_eq!((status, heard.as_str()), (400, ""), "{what}");
    }
}

#[tokio::test]
async fn lines_that_can_be_read_in_two_ways_are_refused_before_a_byte_goes_out() {
    let raw = Raw::new(FINE).await;
    for (what, text, wanted) in [
        ("no version", "GET http://{}/\r\n\r\n", 400),
        (
            "a version that is none",
            "GET http://{}/ HTTP/1.9\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "version 2 in words",
            "GET http://{}/ HTTP/2.0\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "two spaces",
            "GET  http://{}/ HTTP/1.1\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "a tab between",
            "GET\thttp://{}/ HTTP/1.1\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "a space in the path",
            "GET http://{}/a b HTTP/1.1\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "a NUL in the path",
            "GET http://{}/a\0 HTTP/1.1\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "a method that is no word",
            "GE(T http://{}/ HTTP/1.1\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "user information",
            "GET http://me@{}/ HTTP/1.1\r\nHost: {}\r\n\r\n",
            403,
        ),
        (
            "a host as user information",
            "GET http://{}@other.example/ HTTP/1.1\r\nHost: {}\r\n\r\n",
            403,
        ),
        (
            "a backslash in the host",
            "GET http://{}\\@other.example/ HTTP/1.1\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "another scheme",
            "GET ftp://{}/ HTTP/1.1\r\nHost: {}\r\n\r\n",
            403,
        ),
        (
            "no host in the URL",
            "GET http:/// HTTP/1.1\r\nHost: {}\r\n\r\n",
            400,
        ),
        (
            "a tunnel with a length",
            "CONNECT {} HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody",
            403,
        ),
        (
            "a chunked tunnel",
            "CONNECT {} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            403,
        ),
        ("a tunnel with a path", "CONNECT {}/x HTTP/1.1\r\n\r\n", 400),
        (
            "a tunnel to a URL",
            "CONNECT http://{}/ HTTP/1.1\r\n\r\n",
            403,
        ),
    ] {
        let (status, heard) = forward(&raw, text).await;
        assert_eq!((status, heard.as_str()), (wanted, ""), "{what}");
    }
}

#[tokio::test]
async fn what_has_one_meaning_is_written_anew_in_one_form() {
    let raw = Raw::new(FINE).await;
    let head = "post / http/1.1\r\n";
    let plain = "{head}host: {}\r\ncontent-length: 3\r\n\r\nabc";
    for (what, fields, body, wanted) in [
        ("a length", "Content-Length: 3\r\n", "abc", plain),
        (
            "the same length twice",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "abc",
            plain,
        ),
        (
            "bytes behind a length",
            "Content-Length: 3\r\nConnection: close\r\n",
            "abcGET /x",
            plain,
        ),
        (
            "a length beside chunks",
            "Content-Length: 30\r\nTransfer-Encoding: chunked\r\n",
            "3;x=\"y\"\r\nabc\r\n0\r\n\r\n",
            "{head}host: {}\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "another host in the field",
            "Host: other.example\r\nContent-Length: 0\r\n",
            "",
            "{head}host: {}\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "fields that only this hop may see",
            "Connection: x-mine, content-length, host\r\nX-Mine: 1\r\nTE: gzip\r\nUpgrade: h2c\r\n\
             HTTP2-Settings: AA\r\nKeep-Alive: 1\r\nContent-Length: 3\r\n",
            "abc",
            "{head}host: {}\r\nhttp2-settings: aa\r\ncontent-length: 3\r\n\r\nabc",
        ),
        (
            "a name with an underscore",
            "Content_Length: 9\r\nContent-Length: 3\r\n",
            "abc",
            "{head}host: {}\r\ncontent_length: 9\r\ncontent-length: 3\r\n\r\nabc",
        ),
    ] {
        let text = format!("POST http://{{}}/#part HTTP/1.1\r\nHost: {{}}\r\n{fields}\r\n{body}");
        let (status, heard) = forward(&raw, &text).await;
        assert_eq!(
            (status, heard),
            (200, wanted.replace("{head}", head)),
            "{what}"
        );
    }
    let bare = "GET http://{}/a HTTP/1.0\nX: 1\n\n";
    let (status, heard) = forward(&raw, bare).await;
    assert_eq!(
        (status, heard.as_str()),
        (200, "get /a http/1.1\r\nx: 1\r\nhost: {}\r\n\r\n")
    );
}

#[tokio::test]
async fn chunks_that_are_not_well_formed_break_the_request_off() {
    let raw = Raw::new(FINE).await;
    for body in [
        "3\nabc\n0\n\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "3;\nx\r\nabc\r\n0\r\n\r\n",
    ] {
        let text = format!(
            "POST http://{{}}/ HTTP/1.1\r\nHost: {{}}\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        );
        let (status, heard) = forward(&raw, &text).await;
        assert_ne!(status, 200, "{body:?}");
        assert!(!heard.ends_with("0\r\n\r\n"), "{body:?}: {heard:?}");
    }
}

#[tokio::test]
async fn a_second_answer_to_one_request_is_never_taken_for_that_of_the_next() {
    const TWO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let raw = Raw::new(TWO).await;
    let mut client = raw.filter.client().await;
    for _ in 0..5 {
        let request = format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", raw.host);
        client.write_all(request.as_bytes()).await.unwrap();
        let answer = next_answer(&mut client).await;
        assert!(answer.status == 502 || answer.text() == "ok", "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_that_can_be_read_in_two_ways_is_not_given_on_as_it_is() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\nokay",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: 1\rContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: 1\0\r\nContent-Length: 2\r\n\r\nok",
        "ICY 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let raw = Raw::new(answer).await;
        let request = "GET http://{}/ HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n";
        assert_eq!(forward(&raw, request).await.0, 502, "{answer:?}");
    }
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let raw = Raw::new(both).await;
    let request = format!(
        "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n",
        raw.host
    );
    let answer = raw.filter.talk(request).await;
    let head = answer.head.to_lowercase();
    assert!(
        head.contains("transfer-encoding: chunked") && !head.contains("content-length"),
        "{head}"
    );
}

#[tokio::test]
async fn the_same_holds_inside_a_tunnel_that_is_looked_into() {
    let raw = Raw::new(FINE).await;
    let injections = vec![injection(&[&raw.host])];
    raw.filter.put(enforce(&[&raw.host]), injections).await;
    for (text, wanted) in [
        (
            "POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: {}\r\nX: 1\r\n Y: 2\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        (
            "GET http://other.example/ HTTP/1.1\r\nHost: {}\r\n\r\n",
            403,
        ),
        ("GET http://me@{}/ HTTP/1.1\r\nHost: {}\r\n\r\n", 403),
        ("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", 403),
    ] {
        let mut tunnel = raw.filter.tunnel(&raw.host).await;
        let text = text.replace("{}", &raw.host);
        tunnel.write_all(text.as_bytes()).await.unwrap();
        let head = within("the answer", read_head(&mut tunnel)).await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {wanted}")),
            "{text:?}: {head}"
        );
        assert_eq!(raw.take(), "", "{text:?}");
    }
    // A preface of HTTP/2 that is not whole is a request of no version that is known.
    let mut tunnel = raw.filter.tunnel(&raw.host).await;
    let preface = b"PRI * HTTP/2.0\r\nHost: x\r\n\r\n";
    tunnel.write_all(preface).await.unwrap();
    let mut answer = Vec::new();
    let _ = within("the end", tunnel.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/1.1 2") && raw.take().is_empty());
}
