//! What was let through ends in an event of its own, however it ends.

use crate::intercept::{NAME, World};
use crate::origin::{Origin, text};
use crate::world::{Filter, PHANTOM, enforce, next_answer, within};
use handler_types::egress::{EgressDecision, EgressEnd, EgressEvent};
use std::cell::Cell;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn listening() -> (TcpListener, String, Filter) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = format!("host.containers.internal:{port}");
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    (listener, host, filter)
}

/// The first event, and the end that belongs to it.
async fn whole(filter: &Filter) -> (EgressEvent, EgressEvent, EgressEnd) {
    let events = filter
        .events_until(|event| event.decision == EgressDecision::Ended)
        .await;
    let (first, last) = (events[0].clone(), events.last().unwrap().clone());
    let end = last.end.unwrap();
    assert_eq!((end.opened, &last.host), (first.seq, &first.host));
    assert_eq!(first.end, None);
    (first, last, end)
}

#[tokio::test]
async fn a_tunnel_ends_with_its_bytes_counted_from_the_first_on() {
    let (listener, host, filter) = listening().await;
    let mut client = filter.client().await;
    let head = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\nearly");
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut server, _) = within("the connection", listener.accept()).await.unwrap();
    server.read_exact(&mut [0; 5]).await.unwrap();
    client.write_all(b" and late").await.unwrap();
    server.read_exact(&mut [0; 9]).await.unwrap();
    server.write_all(b"answer").await.unwrap();
    drop(server);
    client.shutdown().await.unwrap();
    within("the end", client.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
    let (first, last, end) = whole(&filter).await;
    assert_eq!(first.decision, EgressDecision::Allowed);
    assert_eq!(first.rule.as_deref(), Some(host.as_str()));
    assert_eq!((end.out_bytes, end.in_bytes, last.reason), (14, 6, None));
}

#[tokio::test]
async fn a_tunnel_that_new_rules_close_says_so() {
    let (listener, host, filter) = listening().await;
    let mut client = filter.tunnel(&host).await;
    let _server = listener.accept().await.unwrap();
    filter.put(enforce(&[]), vec![]).await;
    within("the end", client.read_to_end(&mut Vec::new()))
        .await
        .ok();
    let (_, last, _) = whole(&filter).await;
    assert_eq!(last.reason.as_deref(), Some("policy"));
}

#[tokio::test]
async fn a_destination_that_is_not_there_is_let_through_and_ends_as_unreachable() {
    let (listener, host, filter) = listening().await;
    drop(listener);
    let answer = filter
        .talk(format!(
            "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ))
        .await;
    assert_eq!(answer.status, 502);
    let (_, last, end) = whole(&filter).await;
    assert_eq!(last.reason.as_deref(), Some("unreachable"));
    assert_eq!((end.out_bytes, end.in_bytes), (0, 0));
}

#[tokio::test]
async fn each_forwarded_request_ends_with_the_sizes_of_its_bodies() {
    let origin = Origin::plain(|_| text("hello")).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    for _ in 0..2 {
        let head = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}");
        let request = format!("{head}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc");
        assert_eq!(filter.talk(request).await.text(), "hello");
    }
    let ends = Cell::new(0);
    let events = filter
        .events_until(|event| {
            ends.set(ends.get() + usize::from(event.end.is_some()));
            ends.get() == 2
        })
        .await;
    for end in events.iter().filter_map(|event| event.end) {
        assert_eq!((end.out_bytes, end.in_bytes), (3, 5));
    }
}

#[tokio::test]
async fn a_tunnel_that_is_looked_into_is_one_flow_and_its_injections_name_their_entry() {
    let world = World::new(|_| text("fine")).await;
    let mut tls = world.tls(NAME).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nx-key: {PHANTOM}\r\n\r\n");
    tls.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(next_answer(&mut tls).await.status, 200);
    drop(tls);
    let (_, last, end) = whole(&world.filter).await;
    assert_eq!(last.reason, None);
    assert!(end.out_bytes > 0 && end.in_bytes > 0, "{end:?}");
    let given = world.filter.event(EgressDecision::Injected).await;
    assert_eq!(given.rule.as_deref(), Some(world.host.as_str()));
}
