//! Frames of WebSockets: messages cut into fragments, and frames into pieces, at every byte.

use super::{cut, raw};
use crate::intercept::{NAME, World};
use crate::origin::switching;
use crate::world::{PHANTOM, VALUE, read_head, within};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const TEXT: u8 = 1;
const CONTINUE: u8 = 0;
const LAST: u8 = 0x80;

/// A frame; masked, as those of clients are, when there is a mask.
fn frame(opcode: u8, text: &str, mask: Option<[u8; 4]>) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 126);
    let mut bytes = vec![opcode, length | if mask.is_some() { 0x80 } else { 0 }];
    bytes.extend(mask.iter().flatten());
    let mask = mask.unwrap_or_default();
    bytes.extend(
        text.bytes()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    bytes
}

/// One message as two frames.
fn fragments(text: &str, at: usize, mask: Option<[u8; 4]>) -> Vec<u8> {
    let (front, back) = text.split_at(at);
    let first = frame(TEXT, front, mask);
    [first, frame(CONTINUE | LAST, back, mask)].concat()
}

async fn changed(world: &World) -> client::TlsStream<UnixStream> {
    let mut tls = world.tls(NAME).await.unwrap();
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: x\r\n\r\n",
        world.host
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    let head = within("the change", read_head(&mut tls)).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    tls
}

#[tokio::test]
async fn a_message_from_inside_cut_at_every_byte_has_the_value() {
    let world = World::new(|_| switching("websocket")).await;
    let mut tls = changed(&world).await;
    let mask = Some([0x5a, 0xa5, 0x3c, 0xc3]);
    let one = frame(TEXT | LAST, PHANTOM, mask);
    let mut messages: Vec<(Vec<u8>, usize)> = (0..=one.len()).map(|at| (one.clone(), at)).collect();
    messages.extend((0..=PHANTOM.len()).map(|at| (fragments(PHANTOM, at, mask), at)));
    for (bytes, at) in &messages {
        cut(&mut tls, bytes, *at).await;
        let mut back = vec![0; 2 + PHANTOM.len()];
        within("the echo", tls.read_exact(&mut back)).await.unwrap();
        assert_eq!(back, frame(TEXT | LAST, PHANTOM, None), "{at}");
    }
    let mut received = world.origin.received();
    received.retain(|one| one.target == "message");
    assert_eq!(received.len(), messages.len());
    assert!(received.iter().all(|one| one.body == VALUE.as_bytes()));
}

/// Says the value again and again, cut at every byte into fragments and into pieces of the socket.
async fn serve(mut tls: TlsStream<TcpStream>) {
    read_head(&mut tls).await;
    let head = b"HTTP/1.1 101 Changed\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    tls.write_all(head).await.unwrap();
    let one = frame(TEXT | LAST, VALUE, None);
    for at in 0..=one.len() {
        cut(&mut tls, &one, at).await;
    }
    for at in 0..=VALUE.len() {
        cut(&mut tls, &fragments(VALUE, at, None), at).await;
    }
    // Goes on until the other end has had enough.
    let _ = tls.read(&mut [0; 64]).await;
}

#[tokio::test]
async fn a_message_from_outside_cut_at_every_byte_has_the_phantom() {
    let world = raw(&["http/1.1"], serve).await;
    let tls = changed(&world).await;
    let mut socket = WebSocketStream::from_raw_socket(tls, Role::Client, None).await;
    for count in 0..(2 + VALUE.len() + 1) + (VALUE.len() + 1) {
        let message = within("a message", socket.next()).await.unwrap().unwrap();
        assert_eq!(message, Message::text(PHANTOM), "{count}");
    }
}
