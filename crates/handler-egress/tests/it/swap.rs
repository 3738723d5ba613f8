//! Phantoms in request bodies, cut at every byte on the wire.

use crate::intercept::{NAME, World};
use crate::origin::{echo, text, trailed};
use crate::world::{Answer, PHANTOM, VALUE, enforce, injection, next_whole, read_head, within};
use handler_types::egress::EgressDecision;
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_body_cut_at_every_byte_of_the_phantom_arrives_with_the_value() {
    let world = World::new(|_| text("fine")).await;
    let mut tls = world.tls(NAME).await.unwrap();
    for at in 1..PHANTOM.len() {
        let (front, back) = PHANTOM.split_at(at);
        let head = format!(
            "POST /{at} HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
            world.host
        );
        tls.write_all(head.as_bytes()).await.unwrap();
        for piece in [front, back, " end"] {
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            tls.write_all(chunk.as_bytes()).await.unwrap();
            tls.flush().await.unwrap();
        }
        tls.write_all(b"0\r\n\r\n").await.unwrap();
        let head = within("the answer", read_head(&mut tls)).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        tls.read_exact(&mut [0; 4]).await.unwrap();
    }
    let received = world.origin.received();
    assert_eq!(received.len(), PHANTOM.len() - 1);
    for one in received {
        assert_eq!(String::from_utf8_lossy(&one.body), format!("{VALUE} end"));
    }
}

#[tokio::test]
async fn a_long_body_with_a_promised_length_keeps_it_and_comes_back_masked() {
    let world = World::new(echo).await;
    let filler = "y".repeat(33_333);
    let body = format!("{filler}{PHANTOM}{filler}{PHANTOM}{filler}{PHANTOM}");
    let headers = format!("Content-Length: {}\r\n", body.len());
    let answer: Answer = world.ask("POST /", &headers, &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body.len(), body.len());
    assert!(answer.text() == body, "the echo is masked back");
    let received = &world.origin.received()[0];
    assert_eq!(received.body.len(), body.len());
    let got = String::from_utf8_lossy(&received.body).into_owned();
    assert!(got == body.replace(PHANTOM, VALUE));
}

#[tokio::test]
async fn a_value_in_the_words_beside_a_status_does_not_come_in() {
    let world = World::new(|_| {
        let mut reply = text("fine");
        let words = ReasonPhrase::try_from(VALUE.as_bytes().to_vec()).unwrap();
        reply.extensions_mut().insert(words);
        reply
    })
    .await;
    let answer = world.ask("GET /", "", "").await;
    assert!(
        answer.head.starts_with("HTTP/1.1 200 OK"),
        "{}",
        answer.head
    );
}

/// A secret whose value has characters that its phantom has not.
async fn put_odd(world: &World) -> (&'static str, &'static str) {
    let (phantom, value) = ("odd/phantom-12345", "a\"\\&=%/<>#+;12345");
    let mut odd = injection(&[&world.host]);
    odd.phantom = phantom.to_owned();
    odd.value = value.to_owned();
    let literal = format!("127.0.0.1:{}", world.origin.port);
    world
        .filter
        .put(enforce(&[&world.host, &literal]), vec![odd])
        .await;
    (phantom, value)
}

#[tokio::test]
async fn a_value_that_must_be_escaped_makes_a_body_longer_and_its_length_is_not_promised() {
    let world = World::new(|received| {
        let mut reply = echo(received);
        let kind = received.headers["content-type"].clone();
        reply.headers_mut().insert("content-type", kind);
        reply
    })
    .await;
    let (phantom, value) = put_odd(&world).await;
    let body = format!("{{\"key\":\"{}\"}}", phantom.replace('/', "\\/"));
    let headers = format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    let answer = world.ask("POST /", &headers, &body).await;
    assert_eq!(answer.status, 200);
    let received = &world.origin.received()[0];
    assert!(received.whole && !received.headers.contains_key("content-length"));
    let read: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(read["key"], value);
    // What the server says in its own escapes comes back as the phantom.
    assert!(answer.text().contains("phantom-12345"), "{}", answer.text());
    assert!(!answer.text().contains("12345\\\""), "{}", answer.text());

    let body = "a=1&key=odd%2Fphantom-12345&b=2";
    let headers = format!(
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
        body.len()
    );
    world.ask("POST /", &headers, body).await;
    let form = String::from_utf8(world.origin.received()[1].body.clone()).unwrap();
    assert_eq!(form, "a=1&key=a%22%5C%26%3D%25%2F%3C%3E%23%2B%3B12345&b=2");
}

#[tokio::test]
async fn an_escaped_phantom_keeps_the_promised_length_when_it_has_the_shape_of_its_value() {
    let world = World::new(echo).await;
    let escaped = PHANTOM.replace('P', "\\u0050").replace('-', "\\u002D");
    let body = format!("{{\"key\":\"{escaped}\"}}");
    let headers = format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    let answer = world
        .ask(
            "POST /x?k=%73k%2Dant-PHANTOM-0123456789abcdef",
            &headers,
            &body,
        )
        .await;
    let received = &world.origin.received()[0];
    let length = body.len().to_string();
    assert_eq!(received.headers["content-length"], length.as_str());
    let read: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(read["key"], VALUE);
    assert_eq!(received.target, format!("/x?k=%73k%2D{}", &VALUE[3..]));
    let read: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(read["key"], PHANTOM, "and back");
}

#[tokio::test]
async fn trailers_are_swapped_both_ways() {
    let world = World::new(|_| trailed("fine", "x-sum", VALUE)).await;
    let mut tls = world.tls(NAME).await.unwrap();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nTE: trailers\r\nTrailer: x-key\r\n\
         Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-key: {PHANTOM}\r\n\r\n",
        world.host
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut all = read_head(&mut tls).await;
    while !all.contains("x-sum:") || !all.ends_with("\r\n\r\n") {
        all.push(char::from(
            within("the trailer", tls.read_u8()).await.unwrap(),
        ));
    }
    assert!(all.contains(&format!("x-sum: {PHANTOM}")), "{all}");
    let received = &world.origin.received()[0];
    assert_eq!(received.trailers["x-key"], VALUE);
}

#[tokio::test]
async fn a_leak_in_a_trailer_breaks_the_request_off() {
    let world = World::new(|_| text("fine")).await;
    let mut other = injection(&["elsewhere.example:443"]);
    other.phantom = "other-PHANTOM-123".to_owned();
    other.value = "other-SECRETS-123".to_owned();
    let literal = format!("127.0.0.1:{}", world.origin.port);
    let policy = enforce(&[&world.host, &literal]);
    let injections = vec![injection(&[&world.host]), other];
    world.filter.put(policy, injections).await;
    let mut tls = world.tls(NAME).await.unwrap();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nTrailer: x-key\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nx-key: other-PHANTOM-123\r\n\r\n",
        world.host
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(next_whole(&mut tls).await.status, 403);
    world.filter.event(EgressDecision::Leak).await;
    let received = world.origin.received();
    assert!(received.iter().all(|received| !received.whole));
}
