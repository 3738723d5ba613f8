//! Phantoms and values in every framing and every content coding, cut at every byte, both ways.

use crate::coding::{ALL, decode, encode, header};
use crate::intercept::{NAME, World};
use crate::origin::{Received, Reply, streamed, text};
use crate::world::{Answer, PHANTOM, VALUE, enforce, injection, next_whole, within};
use bytes::Bytes;
use handler_types::egress::EgressDecision;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// A body in two pieces, as a client sends it.
enum Framing<'a> {
    Length,
    Chunked,
    Coded(&'a str),
}

impl Framing<'_> {
    fn all() -> impl Iterator<Item = Self> {
        [Framing::Length, Framing::Chunked]
            .into_iter()
            .chain(ALL.map(Framing::Coded))
    }

    fn on_the_wire(&self, body: &str) -> Vec<u8> {
        match self {
            Framing::Coded(coding) => encode(coding, body.as_bytes()),
            _ => body.as_bytes().to_vec(),
        }
    }

    fn understood(&self, bytes: &[u8]) -> String {
        let plain = match self {
            Framing::Coded(coding) => decode(coding, bytes),
            _ => bytes.to_vec(),
        };
        String::from_utf8(plain).unwrap()
    }

    fn headers(&self, length: usize) -> String {
        match self {
            Framing::Length => format!("Content-Length: {length}\r\n"),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Framing::Coded(coding) => format!(
                "Content-Length: {length}\r\nContent-Encoding: {}\r\n",
                header(coding)
            ),
        }
    }

    fn piece(&self, piece: &[u8]) -> Vec<u8> {
        match self {
            Framing::Chunked if piece.is_empty() => Vec::new(),
            Framing::Chunked => {
                let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
                chunk.extend_from_slice(piece);
                chunk.extend_from_slice(b"\r\n");
                chunk
            }
            _ => piece.to_vec(),
        }
    }

    fn end(&self) -> &'static [u8] {
        match self {
            Framing::Chunked => b"0\r\n\r\n",
            _ => b"",
        }
    }
}

#[tokio::test]
async fn a_phantom_in_any_framing_cut_at_every_byte_arrives_as_the_value() {
    let world = World::new(|_| text("fine")).await;
    let body = format!("{{\"key\":\"{PHANTOM}\"}}");
    for framing in Framing::all() {
        let bytes = framing.on_the_wire(&body);
        let before = world.origin.received().len();
        let mut tls = world.tls(NAME).await.unwrap();
        for at in 0..=bytes.len() {
            let head = format!(
                "POST /{at} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{}\r\n",
                world.host,
                framing.headers(bytes.len())
            );
            tls.write_all(head.as_bytes()).await.unwrap();
            for piece in [&bytes[..at], &bytes[at..]] {
                tls.write_all(&framing.piece(piece)).await.unwrap();
                tls.flush().await.unwrap();
            }
            tls.write_all(framing.end()).await.unwrap();
            assert_eq!(next_whole(&mut tls).await.text(), "fine");
        }
        let received = world.origin.received();
        assert_eq!(received.len() - before, bytes.len() + 1);
        for one in &received[before..] {
            assert!(one.whole);
            assert_eq!(framing.understood(&one.body), body.replace(PHANTOM, VALUE));
            let promised = one.headers.get("content-length").is_some();
            assert_eq!(promised, matches!(framing, Framing::Length));
        }
    }
}

/// Answers in the framing the request asks for, in two pieces.
fn answer(received: &Received) -> Reply {
    let ask = |name: &str| received.headers[name].to_str().unwrap().to_owned();
    let body = format!("data: {VALUE}\n\ndata: {VALUE}\n\n");
    let coding = ask("x-coding");
    let bytes = match coding.as_str() {
        "" => body.clone().into_bytes(),
        coding => encode(coding, body.as_bytes()),
    };
    let at: usize = ask("x-cut").parse().unwrap();
    let at = at.min(bytes.len());
    let (send, receive) = mpsc::channel(4);
    for piece in [&bytes[..at], &bytes[at..]] {
        if !piece.is_empty() {
            send.try_send(Bytes::copy_from_slice(piece)).unwrap();
        }
    }
    let mut reply = streamed(receive);
    let headers = reply.headers_mut();
    if !coding.is_empty() {
        let coding = header(&coding).parse().unwrap();
        headers.insert("content-encoding", coding);
    }
    if received.target == "/length" {
        headers.insert("content-length", bytes.len().into());
    }
    reply
}

#[tokio::test]
async fn a_value_in_any_framing_cut_at_every_byte_comes_back_as_the_phantom() {
    let world = World::new(answer).await;
    let wanted = format!("data: {PHANTOM}\n\ndata: {PHANTOM}\n\n");
    for coding in [""].into_iter().chain(ALL) {
        for target in ["/length", "/chunked"] {
            let mut tls = world.tls(NAME).await.unwrap();
            // Longer than any of the coded bodies.
            for at in 0..=wanted.len() + 10 {
                let head = format!(
                    "GET {target} HTTP/1.1\r\nHost: {}\r\nX-Coding: {coding}\r\nX-Cut: {at}\r\n\r\n",
                    world.host
                );
                tls.write_all(head.as_bytes()).await.unwrap();
                let answer = next_whole(&mut tls).await;
                assert_eq!(answer.text(), wanted, "{coding} {target} {at}");
                let head = answer.head.to_lowercase();
                assert!(!head.contains("content-encoding"), "{head}");
                let promised = head.contains("content-length");
                assert_eq!(promised, coding.is_empty() && target == "/length");
            }
        }
    }
}

#[tokio::test]
async fn messages_coded_one_by_one_are_not_asked_for_and_not_passed_on() {
    let world = World::new(|received| {
        let mut reply = text("fine");
        if let Some(coding) = received.headers.get("x-coding") {
            reply.headers_mut().insert("grpc-encoding", coding.clone());
        }
        reply
    })
    .await;
    let accept = "gRPC-Accept-Encoding: gzip\r\n";
    let answer = world.ask("POST /", accept, "").await;
    assert_eq!(answer.status, 200);
    let received = &world.origin.received()[0];
    assert!(!received.headers.contains_key("grpc-accept-encoding"));
    for (coding, status) in [("identity", 200), ("gzip", 502)] {
        let headers = format!("{accept}X-Coding: {coding}\r\n");
        assert_eq!(world.ask("POST /", &headers, "").await.status, status);
    }
}

async fn ask_coded(world: &World, coding: &str, body: &[u8]) -> Answer {
    let mut tls = world.tls(NAME).await.unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        world.host,
        body.len()
    );
    tls.write_all(head.as_bytes()).await.unwrap();
    let _ = tls.write_all(body).await;
    next_whole(&mut tls).await
}

#[tokio::test]
async fn a_request_in_a_coding_nobody_can_read_is_refused_and_reported() {
    let world = World::new(|_| text("fine")).await;
    let gzip = encode("gzip", PHANTOM.as_bytes());
    for (coding, body) in [
        ("compress", PHANTOM.as_bytes()),
        ("gzip, br", PHANTOM.as_bytes()),
        ("gzip", PHANTOM.as_bytes()),
        ("gzip", &gzip[..gzip.len() - 1]),
    ] {
        let answer = ask_coded(&world, coding, body).await;
        assert_eq!(answer.status, 415, "{coding}");
        let (error, reason) = answer.refusal();
        assert_eq!(
            (error.as_str(), reason.as_str()),
            ("handler_egress_denied", "coding")
        );
    }
    let event = world.filter.event(EgressDecision::Denied).await;
    assert_eq!(event.reason.as_deref(), Some("coding"));
    assert!(
        world
            .origin
            .received()
            .iter()
            .all(|received| !received.whole)
    );
    let empty = ask_coded(&world, "compress", b"").await;
    assert_eq!(empty.status, 200, "there is nothing to read");
}

#[tokio::test]
async fn a_leak_inside_a_coding_is_refused_and_reported() {
    let world = World::new(|_| text("fine")).await;
    let mut other = injection(&["elsewhere.example:443"]);
    other.name = "other/secret".to_owned();
    other.phantom = "other-PHANTOM-123".to_owned();
    other.value = "other-SECRETS-123".to_owned();
    let literal = format!("127.0.0.1:{}", world.origin.port);
    let policy = enforce(&[&world.host, &literal]);
    let injections = vec![injection(&[&world.host]), other];
    world.filter.put(policy, injections).await;
    for coding in ALL {
        let body = encode(coding, format!("{PHANTOM} other-PHANTOM-123").as_bytes());
        let answer = ask_coded(&world, header(coding), &body).await;
        assert_eq!(answer.status, 403, "{coding}");
        assert_eq!(answer.refusal().0, "handler_egress_leak");
    }
    let event = world.filter.event(EgressDecision::Leak).await;
    assert_eq!(event.secret.as_deref(), Some("other/secret"));
    assert!(
        world
            .origin
            .received()
            .iter()
            .all(|received| !received.whole)
    );
}

#[tokio::test]
async fn an_answer_in_a_coding_that_cannot_be_undone_is_not_passed_on() {
    let world = World::new(|received| {
        let coding = received.headers["x-coding"].clone();
        let mut reply = text(VALUE);
        reply.headers_mut().insert("content-encoding", coding);
        reply
    })
    .await;
    for coding in ["compress", "br, gzip"] {
        let headers = format!("X-Coding: {coding}\r\n");
        let answer = world.ask("GET /", &headers, "").await;
        assert_eq!(answer.status, 502);
        let (error, reason) = answer.refusal();
        assert_eq!(
            (error.as_str(), reason.as_str()),
            ("handler_egress_unreachable", "coding")
        );
        let head = world.ask("HEAD /", &headers, "").await;
        assert_eq!(head.status, 200, "no body, nothing to read");
    }
    let event = world.filter.event(EgressDecision::Denied).await;
    assert_eq!(event.reason.as_deref(), Some("coding"));
    // Not what it says it is: broken off, and nothing of it passed on.
    let mut tls = world.tls(NAME).await.unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nX-Coding: gzip\r\n\r\n",
        world.host
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let _ = within("the end", tls.read_to_end(&mut all)).await;
    let all = String::from_utf8_lossy(&all);
    assert!(!all.contains(VALUE) && !all.ends_with("0\r\n\r\n"), "{all}");
}

#[tokio::test]
async fn coded_bodies_beyond_the_memory_for_them_are_refused_and_end_with_their_clients() {
    let world = World::new(|_| text("fine")).await;
    let body = encode("br", PHANTOM.as_bytes());
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Encoding: br\r\nContent-Length: {}\r\n\r\n",
        world.host,
        body.len()
    );
    // Each has sent its head, and takes its time with the body: 20 of 256 MiB.
    let mut slow = Vec::new();
    for _ in 0..256 / 20 {
        let mut tls = world.tls(NAME).await.unwrap();
        tls.write_all(head.as_bytes()).await.unwrap();
        slow.push(tls);
    }
    within("all are under way", async {
        while world.origin.connections() < slow.len() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let refused = ask_coded(&world, "br", &body).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.refusal().0, "handler_egress_busy");
    let mut one = slow.pop().unwrap();
    one.write_all(&body).await.unwrap();
    assert_eq!(next_whole(&mut one).await.status, 200);
    assert_eq!(ask_coded(&world, "br", &body).await.status, 200);
}

#[tokio::test]
async fn a_bomb_is_passed_on_in_its_coding_without_being_held() {
    let world = World::new(|received| text(received.body.len().to_string())).await;
    let zeros = vec![b'0'; 32 * 1024 * 1024];
    for coding in ["gzip", "zstd"] {
        let bomb = encode(coding, &zeros);
        assert!(bomb.len() < 512 * 1024);
        assert_eq!(ask_coded(&world, coding, &bomb).await.status, 200);
        let received = world.origin.received();
        let passed = &received.last().unwrap().body;
        assert_eq!(decode(coding, passed).len(), zeros.len());
    }
}
