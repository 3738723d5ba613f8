//! Frames of HTTP/2 made by hand: what a client may not do.

use crate::intercept::{NAME, World};
use crate::origin::{Origin, certificate_for, streamed, text};
use crate::world::within;
use bytes::Bytes;
use handler_types::egress::{EgressDecision, EgressEvent};
use http::Response;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A field written out, not indexed.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        let length = text.len();
        if length < 127 {
            bytes.push(u8::try_from(length).unwrap());
        } else {
            bytes.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

fn get(world: &World) -> Vec<u8> {
    [
        field(":method", "GET"),
        field(":scheme", "https"),
        field(":authority", &world.host),
        field(":path", "/"),
    ]
    .concat()
}

async fn world() -> (World, TlsStream<UnixStream>) {
    let world = World::speaking(&["h2"], |_| text("fine")).await;
    let tls = begin(&world).await;
    (world, tls)
}

pub(crate) async fn begin(world: &World) -> TlsStream<UnixStream> {
    let mut tls = world.tls_for(&["h2"]).await;
    tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    tls.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    tls
}

/// The next frame: kind, stream, payload; nothing at the end.
pub(crate) async fn next(tls: &mut TlsStream<UnixStream>) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    within("a frame", tls.read_exact(&mut head)).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    within("its payload", tls.read_exact(&mut payload))
        .await
        .ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((head[3], stream, payload))
}

async fn until(tls: &mut TlsStream<UnixStream>, kind: u8) -> Option<(u32, Vec<u8>)> {
    loop {
        let (got, stream, payload) = next(tls).await?;
        if got == kind {
            return Some((stream, payload));
        }
    }
}

#[tokio::test]
async fn the_limits_are_told_to_the_client_and_extended_connect_is_not_offered() {
    let (_world, mut tls) = world().await;
    let (_, settings) = until(&mut tls, SETTINGS).await.unwrap();
    let value = |wanted: u16| {
        settings.chunks(6).find_map(|setting| {
            (setting[..2] == wanted.to_be_bytes())
                .then(|| u32::from_be_bytes(setting[2..].try_into().unwrap()))
        })
    };
    assert_eq!(value(3), Some(100), "streams at a time");
    assert_eq!(value(4), Some(256 * 1024), "bytes under way on a stream");
    assert_eq!(value(6), Some(64 * 1024), "bytes of a head");
    assert_ne!(value(8), Some(1), "extended CONNECT");
}

#[tokio::test]
async fn extended_connect_breaks_its_stream_off() {
    let (world, mut tls) = world().await;
    let connect = [
        field(":method", "CONNECT"),
        field(":protocol", "websocket"),
        field(":scheme", "https"),
        field(":authority", &world.host),
        field(":path", "/"),
    ]
    .concat();
    let head = frame(HEADERS, END_HEADERS, 1, &connect);
    tls.write_all(&head).await.unwrap();
    let ended = until(&mut tls, RST_STREAM).await;
    assert!(matches!(ended, Some((1, _))), "{ended:?}");
    assert!(world.origin.received().is_empty());
}

#[tokio::test]
async fn a_flood_of_requests_that_are_broken_off_at_once_ends_the_connection() {
    flood(false).await;
}

#[tokio::test]
async fn a_flood_of_requests_that_are_broken_off_when_they_have_begun_ends_the_connection() {
    flood(true).await;
}

/// Asks and breaks off again and again until the connection ends, and expects that to be reported.
async fn flood(wait: bool) {
    // An origin that never answers: nothing of the flood counts as use.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (acceptor, roots) = certificate_for(NAME, &["h2"]);
    let origin = Origin::elsewhere(listener.local_addr().unwrap().port());
    let world = tokio::spawn(World::around(origin, Some(roots)));
    let silent = async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.unwrap();
        let service = hyper::service::service_fn(|_: http::Request<Incoming>| {
            std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
        });
        let _ = http2::Builder::new(TokioExecutor::new())
            .max_pending_accept_reset_streams(100_000)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    };
    tokio::spawn(silent);
    let world = world.await.unwrap();
    let mut tls = begin(&world).await;
    let headers = get(&world);
    let flooding = async {
        for stream in (1..).step_by(2) {
            let begin = frame(HEADERS, END_HEADERS | END_STREAM, stream, &headers);
            let reset = frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
            let ping = frame(PING, 0, 0, &[7; 8]);
            let bytes = match wait {
                true => [begin, ping].concat(),
                false => [begin, reset.clone()].concat(),
            };
            if tls.write_all(&bytes).await.is_err() || tls.flush().await.is_err() {
                return;
            }
            // What answers a ping has seen the request in front of it.
            if wait
                && (until(&mut tls, PING).await.is_none() || tls.write_all(&reset).await.is_err())
            {
                return;
            }
        }
    };
    within("the end", flooding).await;
    let event = world.filter.event(EgressDecision::Denied).await;
    assert_eq!(event.reason.as_deref(), Some("malformed"));
    assert_eq!(event.host, world.host);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_and_one_without_end_ends_the_connection() {
    let (world, mut tls) = world().await;
    let mut long = get(&world);
    for _ in 0..10 {
        long.extend(field("x-long", &"y".repeat(8000)));
    }
    let (front, rest) = long.split_at(16_000);
    tls.write_all(&frame(HEADERS, END_STREAM, 1, front))
        .await
        .unwrap();
    let parts: Vec<&[u8]> = rest.chunks(16_000).collect();
    for (at, part) in parts.iter().enumerate() {
        let flags = if at + 1 == parts.len() {
            END_HEADERS
        } else {
            0
        };
        tls.write_all(&frame(CONTINUATION, flags, 1, part))
            .await
            .unwrap();
    }
    let ended = within("an answer", async {
        loop {
            match next(&mut tls).await {
                Some((HEADERS, 1, _)) | Some((RST_STREAM, 1, _)) | Some((GOAWAY, ..)) | None => {
                    return;
                }
                Some(_) => {}
            }
        }
    });
    ended.await;
    assert!(world.origin.received().is_empty());

    let mut tls = begin(&world).await;
    tls.write_all(&frame(HEADERS, END_STREAM, 1, &get(&world)))
        .await
        .unwrap();
    let endless = frame(CONTINUATION, 0, 1, &field("x", &"y".repeat(16_000)));
    let writing =
        async { while tls.write_all(&endless).await.is_ok() && tls.flush().await.is_ok() {} };
    within("the end", writing).await;
    assert!(world.origin.received().is_empty());
}

#[tokio::test]
async fn fields_that_http_1_would_read_as_more_than_one_never_reach_the_origin() {
    let (world, mut tls) = world().await;
    for (at, (name, value)) in [
        ("x", "1\r\nhost: other"),
        ("x", "1\0"),
        ("x y", "1"),
        ("x\r\ny", "1"),
        ("X-Upper", "1"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("", "1"),
        (":authority", "other"),
        (":unknown", "1"),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = u32::try_from(2 * at + 1).unwrap();
        let block = [get(&world), field(name, value)].concat();
        let head = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
        if tls.write_all(&head).await.is_err() {
            break;
        }
        let answer = within("an answer", async {
            loop {
                match next(&mut tls).await {
                    Some((kind @ (RST_STREAM | GOAWAY | HEADERS | DATA), ..)) => return Some(kind),
                    Some(_) => {}
                    None => return None,
                }
            }
        });
        assert!(
            matches!(answer.await, Some(RST_STREAM | GOAWAY) | None),
            "{name:?}: {value:?}"
        );
    }
    assert!(world.origin.received().is_empty());
}

#[tokio::test]
async fn a_body_longer_than_its_promise_is_broken_off() {
    let (world, mut tls) = world().await;
    let block = [get(&world), field("content-length", "2")].concat();
    tls.write_all(&frame(HEADERS, END_HEADERS, 1, &block))
        .await
        .unwrap();
    tls.write_all(&frame(DATA, END_STREAM, 1, b"more"))
        .await
        .unwrap();
    let ended = within("the end", async {
        loop {
            match next(&mut tls).await {
                Some((RST_STREAM | GOAWAY | HEADERS, ..)) | None => return,
                Some(_) => {}
            }
        }
    });
    ended.await;
    assert!(
        world
            .origin
            .received()
            .iter()
            .all(|received| !received.whole)
    );
}

#[tokio::test]
async fn a_client_that_vanishes_is_no_denial() {
    let (piece, stream) = mpsc::channel(1);
    let stream = std::sync::Mutex::new(Some(stream));
    let world = World::speaking(&["h2"], move |_| {
        streamed(stream.lock().unwrap().take().unwrap())
    })
    .await;
    let mut tls = begin(&world).await;
    let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, &get(&world));
    tls.write_all(&request).await.unwrap();
    until(&mut tls, HEADERS).await.unwrap();
    // No word of goodbye.
    drop(tls);
    within("the origin is let go", piece.closed()).await;
    let ended = |event: &EgressEvent| event.decision == EgressDecision::Ended;
    for event in world.filter.events_until(ended).await {
        assert_ne!(event.decision, EgressDecision::Denied, "{event:?}");
    }
}
