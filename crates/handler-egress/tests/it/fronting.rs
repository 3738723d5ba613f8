//! Blind tunnels whose first words name another host than the one they were asked for.

use crate::origin::{Origin, Reply, certificate, text};
use crate::world::{Answer, Filter, enforce, filtered, next_answer, read_head, within};
use handler_types::egress::EgressDecision;
use handler_types::network::Enforcement;
use rustls_pki_types::ServerName;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

const NAME: &str = "api.example.test";

/// A listener known as `api.example.test` and by its address; the filter allows both.
struct World {
    listener: TcpListener,
    host: String,
    literal: String,
    filter: Filter,
}

impl World {
    async fn new(enforcement: Enforcement) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (host, literal) = (format!("{NAME}:{port}"), format!("127.0.0.1:{port}"));
        let filter = named_filter().await;
        let entries = [host.clone(), literal.clone()];
        filter.put(filtered(&entries, enforcement), vec![]).await;
        Self {
            listener,
            host,
            literal,
            filter,
        }
    }

    async fn tunnel(&self, target: &str) -> (UnixStream, TcpStream) {
        let client = self.filter.tunnel(target).await;
        (client, self.listener.accept().await.unwrap().0)
    }
}

async fn named_filter() -> Filter {
    Filter::start(|config| {
        let inside = vec!["127.0.0.1".parse().unwrap()];
        config.hosts.insert(NAME.to_owned(), inside);
    })
    .await
}

fn greeting(name: &str, server_name: bool) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.enable_sni = server_name;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut bytes = Vec::new();
    rustls::ClientConnection::new(Arc::new(config), name)
        .unwrap()
        .write_tls(&mut bytes)
        .unwrap();
    bytes
}

/// Sends, and gives what each end gets until its end.
async fn refused(world: &World, target: &str, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut client, mut server) = world.tunnel(target).await;
    client.write_all(bytes).await.unwrap();
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let _ = within("the client's end", client.read_to_end(&mut here)).await;
    let _ = within("the server's end", server.read_to_end(&mut there)).await;
    (here, there)
}

async fn passes(world: &World, target: &str, bytes: &[u8]) {
    let (mut client, mut server) = world.tunnel(target).await;
    client.write_all(bytes).await.unwrap();
    let mut there = vec![0; bytes.len()];
    within("the bytes", server.read_exact(&mut there))
        .await
        .unwrap();
    assert_eq!(there, bytes);
    server.write_all(b"answer").await.unwrap();
    let mut here = [0; 6];
    within("the answer", client.read_exact(&mut here))
        .await
        .unwrap();
    assert_eq!(&here, b"answer");
}

#[tokio::test]
async fn a_server_name_of_somebody_else_never_reaches_the_server() {
    let world = World::new(Enforcement::Enforce).await;
    for (target, name) in [
        (&world.host, "other.example.test"),
        (&world.literal, "other.example.test"),
    ] {
        let (here, there) = refused(&world, target, &greeting(name, true)).await;
        assert_eq!(here, [0x15, 3, 3, 0, 2, 2, 112], "{name}");
        assert!(there.is_empty(), "{name}");
        let denied = |event: &handler_types::egress::EgressEvent| {
            event.decision == EgressDecision::Mismatch && event.host == *target
        };
        let events = world.filter.events_until(denied).await;
        assert_eq!(events.last().unwrap().reason.as_deref(), Some("sni"));
    }
}

#[tokio::test]
async fn the_tunnel_s_own_name_or_none_passes_unchanged() {
    let world = World::new(Enforcement::Enforce).await;
    for (target, name, server_name) in [
        (&world.host, NAME, true),
        (&world.host, NAME, false),
        (&world.literal, NAME, true),
        (&world.literal, "127.0.0.1", true),
    ] {
        passes(&world, target, &greeting(name, server_name)).await;
    }
}

#[tokio::test]
async fn while_a_greeting_is_incomplete_the_server_s_bytes_flow_and_none_of_the_client_s() {
    let world = World::new(Enforcement::Enforce).await;
    let (mut client, mut server) = world.tunnel(&world.host).await;
    let hello = greeting(NAME, true);
    let (front, back) = hello.split_at(20);
    client.write_all(front).await.unwrap();
    server.write_all(b"220 ready").await.unwrap();
    let mut here = [0; 9];
    within("the greeting", client.read_exact(&mut here))
        .await
        .unwrap();
    assert_eq!(&here, b"220 ready");
    let nothing = server.try_read(&mut here).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    client.write_all(back).await.unwrap();
    let mut there = vec![0; hello.len()];
    within("the hello", server.read_exact(&mut there))
        .await
        .unwrap();
    assert_eq!(there, hello);
}

#[tokio::test]
async fn a_server_that_has_spoken_gets_nothing_of_a_greeting_that_is_refused() {
    let world = World::new(Enforcement::Enforce).await;
    let (mut client, mut server) = world.tunnel(&world.host).await;
    server.write_all(b"220 ready").await.unwrap();
    let mut here = vec![0; 9];
    within("the greeting", client.read_exact(&mut here))
        .await
        .unwrap();
    client
        .write_all(&greeting("other.example.test", true))
        .await
        .unwrap();
    let (mut rest, mut there) = (Vec::new(), Vec::new());
    let _ = within("the client's end", client.read_to_end(&mut rest)).await;
    let _ = within("the server's end", server.read_to_end(&mut there)).await;
    assert!(rest.is_empty() && there.is_empty());
}

#[tokio::test]
async fn bytes_that_only_look_like_tls_are_refused_and_reported() {
    let world = World::new(Enforcement::Enforce).await;
    let alert_first = [&[0x15, 3, 1, 0, 2, 1, 90], &greeting(NAME, true)[..]].concat();
    for bytes in [&b"\x16\x03\x01\x00\x05hello"[..], &alert_first] {
        let (_, there) = refused(&world, &world.host, bytes).await;
        assert!(there.is_empty());
    }
    let event = world.filter.event(EgressDecision::Denied).await;
    assert_eq!(event.reason.as_deref(), Some("malformed"));
}

#[tokio::test]
async fn the_first_request_in_a_tunnel_must_name_its_host() {
    let world = World::new(Enforcement::Enforce).await;
    let host = &world.host;
    for request in [
        "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n".to_owned(),
        format!("GET http://other.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("CONNECT other.example:443 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
    ] {
        let (here, there) = refused(&world, host, request.as_bytes()).await;
        assert!(there.is_empty(), "{request}");
        let answer = Answer::parse(&here);
        assert_eq!(answer.status, 403);
        assert_eq!(answer.refusal().1, "host", "{request}");
    }
    let event = world.filter.event(EgressDecision::Mismatch).await;
    assert_eq!(event.reason.as_deref(), Some("host"));
    assert_eq!(&event.host, host);
    // One that names it is asked for by the filter; what follows is judged too (see `plain`).
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let (mut client, mut server) = world.tunnel(host).await;
    client.write_all(request.as_bytes()).await.unwrap();
    let asked = within("the request", read_head(&mut server)).await;
    assert_eq!(asked, request);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    server.write_all(answer).await.unwrap();
    let answer = next_answer(&mut client).await;
    assert_eq!(answer.text(), "ok");
    let two = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    let (_, there) = refused(&world, host, two.as_bytes()).await;
    assert!(there.is_empty());
}

#[tokio::test]
async fn log_only_reports_another_name_and_lets_it_pass_until_it_is_enforced() {
    let world = World::new(Enforcement::LogOnly).await;
    let (mut client, mut server) = world.tunnel(&world.host).await;
    let hello = greeting("other.example.test", true);
    client.write_all(&hello).await.unwrap();
    let mut there = vec![0; hello.len()];
    within("the hello", server.read_exact(&mut there))
        .await
        .unwrap();
    let event = world.filter.event(EgressDecision::Unlisted).await;
    assert_eq!(event.reason.as_deref(), Some("sni"));
    world.filter.put(enforce(&[&world.host]), vec![]).await;
    let read = within("the end", client.read(&mut [0; 8])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_real_client_and_server_speak_tls_through_a_blind_tunnel() {
    let (acceptor, roots) = certificate(NAME);
    let origin = Origin::tls(acceptor, |_| -> Reply { text("hello") }).await;
    let host = format!("{NAME}:{}", origin.port);
    let filter = named_filter().await;
    let literal = format!("127.0.0.1:{}", origin.port);
    filter.put(enforce(&[&host, &literal]), vec![]).await;
    let tunnel = filter.tunnel(&host).await;
    let mut tls = crate::intercept::connect_tls(tunnel, &roots, NAME, &[])
        .await
        .unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = within("the answer", tls.read_to_end(&mut answer)).await;
    assert_eq!(Answer::parse(&answer).text(), "hello");
}
