//! Frames of HTTP/2: heads, bodies and trailers cut into frames, and frames into pieces, at every byte.

use super::{cut, raw};
use crate::http2::{self, BOTH, empty, request, send, whole};
use crate::http2_floods::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, SETTINGS, begin, field, frame, next,
};
use crate::intercept::World;
use crate::origin::{Received, Reply, trailed};
use crate::world::{PHANTOM, VALUE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client;
use tokio_rustls::server::TlsStream;

const ACK: u8 = 1;
const WINDOW_UPDATE: u8 = 8;

/// A head, a body and trailers, each cut in two at the same byte or at its end.
fn message(stream: u32, head: &[u8], body: &[u8], trailers: &[u8], at: usize) -> Vec<u8> {
    let two = |bytes: &[u8]| {
        let (front, back) = bytes.split_at(at.min(bytes.len()));
        (front.to_vec(), back.to_vec())
    };
    let mut all = Vec::new();
    for (kind, last, flags, bytes) in [
        (HEADERS, CONTINUATION, [0, END_HEADERS], head),
        (DATA, DATA, [0, 0], body),
        (HEADERS, CONTINUATION, [END_STREAM, END_HEADERS], trailers),
    ] {
        let (front, back) = two(bytes);
        for (kind, flags, piece) in [(kind, flags[0], front), (last, flags[1], back)] {
            // Many bodies' frames with nothing in them are a flood.
            if kind != DATA || !piece.is_empty() {
                all.extend(frame(kind, flags, stream, &piece));
            }
        }
    }
    all
}

fn head_of(world: &World) -> Vec<u8> {
    let path = format!("/{PHANTOM}?key={PHANTOM}");
    [
        field(":method", "POST"),
        field(":scheme", "https"),
        field(":authority", &world.host),
        field(":path", &path),
        field("x-key", PHANTOM),
        field("te", "trailers"),
    ]
    .concat()
}

fn said(_: &Received) -> Reply {
    trailed(VALUE, "x-sum", VALUE)
}

/// The body of the answer on a stream; frames of the connection are left unanswered.
async fn answered(tls: &mut client::TlsStream<UnixStream>, wanted: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let mut heads = 0;
    while heads < 2 {
        let (kind, stream, payload) = next(tls).await.expect("a frame");
        match kind {
            DATA if stream == wanted => body.extend(payload),
            HEADERS if stream == wanted => heads += 1,
            SETTINGS | PING | DATA | HEADERS | WINDOW_UPDATE => {}
            other => panic!("frame {other} on {stream}: {payload:?}"),
        }
    }
    body
}

#[tokio::test]
async fn a_request_in_frames_cut_at_every_byte_has_the_value_in_every_part() {
    let world = World::speaking(BOTH, said).await;
    let mut tls = begin(&world).await;
    let head = head_of(&world);
    let (body, trailers) = (format!("key={PHANTOM}"), field("x-sum", PHANTOM));
    let one = message(1, &head, body.as_bytes(), &trailers, 5).len();
    let mut stream = 1;
    // Into frames at every byte, and then one and the same into pieces of the socket.
    for (into_frames, last) in [(true, head.len()), (false, one)] {
        for at in 0..=last {
            let frames = if into_frames { at } else { 5 };
            let bytes = message(stream, &head, body.as_bytes(), &trailers, frames);
            cut(&mut tls, &bytes, if into_frames { 0 } else { at }).await;
            let answer = answered(&mut tls, stream).await;
            assert_eq!(answer, PHANTOM.as_bytes(), "{into_frames} {at}");
            stream += 2;
        }
    }
    let received = world.origin.received();
    assert_eq!(received.len(), head.len() + one + 2);
    for one in received {
        let path = format!("/{VALUE}?key={VALUE}");
        assert!(one.target.ends_with(&path), "{one:?}");
        assert_eq!(one.headers["x-key"], VALUE);
        assert_eq!(one.body, format!("key={VALUE}").as_bytes());
        assert_eq!(one.trailers["x-sum"], VALUE);
        assert!(one.whole && !format!("{one:?}").contains(PHANTOM));
    }
}

fn answer(stream: u32, frames: usize) -> Vec<u8> {
    // 0x88: `:status` 200, out of the static table.
    let head = [vec![0x88], field("x-key", VALUE), field("x-other", "1")].concat();
    let body = format!("data: {VALUE}\n\n");
    message(
        stream,
        &head,
        body.as_bytes(),
        &field("x-sum", VALUE),
        frames,
    )
}

/// Answers each request cut at one byte more than the one before: first into frames, then into pieces.
async fn serve(mut tls: TlsStream<TcpStream>) {
    let mut preface = [0; 24];
    tls.read_exact(&mut preface).await.unwrap();
    tls.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let mut count = 0;
    let mut head = [0; 9];
    while tls.read_exact(&mut head).await.is_ok() {
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        tls.read_exact(&mut payload).await.unwrap();
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], head[4]) {
            (SETTINGS, 0) => cut(&mut tls, &frame(SETTINGS, ACK, 0, &[]), 0).await,
            (PING, 0) => cut(&mut tls, &frame(PING, ACK, 0, &payload), 0).await,
            (HEADERS, _) => {
                let frames = if count < FRAMES { count } else { 7 };
                let bytes = answer(stream, frames);
                let at = count.saturating_sub(FRAMES).min(bytes.len());
                cut(&mut tls, &bytes, at).await;
                count += 1;
            }
            _ => {}
        }
    }
}

/// More than the longest part has bytes.
const FRAMES: usize = 70;

#[tokio::test]
async fn an_answer_in_frames_cut_at_every_byte_has_the_phantom_in_every_part() {
    let world = raw(&["h2"], serve).await;
    let mut client = http2::client(&world).await;
    for count in 0..FRAMES + answer(1, 7).len() {
        let request = request("GET", &world.host, "/").body(empty()).unwrap();
        let response = send(&mut client, request).await;
        assert_eq!(response.status(), 200, "{count}");
        assert_eq!(response.headers()["x-key"], PHANTOM, "{count}");
        let (text, trailers) = whole(response).await;
        assert_eq!(text, format!("data: {PHANTOM}\n\n"), "{count}");
        assert_eq!(trailers["x-sum"], PHANTOM, "{count}");
    }
}
