//! Forwarded `http://` requests.

use crate::origin::{Origin, echo, streamed, text};
use crate::world::{Filter, PHANTOM, VALUE, enforce, injection, next_answer, read_head, within};
use bytes::Bytes;
use handler_types::egress::EgressDecision;
use http::Response;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

async fn world(
    reply: impl Fn(&crate::origin::Received) -> crate::origin::Reply + Send + Sync + 'static,
) -> (Origin, String, Filter) {
    let origin = Origin::plain(reply).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    (origin, host, filter)
}

#[tokio::test]
async fn a_request_arrives_in_origin_form_with_the_url_s_host_and_without_proxy_fields() {
    let (origin, host, filter) = world(|_| text("hello")).await;
    let answer = filter
        .talk(format!(
            "GET http://{host}/a?b=c HTTP/1.1\r\nHost: fronted.example\r\nX-Odd-Case: 1\r\n\
             Proxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nConnection: close\r\n\r\n"
        ))
        .await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    let received = origin.received();
    assert_eq!(received[0].target, "/a?b=c");
    assert_eq!(received[0].headers["host"], host.as_str());
    assert_eq!(received[0].headers["x-odd-case"], "1");
    assert!(!received[0].headers.contains_key("proxy-authorization"));
    assert!(!received[0].headers.contains_key("proxy-connection"));
    let event = filter.event(EgressDecision::Allowed).await;
    assert_eq!(event.host, host);
}

#[tokio::test]
async fn every_request_of_a_kept_connection_is_judged() {
    let (origin, host, filter) = world(|_| text("hello")).await;
    let mut client = filter.client().await;
    for (target, status) in [(host.as_str(), 200), ("other.example", 403), (&host, 200)] {
        let request = format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(next_answer(&mut client).await.status, status);
    }
    assert_eq!(origin.received().len(), 2);
}

#[tokio::test]
async fn a_chunked_body_and_its_response_stream_through_a_megabyte() {
    let (origin, host, filter) = world(echo).await;
    let mut client = filter.client().await;
    let head = format!(
        "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let piece = "x".repeat(1000);
    for _ in 0..1000 {
        let chunk = format!("3e8\r\n{piece}\r\n");
        client.write_all(chunk.as_bytes()).await.unwrap();
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    within("the answer", client.read_to_end(&mut answer))
        .await
        .unwrap();
    assert_eq!(origin.received()[0].body.len(), 1_000_000);
    assert!(answer.len() > 1_000_000);
}

#[tokio::test]
async fn events_of_a_stream_arrive_one_by_one() {
    let (send, receive) = mpsc::channel(1);
    let receive = std::sync::Mutex::new(Some(receive));
    let (_origin, host, filter) =
        world(move |_| streamed(receive.lock().unwrap().take().unwrap())).await;
    let mut client = filter.client().await;
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let head = within("the head", read_head(&mut client)).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for number in 0..3 {
        let piece = format!("data: {number}\n\n");
        send.send(Bytes::from(piece.clone())).await.unwrap();
        let mut got = String::new();
        within("the event", async {
            while !got.contains(&piece) {
                got.push(char::from(client.read_u8().await.unwrap()));
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_origin_is_let_go_when_the_client_leaves() {
    let (send, receive) = mpsc::channel(1);
    let receive = std::sync::Mutex::new(Some(receive));
    let (_origin, host, filter) =
        world(move |_| streamed(receive.lock().unwrap().take().unwrap())).await;
    let mut client = filter.client().await;
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    within("the head", read_head(&mut client)).await;
    drop(client);
    within("the origin's stream is dropped", send.closed()).await;
}

#[tokio::test]
async fn what_cannot_be_reached_is_a_502_of_the_same_shape_and_no_denial() {
    let filter = Filter::start(|_| {}).await;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!(
        "host.containers.internal:{}",
        gone.local_addr().unwrap().port()
    );
    drop(gone);
    filter
        .put(enforce(&[&host, "nowhere.invalid:80"]), vec![])
        .await;
    for request in [
        format!("GET http://{host}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        format!("CONNECT {host} HTTP/1.1\r\nConnection: close\r\n\r\n"),
        "GET http://nowhere.invalid/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
    ] {
        let answer = filter.talk(request).await;
        assert_eq!(answer.status, 502);
        assert_eq!(answer.refusal().0, "handler_egress_unreachable");
    }
    let events = filter
        .events_until(|event| event.decision == EgressDecision::Denied)
        .await;
    assert_eq!(events.last().unwrap().reason.as_deref(), Some("resolve"));
    let decisions = events
        .iter()
        .filter(|event| event.decision != EgressDecision::Ended);
    assert_eq!(decisions.count(), 3);
}

#[tokio::test]
async fn a_phantom_in_a_plain_request_to_its_host_becomes_the_value() {
    let (origin, host, filter) =
        world(|_| Response::new(http_body_util::Full::new(Bytes::from(VALUE)).boxed())).await;
    filter
        .put(enforce(&[&host]), vec![injection(&[&host])])
        .await;
    let answer = filter
        .talk(format!(
            "GET http://{host}/ HTTP/1.1\r\nHost: x\r\nx-api-key: {PHANTOM}\r\nConnection: close\r\n\r\n"
        ))
        .await;
    assert_eq!(answer.text(), PHANTOM);
    assert_eq!(origin.received()[0].headers["x-api-key"], VALUE);
}

#[tokio::test]
async fn a_phantom_in_a_plain_request_to_another_host_is_a_leak() {
    let (origin, host, filter) = world(|_| text("hello")).await;
    filter
        .put(enforce(&[&host]), vec![injection(&["api.example:443"])])
        .await;
    let length = PHANTOM.len();
    for (request, reason) in [
        (
            format!("GET http://{host}/?q={PHANTOM} HTTP/1.1\r\n"),
            "target",
        ),
        (
            format!("GET http://{host}/ HTTP/1.1\r\nx: {PHANTOM}\r\n"),
            "header",
        ),
        (
            format!("POST http://{host}/ HTTP/1.1\r\nContent-Length: {length}\r\n"),
            "body",
        ),
    ] {
        let body = if reason == "body" { PHANTOM } else { "" };
        let request = format!("{request}Host: x\r\nConnection: close\r\n\r\n{body}");
        let answer = filter.talk(request).await;
        assert_eq!(answer.status, 403);
        assert_eq!(answer.refusal().0, "handler_egress_leak");
        assert!(!answer.text().contains(VALUE));
        let events = filter
            .events_until(|event| event.reason.as_deref() == Some(reason))
            .await;
        let event = events.last().unwrap();
        assert_eq!(event.decision, EgressDecision::Leak);
        assert_eq!(event.secret.as_deref(), Some("providers/test/apiKey"));
    }
    for received in origin.received() {
        assert!(!String::from_utf8_lossy(&received.body).contains(PHANTOM));
        assert!(!received.whole);
    }
}

#[tokio::test]
async fn a_phantom_that_ends_a_long_upload_breaks_it_off_before_it_is_whole() {
    let (origin, host, filter) = world(echo).await;
    filter
        .put(enforce(&[&host]), vec![injection(&["api.example:443"])])
        .await;
    let mut client = filter.client().await;
    let head =
        format!("POST http://{host}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(b"5\r\nstart\r\n").await.unwrap();
    let (front, back) = PHANTOM.split_at(9);
    for piece in [front, back] {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        client.write_all(chunk.as_bytes()).await.unwrap();
    }
    let head = within("the refusal", read_head(&mut client)).await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let received = origin.received_count(1).await;
    assert!(!received[0].whole);
    let text = String::from_utf8_lossy(&received[0].body).into_owned();
    assert!("start".starts_with(&text), "{text}");
}

#[tokio::test]
async fn the_chunked_body_of_a_get_arrives() {
    let (origin, host, filter) = world(echo).await;
    let answer = filter
        .talk(format!(
            "GET http://{host}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n5\r\nquery\r\n0\r\n\r\n"
        ))
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(origin.received()[0].body, b"query");
}

#[tokio::test]
async fn a_message_with_two_lengths_arrives_with_one() {
    let (origin, host, filter) = world(echo).await;
    for lengths in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
    ] {
        filter
            .talk(format!(
                "POST http://{host}/ HTTP/1.1\r\nHost: x\r\n{lengths}Connection: close\r\n\r\n\
                 5\r\nfive!\r\n0\r\n\r\n"
            ))
            .await;
    }
    for received in origin.received_count(2).await {
        assert_eq!(received.body, b"five!");
        assert!(!received.headers.contains_key("content-length"));
    }
    let two = "Content-Length: 3\r\nContent-Length: 4\r\n";
    let request = format!("POST http://{host}/ HTTP/1.1\r\nHost: x\r\n{two}\r\nabcd");
    assert_eq!(filter.talk(request).await.status, 400);
    assert_eq!(origin.received().len(), 2);
}

#[tokio::test]
async fn a_client_that_waits_for_continue_is_told_to() {
    let (origin, host, filter) = world(echo).await;
    let mut client = filter.client().await;
    let head = format!(
        "POST http://{host}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let head = within("the word", read_head(&mut client)).await;
    assert!(head.starts_with("HTTP/1.1 100"), "{head}");
    client.write_all(b"body").await.unwrap();
    assert_eq!(next_answer(&mut client).await.text(), "body");
    assert!(!origin.received()[0].headers.contains_key("expect"));
}
