//! WebSockets to a secret's host: looked into frame by frame. The far ends are another implementation's.

use crate::intercept::{NAME, World};
use crate::origin::{Received, switching, text};
use crate::world::{PHANTOM, VALUE, enforce, injection, read_head, within};
use futures::{SinkExt, StreamExt};
use handler_types::egress::EgressDecision;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

type Socket = WebSocketStream<TlsStream<UnixStream>>;

async fn change(world: &World, protocol: &str, headers: &str) -> (TlsStream<UnixStream>, String) {
    let mut tls = world.tls(NAME).await.unwrap();
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
         Sec-WebSocket-Key: x\r\n{headers}\r\n",
        world.host
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    let head = within("the change", read_head(&mut tls)).await;
    (tls, head)
}

async fn socket(world: &World) -> Socket {
    let (tls, head) = change(world, "websocket", "").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    WebSocketStream::from_raw_socket(tls, Role::Client, None).await
}

async fn next(socket: &mut Socket) -> Message {
    within("a message", socket.next()).await.unwrap().unwrap()
}

fn messages(world: &World) -> Vec<Received> {
    let mut all = world.origin.received();
    all.retain(|received| received.target == "message");
    all
}

#[tokio::test]
async fn a_websocket_carries_the_secret_in_its_request_and_the_rules_watch_it() {
    let world = World::new(|_| {
        let mut reply = switching("websocket");
        let headers = reply.headers_mut();
        headers.insert("x-echo", VALUE.parse().unwrap());
        reply
    })
    .await;
    let headers = format!(
        "Authorization: Bearer {PHANTOM}\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
    );
    let (mut tls, head) = change(&world, "websocket", &headers).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.to_lowercase().contains("upgrade: websocket"), "{head}");
    assert!(head.contains(PHANTOM) && !head.contains(VALUE), "{head}");
    let received = &world.origin.received()[0];
    let bearer = format!("Bearer {VALUE}");
    assert_eq!(received.headers["authorization"], bearer.as_str());
    assert!(!received.headers.contains_key("sec-websocket-extensions"));
    world.filter.put(enforce(&[]), vec![]).await;
    let read = within("the end", tls.read(&mut [0; 5])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn messages_of_every_length_are_swapped_both_ways() {
    let world = World::new(|_| switching("websocket")).await;
    let mut socket = socket(&world).await;
    for filler in [0, 94, 95, 1000, 65_504, 65_505, 300_000] {
        let body = format!("{}{PHANTOM}", "y".repeat(filler));
        for message in [Message::text(body.clone()), Message::binary(body.clone())] {
            socket.send(message.clone()).await.unwrap();
            assert!(next(&mut socket).await == message, "masked back");
            let got = messages(&world).pop().unwrap().body;
            assert!(String::from_utf8(got).unwrap() == body.replace(PHANTOM, VALUE));
        }
    }
    let json = format!("{{\"key\":\"{}\"}}", PHANTOM.replace('P', "\\u0050"));
    socket.send(Message::text(json.clone())).await.unwrap();
    assert_eq!(next(&mut socket).await, Message::text(json));
    let got = messages(&world).pop().unwrap().body;
    let read: serde_json::Value = serde_json::from_slice(&got).unwrap();
    assert_eq!(read["key"], VALUE);
    let events = world
        .filter
        .events_until(|event| event.decision == EgressDecision::Injected)
        .await;
    let injected = events.last().unwrap();
    assert_eq!(injected.secret.as_deref(), Some("providers/test/apiKey"));
}

#[tokio::test]
async fn a_phantom_cut_at_every_byte_into_fragments_is_swapped() {
    let world = World::new(|_| switching("websocket")).await;
    let mut socket = socket(&world).await;
    for at in 0..=PHANTOM.len() {
        let (front, back) = PHANTOM.split_at(at);
        for (piece, opcode, last) in [
            (front, Data::Text, false),
            ("", Data::Continue, false),
            (back, Data::Continue, true),
        ] {
            let frame = Frame::message(piece.to_owned(), OpCode::Data(opcode), last);
            socket.send(Message::Frame(frame)).await.unwrap();
        }
        socket.send(Message::Ping(PHANTOM.into())).await.unwrap();
        assert_eq!(next(&mut socket).await, Message::text(PHANTOM));
        assert_eq!(next(&mut socket).await, Message::Pong(PHANTOM.into()));
    }
    let all = messages(&world);
    assert_eq!(all.len(), 2 * (PHANTOM.len() + 1));
    assert!(all.iter().all(|message| message.body == VALUE.as_bytes()));
}

async fn put_another(world: &World) {
    let mut other = injection(&["elsewhere.example:443"]);
    other.name = "other/secret".to_owned();
    other.phantom = "other-PHANTOM-123".to_owned();
    other.value = "other-SECRETS-123".to_owned();
    let literal = format!("127.0.0.1:{}", world.origin.port);
    let policy = enforce(&[&world.host, &literal]);
    let injections = vec![injection(&[&world.host]), other];
    world.filter.put(policy, injections).await;
}

fn code(message: Message) -> CloseCode {
    match message {
        Message::Close(Some(close)) => close.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_leak_closes_both_ends_and_is_reported() {
    let world = World::new(|_| switching("websocket")).await;
    put_another(&world).await;
    let mut socket = socket(&world).await;
    socket.send(Message::text("fine")).await.unwrap();
    assert_eq!(next(&mut socket).await, Message::text("fine"));
    for (piece, opcode, last) in [
        ("a other-PHAN", Data::Text, false),
        ("TOM-123", Data::Continue, true),
    ] {
        let frame = Frame::message(piece, OpCode::Data(opcode), last);
        socket.send(Message::Frame(frame)).await.unwrap();
    }
    assert_eq!(code(next(&mut socket).await), CloseCode::Policy);
    let event = world.filter.event(EgressDecision::Leak).await;
    assert_eq!(event.secret.as_deref(), Some("other/secret"));
    assert_eq!(event.reason.as_deref(), Some("websocket"));
    // The change, "fine", and the end.
    let received = world.origin.received_count(3).await;
    assert_eq!(received[2].body, 1008u16.to_be_bytes());
}

#[tokio::test]
async fn what_is_no_frame_ends_the_connection() {
    let world = World::new(|_| switching("websocket")).await;
    let (mut tls, head) = change(&world, "websocket", "").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    tls.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut end = Vec::new();
    let _ = within("the end", tls.read_to_end(&mut end)).await;
    assert_eq!(end, [0x88, 2, 0x03, 0xea], "1002");
    let event = world.filter.event(EgressDecision::Denied).await;
    assert_eq!(event.reason.as_deref(), Some("malformed"));
}

#[tokio::test]
async fn a_secret_that_is_withdrawn_ends_the_sockets_that_could_carry_it() {
    let world = World::new(|_| switching("websocket")).await;
    let mut socket = socket(&world).await;
    socket.send(Message::text("fine")).await.unwrap();
    next(&mut socket).await;
    put_another(&world).await;
    let end = within("the end", socket.next()).await;
    assert!(!matches!(end, Some(Ok(Message::Text(_)))), "{end:?}");
}

#[tokio::test]
async fn where_a_secret_is_given_only_a_websocket_can_be_changed_to() {
    let world = World::new(|received| match received.headers.get("upgrade") {
        Some(protocol) => switching(protocol.to_str().unwrap()),
        None => text("stayed"),
    })
    .await;
    let (_, head) = change(&world, "spdy/3.1", "").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // A server that changes to something else, or agrees on an extension nobody offered.
    for other in [
        || switching("spdy/3.1"),
        || {
            let mut reply = switching("websocket");
            let deflate = "permessage-deflate".parse().unwrap();
            reply
                .headers_mut()
                .insert("sec-websocket-extensions", deflate);
            reply
        },
    ] {
        let world = World::new(move |_| other()).await;
        let (_, head) = change(&world, "websocket", "").await;
        assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    }
}
