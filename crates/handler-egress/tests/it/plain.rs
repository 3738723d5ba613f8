//! Plain HTTP inside tunnels of which nothing is known before: every request is judged, not only the first.

use crate::http2::{empty, send, whole};
use crate::origin::{Origin, Received, switching, text};
use crate::world::{
    Answer, Filter, PHANTOM, VALUE, enforce, injection, next_answer, read_head, within,
};
use futures::{SinkExt, StreamExt};
use handler_types::egress::EgressDecision;
use http::{Request, Version};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

/// A filter whose sandbox may reach the origin, and whose secret is another host's.
struct World {
    origin: Origin,
    host: String,
    filter: Filter,
}

impl World {
    async fn new(origin: Origin) -> Self {
        let host = format!("host.containers.internal:{}", origin.port);
        let filter = Filter::start(|_| {}).await;
        let secret = injection(&["secret.example:443"]);
        filter.put(enforce(&[&host]), vec![secret]).await;
        Self {
            origin,
            host,
            filter,
        }
    }

    fn targets(&self) -> Vec<String> {
        let received = self.origin.received();
        received.into_iter().map(|one| one.target).collect()
    }
}

async fn ask(tunnel: &mut UnixStream, request: &str) -> Answer {
    tunnel.write_all(request.as_bytes()).await.unwrap();
    next_answer(tunnel).await
}

/// All that comes until the end.
async fn all(tunnel: &mut UnixStream, bytes: &str) -> Vec<u8> {
    tunnel.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = within("the end", tunnel.read_to_end(&mut answer)).await;
    answer
}

#[tokio::test]
async fn every_request_of_a_tunnel_must_name_its_host() {
    let world = World::new(Origin::plain(|_| text("ok")).await).await;
    let host = &world.host;
    let mut tunnel = world.filter.tunnel(host).await;
    let good = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    assert_eq!(ask(&mut tunnel, &good("/1")).await.text(), "ok");
    for request in [
        "GET /2 HTTP/1.1\r\nHost: other.example\r\n\r\n".to_owned(),
        "GET /3 HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /4 HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n"),
        format!("GET http://other.example/5 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
    ] {
        let answer = ask(&mut tunnel, &request).await;
        assert_eq!(answer.status, 403, "{request}");
        assert_eq!(answer.refusal().1, "host", "{request}");
    }
    let event = world.filter.event(EgressDecision::Mismatch).await;
    assert_eq!(event.reason.as_deref(), Some("host"));
    // Also when they come in one piece with one that is good, and the tunnel lives on.
    let both = good("/6") + "GET /7 HTTP/1.1\r\nHost: other.example\r\n\r\n" + &good("/8");
    assert_eq!(ask(&mut tunnel, &both).await.text(), "ok");
    assert_eq!(next_answer(&mut tunnel).await.status, 403);
    assert_eq!(next_answer(&mut tunnel).await.text(), "ok");
    assert_eq!(world.targets(), ["/1", "/6", "/8"]);
    assert_eq!(world.origin.connections(), 1);
}

#[tokio::test]
async fn a_second_request_that_can_be_read_in_two_ways_ends_the_tunnel() {
    for second in [
        "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "Content-Length : 1\r\n\r\nx",
        "x: 1\r\n folded: 2\r\n\r\n",
    ] {
        let world = World::new(Origin::plain(|_| text("ok")).await).await;
        let host = &world.host;
        let mut tunnel = world.filter.tunnel(host).await;
        let good = format!("GET /1 HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(ask(&mut tunnel, &good).await.text(), "ok");
        let bad = format!("POST /2 HTTP/1.1\r\nHost: {host}\r\n{second}{good}");
        let answer = all(&mut tunnel, &bad).await;
        assert_eq!(Answer::parse(&answer).status, 400, "{second:?}");
        assert_eq!(world.targets(), ["/1"], "{second:?}");
    }
}

#[tokio::test]
async fn a_phantom_for_another_host_is_a_leak_in_any_request() {
    let world = World::new(Origin::plain(|_| text("ok")).await).await;
    let host = &world.host;
    let mut tunnel = world.filter.tunnel(host).await;
    let good = format!("GET /good HTTP/1.1\r\nHost: {host}\r\n\r\n");
    assert_eq!(ask(&mut tunnel, &good).await.text(), "ok");
    let leak = format!("GET /leak HTTP/1.1\r\nHost: {host}\r\nx: {PHANTOM}\r\n\r\n");
    let answer = ask(&mut tunnel, &leak).await;
    assert_eq!(answer.refusal().0, "handler_egress_leak");
    let event = world.filter.event(EgressDecision::Leak).await;
    assert_eq!(&event.host, host);
    assert_eq!(world.targets(), ["/good"]);
}

#[tokio::test]
async fn http_2_without_tls_is_served_stream_by_stream() {
    let reply = |received: &Received| text(format!("{:?}", received.version));
    let world = World::new(Origin::plain(reply).await).await;
    let tunnel = world.filter.tunnel(&world.host).await;
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tunnel))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = |authority: &str, path: &str| {
        Request::get(format!("http://{authority}{path}"))
            .body(empty())
            .unwrap()
    };
    let answer = send(&mut client, request(&world.host, "/1")).await;
    assert_eq!(answer.version(), Version::HTTP_2);
    assert_eq!(whole(answer).await.0, "HTTP/2.0");
    let answer = send(&mut client, request("other.example", "/2")).await;
    assert_eq!(answer.status(), 421);
    let event = world.filter.event(EgressDecision::Mismatch).await;
    assert_eq!(event.reason.as_deref(), Some("host"));
    let leak = format!("/3?{PHANTOM}");
    let answer = send(&mut client, request(&world.host, &leak)).await;
    assert_eq!(answer.status(), 403);
    world.filter.event(EgressDecision::Leak).await;
    let answer = send(&mut client, request(&world.host, "/4")).await;
    assert_eq!(answer.status(), 200);
    let origin = world.origin.received();
    assert!(origin.iter().all(|one| one.version == Version::HTTP_2));
    let paths: Vec<_> = origin
        .iter()
        .map(|one| one.target.rsplit_once('/').unwrap().1)
        .collect();
    assert_eq!(paths, ["1", "4"]);
}

#[tokio::test]
async fn http_2_without_tls_to_a_secret_s_host_is_swapped_and_masked() {
    let origin = Origin::plain(|_| text(VALUE)).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter
        .put(enforce(&[&host]), vec![injection(&[&host])])
        .await;
    let tunnel = filter.tunnel(&host).await;
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tunnel))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{host}/"))
        .header("x-api-key", PHANTOM)
        .body(empty())
        .unwrap();
    let answer = send(&mut client, request).await;
    assert_eq!(whole(answer).await.0, PHANTOM);
    let received = origin.received();
    assert_eq!(received[0].headers["x-api-key"], VALUE);
    assert_eq!(received[0].version, Version::HTTP_2);
}

#[tokio::test]
async fn a_websocket_in_a_tunnel_is_looked_into() {
    let world = World::new(Origin::plain(|_| switching("websocket")).await).await;
    let host = &world.host;
    let mut tunnel = world.filter.tunnel(host).await;
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: x\r\n\r\n"
    );
    tunnel.write_all(request.as_bytes()).await.unwrap();
    let head = within("the change", read_head(&mut tunnel)).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut socket = WebSocketStream::from_raw_socket(tunnel, Role::Client, None).await;
    socket.send(Message::text("hello")).await.unwrap();
    let echoed = within("a message", socket.next()).await.unwrap().unwrap();
    assert_eq!(echoed, Message::text("hello"));
    socket.send(Message::text(PHANTOM)).await.unwrap();
    let closed = within("a message", socket.next()).await.unwrap().unwrap();
    let Message::Close(Some(close)) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(u16::from(close.code), 1008);
    let event = world.filter.event(EgressDecision::Leak).await;
    assert_eq!(event.reason.as_deref(), Some("websocket"));
    let all = world.origin.received_count(3).await;
    let told: Vec<Vec<u8>> = all.into_iter().map(|one| one.body).collect();
    let code = 1008u16.to_be_bytes().to_vec();
    assert_eq!(told, [vec![], b"hello".to_vec(), code]);
}

#[tokio::test]
async fn a_range_is_not_asked_of_a_host_whose_answers_are_masked() {
    let origin = Origin::plain(|_| text(VALUE)).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    let ask = async |secrets: Vec<_>| {
        filter.put(enforce(&[&host]), secrets).await;
        let mut tunnel = filter.tunnel(&host).await;
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nRange: bytes=0-9\r\nIf-Range: \"x\"\r\n\
             Connection: close\r\n\r\n"
        );
        let tunneled = Answer::parse(&all(&mut tunnel, &request).await).text();
        let request = request.replace("GET /", &format!("GET http://{host}/"));
        (tunneled, filter.talk(request).await.text())
    };
    let masked = (PHANTOM.to_owned(), PHANTOM.to_owned());
    assert_eq!(ask(vec![injection(&[&host])]).await, masked);
    let other = injection(&["secret.example:443"]);
    let value = (VALUE.to_owned(), VALUE.to_owned());
    assert_eq!(ask(vec![other]).await, value);
    let asked: Vec<(bool, bool)> = origin
        .received()
        .iter()
        .map(|one| {
            let has = |name| one.headers.contains_key(name);
            (has("range"), has("if-range"))
        })
        .collect();
    let (none, both) = ((false, false), (true, true));
    assert_eq!(asked, [none, none, both, both]);
}

/// An empty frame of settings: how a server of HTTP/2 begins.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn a_server_of_http_2_may_speak_first() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = format!("host.containers.internal:{port}");
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    // For a client that speaks something else its bytes wait until that is known.
    let mut tunnel = filter.tunnel(&host).await;
    let mut server = within("a connection", listener.accept()).await.unwrap().0;
    server.write_all(SETTINGS).await.unwrap();
    tunnel.write_all(b"something else").await.unwrap();
    let mut seen = [0; 9];
    within("the bytes", tunnel.read_exact(&mut seen))
        .await
        .unwrap();
    assert_eq!(seen, SETTINGS);
    // For one that speaks HTTP/2 it is asked by the filter, over the same connection.
    let tunnel = filter.tunnel(&host).await;
    let server = within("a connection", listener.accept()).await.unwrap().0;
    let service = hyper::service::service_fn(|_| async {
        Ok::<_, std::convert::Infallible>(text("from a server that spoke first"))
    });
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(server), service);
    let mut serving = Box::pin(serving);
    // Its settings are on the wire once it waits.
    assert!(futures::poll!(&mut serving).is_pending());
    tokio::spawn(serving);
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tunnel))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{host}/"))
        .body(empty())
        .unwrap();
    let answer = send(&mut client, request).await;
    assert_eq!(whole(answer).await.0, "from a server that spoke first");
}
