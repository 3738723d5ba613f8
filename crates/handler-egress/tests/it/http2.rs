//! HTTP/2 through interception, from a client's streams to an origin's.

use crate::coding::{decode, encode};
use crate::intercept::{NAME, World};
use crate::origin::{Origin, Received, Reply, certificate_for, echo, speaking, streamed, text};
use crate::world::{PHANTOM, VALUE, enforce, injection, within};
use bytes::Bytes;
use handler_types::egress::{EgressDecision, EgressRefusal};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use tokio::sync::mpsc;

pub(crate) const BOTH: &[&str] = &["h2", "http/1.1"];

pub(crate) type Body = BoxBody<Bytes, Infallible>;
pub(crate) type Client = SendRequest<Body>;

pub(crate) async fn client(world: &World) -> Client {
    let tls = world.tls_for(BOTH).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn request(method: &str, authority: &str, path: &str) -> http::request::Builder {
    let uri = format!("https://{authority}{path}");
    Request::builder().method(method).uri(uri)
}

pub(crate) fn empty() -> Body {
    Empty::new().boxed()
}

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed()
}

pub(crate) async fn send(client: &mut Client, request: Request<Body>) -> Response<Incoming> {
    within("the response", client.send_request(request))
        .await
        .unwrap()
}

pub(crate) async fn whole(response: Response<Incoming>) -> (String, HeaderMap) {
    let body = within("the body", response.into_body().collect())
        .await
        .unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    (text, trailers)
}

#[tokio::test]
async fn a_coded_body_is_swapped_and_a_coded_answer_masked() {
    let world = World::speaking(BOTH, |received| {
        let bytes = encode("br", &decode("gzip", &received.body));
        let mut reply = text(bytes);
        let coding = "br".parse().unwrap();
        reply.headers_mut().insert("content-encoding", coding);
        reply
    })
    .await;
    let mut client = client(&world).await;
    let body = format!("{{\"key\":\"{PHANTOM}\"}}");
    let coded = encode("gzip", body.as_bytes());
    let request = request("POST", &world.host, "/")
        .header("content-encoding", "gzip")
        .header("content-length", coded.len())
        .body(full(coded))
        .unwrap();
    let response = send(&mut client, request).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(!response.headers().contains_key("content-encoding"));
    assert_eq!(whole(response).await.0, body);
    let received = &world.origin.received()[0];
    assert_eq!(received.version, Version::HTTP_2);
    let got = decode("gzip", &received.body);
    assert_eq!(
        String::from_utf8(got).unwrap(),
        body.replace(PHANTOM, VALUE)
    );
}

fn with_trailers(name: &'static str, value: &str, body: String) -> Body {
    let mut trailers = HeaderMap::new();
    trailers.insert(name, value.parse().unwrap());
    let frames = [Frame::data(Bytes::from(body)), Frame::trailers(trailers)];
    StreamBody::new(futures::stream::iter(frames.map(Ok))).boxed()
}

fn echo_with_trailers(received: &Received) -> Reply {
    let body = String::from_utf8_lossy(&received.body).into_owned();
    let mut reply = Response::new(with_trailers("grpc-status", VALUE, body));
    // HTTP/1.1 has to announce them.
    let names = "grpc-status".parse().unwrap();
    reply.headers_mut().insert("trailer", names);
    reply
}

#[tokio::test]
async fn a_request_is_swapped_in_every_part_and_its_response_masked_in_every_part() {
    let world = World::speaking(BOTH, echo_with_trailers).await;
    let mut client = client(&world).await;
    let request = request("POST", &world.host, &format!("/v1?key={PHANTOM}"))
        .header("x-api-key", PHANTOM)
        .header("te", "trailers")
        .header("expect", "100-continue")
        .body(with_trailers("x-sum", PHANTOM, format!("body {PHANTOM}")))
        .unwrap();
    let response = send(&mut client, request).await;
    assert_eq!(response.status(), 200);
    let (text, trailers) = whole(response).await;
    assert_eq!(text, format!("body {PHANTOM}"));
    assert_eq!(trailers["grpc-status"], PHANTOM);
    let received = &world.origin.received()[0];
    assert_eq!(received.version, Version::HTTP_2);
    assert_eq!(
        received.target,
        format!("https://{}/v1?key={VALUE}", world.host)
    );
    assert_eq!(received.headers["x-api-key"], VALUE);
    assert_eq!(received.headers["te"], "trailers");
    assert!(!received.headers.contains_key("host") && !received.headers.contains_key("expect"));
    assert_eq!(
        String::from_utf8_lossy(&received.body),
        format!("body {VALUE}")
    );
    assert_eq!(received.trailers["x-sum"], VALUE);
    let injected = world.filter.event(EgressDecision::Injected).await;
    assert_eq!(injected.host, world.host);
}

#[tokio::test]
async fn many_requests_at_a_time_share_one_connection_outward() {
    let (pieces, streams): (Vec<_>, Vec<_>) = (0..20).map(|_| mpsc::channel(1)).unzip();
    let streams = std::sync::Mutex::new(streams);
    let world = World::speaking(BOTH, move |_| streamed(streams.lock().unwrap().remove(0))).await;
    let client = client(&world).await;
    let mut bodies = Vec::new();
    for _ in 0..pieces.len() {
        let request = request("GET", &world.host, "/").body(empty()).unwrap();
        bodies.push(send(&mut client.clone(), request).await.into_body());
    }
    // Every stream is open, the last is answered first, and an event arrives while its stream goes on.
    for (piece, body) in pieces.iter().zip(&mut bodies).rev() {
        piece
            .send(Bytes::from(format!("data: {VALUE}\n\n")))
            .await
            .unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"\n\n") {
            let frame = within("the event", body.frame()).await.unwrap().unwrap();
            got.extend_from_slice(&frame.into_data().unwrap());
        }
        assert_eq!(got, format!("data: {PHANTOM}\n\n").as_bytes());
    }
    assert_eq!(world.origin.connections(), 1);
    // A stream that the client lets go is let go at the origin, and the others live.
    let mut bodies = bodies.into_iter();
    drop(bodies.next());
    within("the origin is let go", pieces[0].closed()).await;
    assert!(!pieces[1].is_closed());
}

#[tokio::test]
async fn the_client_is_offered_what_the_origin_speaks() {
    for (origin, client, wanted) in [
        (&["http/1.1"][..], BOTH, "http/1.1"),
        (&[], BOTH, "http/1.1"),
        (BOTH, BOTH, "h2"),
        (BOTH, &["h2"], "h2"),
        (BOTH, &["http/1.1"], "http/1.1"),
    ] {
        let world = World::speaking(origin, echo).await;
        let tls = world.tls_for(client).await;
        let spoken = tls.get_ref().1.alpn_protocol();
        assert_eq!(spoken, Some(wanted.as_bytes()), "{origin:?} {client:?}");
    }
    let world = World::speaking(BOTH, echo).await;
    let answer = world.ask("GET /", "", "").await;
    assert_eq!(answer.status, 200);
    assert_eq!(world.origin.received()[0].version, Version::HTTP_11);
}

#[tokio::test]
async fn another_authority_is_misdirected_and_reported_and_the_connection_lives_on() {
    let world = World::speaking(BOTH, |_| text("fine")).await;
    let mut client = client(&world).await;
    let other_port = format!("{NAME}:1");
    for (authority, host) in [
        ("other.example.test", None),
        (other_port.as_str(), None),
        (world.host.as_str(), Some("other.example.test")),
    ] {
        let mut builder = request("GET", authority, "/");
        if let Some(host) = host {
            builder = builder.header("host", host);
        }
        let response = send(&mut client, builder.body(empty()).unwrap()).await;
        assert_eq!(
            response.status(),
            StatusCode::MISDIRECTED_REQUEST,
            "{authority}"
        );
        let refusal: EgressRefusal = serde_json::from_str(&whole(response).await.0).unwrap();
        assert_eq!(refusal.reason, "host");
    }
    let denied = world.filter.event(EgressDecision::Mismatch).await;
    assert_eq!(denied.reason.as_deref(), Some("host"));
    assert_eq!(denied.host, world.host);
    let fine = request("GET", &world.host, "/").body(empty()).unwrap();
    assert_eq!(send(&mut client, fine).await.status(), 200);
    assert_eq!(world.origin.received().len(), 1);
}

#[tokio::test]
async fn no_tunnel_is_opened_within_a_connection() {
    let world = World::speaking(BOTH, |_| text("fine")).await;
    let mut client = client(&world).await;
    let connect = Request::builder()
        .method("CONNECT")
        .uri("other.example.test:443")
        .body(empty())
        .unwrap();
    assert_eq!(send(&mut client, connect).await.status(), 403);
    assert!(world.origin.received().is_empty());
}

#[tokio::test]
async fn a_phantom_of_another_secret_breaks_its_stream_off_and_is_a_leak() {
    let world = World::speaking(BOTH, |_| text("fine")).await;
    let mut other = injection(&["elsewhere.example:443"]);
    other.name = "other/secret".to_owned();
    other.phantom = "other-PHANTOM-123".to_owned();
    other.value = "other-SECRETS-123".to_owned();
    let literal = format!("127.0.0.1:{}", world.origin.port);
    let injections = vec![injection(&[&world.host]), other];
    let policy = enforce(&[&world.host, &literal]);
    world.filter.put(policy, injections).await;
    let mut client = client(&world).await;
    let in_header = request("GET", &world.host, "/")
        .header("x", "other-PHANTOM-123")
        .body(empty());
    let in_body = request("POST", &world.host, "/").body(full("other-PHANTOM-123"));
    for request in [in_header, in_body] {
        let response = send(&mut client, request.unwrap()).await;
        assert_eq!(response.status(), 403);
        let refusal: EgressRefusal = serde_json::from_str(&whole(response).await.0).unwrap();
        assert_eq!(refusal.error, "handler_egress_leak");
    }
    let event = world.filter.event(EgressDecision::Leak).await;
    assert_eq!(event.secret.as_deref(), Some("other/secret"));
    for received in world.origin.received() {
        assert!(!received.whole && received.body.is_empty(), "{received:?}");
    }
}

#[tokio::test]
async fn an_origin_that_cannot_prove_its_name_is_told_in_http_2() {
    let (acceptor, _) = certificate_for(NAME, BOTH);
    let origin = Origin::tls(acceptor, |_| text("fine")).await;
    let world = World::around(origin, None).await;
    let mut client = client(&world).await;
    for _ in 0..2 {
        let request = request("GET", &world.host, "/")
            .header("x-api-key", PHANTOM)
            .body(empty())
            .unwrap();
        let response = send(&mut client, request).await;
        assert_eq!(response.status(), 502);
    }
    assert!(world.origin.received().is_empty());
}

#[tokio::test]
async fn rules_that_forbid_the_host_end_every_stream() {
    let (piece, stream) = mpsc::channel(1);
    let stream = std::sync::Mutex::new(Some(stream));
    let world = World::speaking(BOTH, move |_| {
        streamed(stream.lock().unwrap().take().unwrap())
    })
    .await;
    let mut client = client(&world).await;
    let request = request("GET", &world.host, "/").body(empty()).unwrap();
    let response = send(&mut client, request).await;
    world.filter.put(enforce(&[]), vec![]).await;
    within("the end", response.into_body().collect())
        .await
        .unwrap_err();
    within("the origin is let go", piece.closed()).await;
}

#[tokio::test]
async fn an_origin_that_speaks_http_1_meanwhile_still_answers_many_requests_at_a_time() {
    let (acceptor, roots) = certificate_for(NAME, BOTH);
    let acceptors = vec![acceptor.clone(), speaking(&acceptor, &["http/1.1"])];
    let (pieces, streams): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel(1)).unzip();
    let streams = std::sync::Mutex::new(streams);
    let origin = Origin::start(acceptors, move |received| {
        if received.target.ends_with("/stream") {
            return streamed(streams.lock().unwrap().remove(0));
        }
        echo_with_trailers(received)
    })
    .await;
    let world = World::around(origin, Some(roots)).await;
    let mut client = client(&world).await;
    let plain = || request("POST", &world.host, "/").body(full("x")).unwrap();
    send(&mut client, plain()).await;
    assert_eq!(world.origin.received()[0].version, Version::HTTP_2);
    // New rules: connections made under the old ones carry no more requests.
    let literal = format!("127.0.0.1:{}", world.origin.port);
    let policy = enforce(&[&world.host, &literal]);
    world
        .filter
        .put(policy, vec![injection(&[&world.host])])
        .await;
    let mut bodies = Vec::new();
    for _ in 0..pieces.len() {
        let request = request("GET", &world.host, "/stream")
            .body(empty())
            .unwrap();
        bodies.push(send(&mut client, request).await.into_body());
    }
    assert_eq!(world.origin.connections(), 1 + pieces.len());
    for (piece, body) in pieces.iter().zip(&mut bodies).rev() {
        piece.send(Bytes::from("event")).await.unwrap();
        let frame = within("the event", body.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "event");
    }
    drop(pieces);
    for body in bodies {
        within("the end", body.collect()).await.unwrap();
    }
    let cookies = request("POST", &world.host, "/")
        .header("cookie", "a=1")
        .header("cookie", format!("b={PHANTOM}"))
        .header("te", "trailers")
        .header("trailer", "x-sum")
        .body(with_trailers("x-sum", PHANTOM, "body".to_owned()));
    let response = send(&mut client, cookies.unwrap()).await;
    let (text, trailers) = whole(response).await;
    assert_eq!(
        (text.as_str(), trailers["grpc-status"].as_bytes()),
        ("body", PHANTOM.as_bytes())
    );
    let received = world.origin.received().pop().unwrap();
    assert_eq!(
        (received.version, received.target.as_str()),
        (Version::HTTP_11, "/")
    );
    assert_eq!(received.headers["host"], world.host.as_str());
    assert_eq!(
        received.headers["cookie"],
        format!("a=1; b={VALUE}").as_str()
    );
    assert_eq!(received.trailers["x-sum"], VALUE);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_offered_http_1() {
    let world = World::speaking(BOTH, echo).await;
    let mut kept = Vec::new();
    for _ in 0..64 {
        kept.push(client(&world).await);
    }
    let tls = world.tls_for(BOTH).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let fine = request("POST", &world.host, "/")
        .body(full("still"))
        .unwrap();
    let response = send(&mut kept[63], fine).await;
    assert_eq!(whole(response).await.0, "still");
}

#[tokio::test]
async fn an_origin_that_ends_its_connection_is_asked_on_a_new_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (acceptor, roots) = certificate_for(NAME, BOTH);
    let world = World::around(
        Origin::elsewhere(listener.local_addr().unwrap().port()),
        Some(roots),
    );
    let serving = async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            let told = std::sync::Arc::new(tokio::sync::Notify::new());
            let tell = told.clone();
            let service = hyper::service::service_fn(move |_| {
                tell.notify_one();
                async { Ok::<_, Infallible>(text("fine")) }
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = &mut connection => continue,
                () = told.notified() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    };
    tokio::spawn(serving);
    let world = world.await;
    let mut client = client(&world).await;
    for number in 0..10 {
        let request = request("GET", &world.host, "/").body(empty()).unwrap();
        let response = send(&mut client, request).await;
        assert_eq!(response.status(), 200, "{number}");
        assert_eq!(whole(response).await.0, "fine");
    }
}
