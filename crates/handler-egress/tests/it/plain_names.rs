//! What plain HTTP in a tunnel may name in each mode, and tunnels that are none of it.

use crate::origin::{Origin, text};
use crate::world::{
    Answer, Filter, enforce, filtered, injection, next_answer, next_whole, read_head, within,
};
use handler_types::egress::EgressDecision;
use handler_types::network::Enforcement;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};

const NAME: &str = "api.example.test";

/// A filter that knows `api.example.test` as this machine.
async fn named() -> Filter {
    Filter::start(|config| {
        let here = vec!["127.0.0.1".parse().unwrap()];
        config.hosts.insert(NAME.to_owned(), here);
    })
    .await
}

async fn ask(tunnel: &mut UnixStream, request: &str) -> Answer {
    tunnel.write_all(request.as_bytes()).await.unwrap();
    next_answer(tunnel).await
}

fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[tokio::test]
async fn a_tunnel_to_an_address_may_name_what_is_listed_at_its_port() {
    let origin = Origin::plain(|_| text("ok")).await;
    let port = origin.port;
    let (host, literal) = (format!("{NAME}:{port}"), format!("127.0.0.1:{port}"));
    let filter = named().await;
    filter.put(enforce(&[&host, &literal]), vec![]).await;
    let mut tunnel = filter.tunnel(&literal).await;
    for (named, status) in [
        (literal.as_str(), 200),
        (&host, 200),
        ("other.example", 403),
        (NAME, 200),
        ("names.handler.internal", 403),
        ("127.0.0.2", 403),
    ] {
        let answer = ask(&mut tunnel, &get(named)).await;
        assert_eq!(answer.status, status, "{named}");
    }
    let named: Vec<String> = origin
        .received()
        .iter()
        .map(|one| one.headers["host"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(named, [literal.as_str(), host.as_str(), NAME]);
    // What was named is judged again: with it the tunnel goes.
    filter.put(enforce(&[&literal]), vec![]).await;
    let read = within("the end", tunnel.read(&mut [0; 8])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn log_only_lets_other_names_pass_tells_each_once_and_ends_with_the_mode() {
    let origin = Origin::plain(|_| text("ok")).await;
    let port = origin.port;
    let (host, literal) = (format!("{NAME}:{port}"), format!("127.0.0.1:{port}"));
    let entries = [host.clone(), literal];
    let filter = named().await;
    let log_only = filtered(&entries, Enforcement::LogOnly);
    filter.put(log_only, vec![]).await;
    let mut tunnel = filter.tunnel(&host).await;
    for named in [&host, "other.example", "other.example", "third.example"] {
        assert_eq!(ask(&mut tunnel, &get(named)).await.text(), "ok", "{named}");
    }
    filter
        .put(filtered(&entries, Enforcement::Enforce), vec![])
        .await;
    let read = within("the end", tunnel.read(&mut [0; 8])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let ended = |event: &handler_types::egress::EgressEvent| {
        event.decision == EgressDecision::Ended && event.reason.as_deref() == Some("policy")
    };
    let events = filter.events_until(ended).await;
    let told = events
        .iter()
        .filter(|event| event.decision == EgressDecision::Unlisted);
    let told: Vec<_> = told
        .map(|event| (event.host.as_str(), event.reason.as_deref()))
        .collect();
    assert_eq!(told, [(host.as_str(), Some("host")); 2]);
}

#[tokio::test]
async fn old_clients_and_those_that_have_said_all_are_answered() {
    let origin = Origin::plain(|received| {
        let host = received.headers["host"].to_str().unwrap();
        text(host.to_owned())
    })
    .await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    for request in [
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n"),
        get(&host),
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
    ] {
        let mut tunnel = filter.tunnel(&host).await;
        tunnel.write_all(request.as_bytes()).await.unwrap();
        tunnel.shutdown().await.unwrap();
        let mut answer = Vec::new();
        within("the answer", tunnel.read_to_end(&mut answer))
            .await
            .unwrap();
        assert_eq!(Answer::parse(&answer).text(), host, "{request}");
    }
}

#[tokio::test]
async fn a_tunnel_within_a_tunnel_is_none_where_names_are_enforced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!(
        "host.containers.internal:{}",
        listener.local_addr().unwrap().port()
    );
    let filter = Filter::start(|_| {}).await;
    let connect = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let entries = [host.clone()];
    filter
        .put(filtered(&entries, Enforcement::Enforce), vec![])
        .await;
    let mut tunnel = filter.tunnel(&host).await;
    let (mut server, _) = listener.accept().await.unwrap();
    let answer = ask(&mut tunnel, &connect).await;
    assert_eq!(answer.refusal().1, "target");
    drop(tunnel);
    let mut there = Vec::new();
    let _ = within("the server's end", server.read_to_end(&mut there)).await;
    assert!(there.is_empty());
    filter
        .put(filtered(&entries, Enforcement::LogOnly), vec![])
        .await;
    let mut tunnel = filter.tunnel(&host).await;
    let (mut server, _) = listener.accept().await.unwrap();
    tunnel.write_all(connect.as_bytes()).await.unwrap();
    let asked = within("the request", read_head(&mut server)).await;
    assert_eq!(asked, connect);
}

#[tokio::test]
async fn whoever_answers_before_it_is_asked_gets_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!(
        "host.containers.internal:{}",
        listener.local_addr().unwrap().port()
    );
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    let mut tunnel = filter.tunnel(&host).await;
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"220 ready\r\n").await.unwrap();
    let mut here = [0; 11];
    within("the greeting", tunnel.read_exact(&mut here))
        .await
        .unwrap();
    tunnel.write_all(get(&host).as_bytes()).await.unwrap();
    let (mut rest, mut there) = (Vec::new(), Vec::new());
    let _ = within("the client's end", tunnel.read_to_end(&mut rest)).await;
    let _ = within("the server's end", server.read_to_end(&mut there)).await;
    assert!(rest.is_empty() && there.is_empty());
    let event = filter.event(EgressDecision::Denied).await;
    assert_eq!(event.reason.as_deref(), Some("malformed"));
}

#[tokio::test]
async fn a_tunnel_of_http_ends_when_its_host_is_given_a_secret() {
    let origin = Origin::plain(|_| text("ok")).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    let mut tunnel = filter.tunnel(&host).await;
    tunnel.write_all(get(&host).as_bytes()).await.unwrap();
    assert_eq!(next_whole(&mut tunnel).await.text(), "ok");
    filter
        .put(enforce(&[&host]), vec![injection(&[&host])])
        .await;
    let read = within("the end", tunnel.read(&mut [0; 8])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}
