//! Phantoms in request bodies, cut at every byte on the wire.

use crate::intercept::{NAME, World};
use crate::origin::{echo, text};
use crate::world::{Answer, PHANTOM, VALUE, read_head, within};
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
async fn a_compressed_body_passes_unchanged() {
    let world = World::new(|_| text("fine")).await;
    let body = format!("pretend {PHANTOM}");
    let headers = format!(
        "Content-Encoding: gzip\r\nContent-Length: {}\r\n",
        body.len()
    );
    let answer = world.ask("POST /", &headers, &body).await;
    assert_eq!(answer.status, 200);
    let received = &world.origin.received()[0];
    assert_eq!(String::from_utf8_lossy(&received.body), body);
}
