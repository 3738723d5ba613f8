//! Clients that take their time, and many of them at once.

use crate::intercept::World;
use crate::origin::{Origin, text};
use crate::world::{Filter, enforce, read_head, within};
use handler_egress::Limits;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_head_that_does_not_end_ends_the_connection_and_others_are_served() {
    let origin = Origin::plain(|_| text("hello")).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|config| {
        config.limits = Limits {
            head: SHORT,
            ..Limits::default()
        };
    })
    .await;
    filter.put(enforce(&[&host]), vec![]).await;
    for begun in ["", "GET http://", "GET / HTTP/1.1\r\nX: "] {
        let mut client = filter.client().await;
        client.write_all(begun.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = within("the end", client.read_to_end(&mut rest)).await;
    }
    let mut tunnel = filter.tunnel(&host).await;
    tunnel.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = within("the tunnel's end", tunnel.read_to_end(&mut rest)).await;
    assert!(rest.is_empty() && origin.received().is_empty());
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(filter.talk(request).await.text(), "hello");
}

#[tokio::test]
async fn a_tunnel_and_a_connection_of_http_2_that_nobody_uses_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!(
        "host.containers.internal:{}",
        listener.local_addr().unwrap().port()
    );
    let short = Limits {
        idle_tunnel: SHORT,
        idle_streams: SHORT,
        ..Limits::default()
    };
    let filter = Filter::start(|config| config.limits = short).await;
    filter.put(enforce(&[&host]), vec![]).await;
    let mut tunnel = filter.tunnel(&host).await;
    let read = within("the end", tunnel.read(&mut [0; 8])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");

    let world = World::limited(&["h2"], short, |_| text("hello")).await;
    let mut tls = world.tls_for(&["h2"]).await;
    let mut rest = Vec::new();
    let _ = within("the end", tls.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn heads_of_any_length_are_answered_or_refused_and_never_kept() {
    let origin = Origin::plain(|_| text("hello")).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    let head = |fields: &str| {
        format!("GET http://{host}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n")
    };
    let long = |length: usize| format!("x: {}\r\n", "y".repeat(length));
    for (fields, wanted) in [
        (long(60_000), 200),
        (long(70_000), 431),
        ("x: y\r\n".repeat(90), 200),
        ("x: y\r\n".repeat(300), 431),
    ] {
        assert_eq!(filter.talk(head(&fields)).await.status, wanted);
    }
    // One that never ends is cut off while it is being sent.
    let mut client = filter.client().await;
    client
        .write_all(format!("GET http://{host}/ HTTP/1.1\r\nx: ").as_bytes())
        .await
        .unwrap();
    let piece = [b'y'; 16 * 1024];
    within("the end", async {
        while client.write_all(&piece).await.is_ok() {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_tunnels_live_at_once_and_none_hears_another() {
    const TUNNELS: usize = 2000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!(
        "host.containers.internal:{}",
        listener.local_addr().unwrap().port()
    );
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    let mut opening = JoinSet::new();
    for number in 0..TUNNELS {
        let (path, host) = (filter.listen_path("s1"), host.clone());
        opening.spawn(async move {
            let mut client = tokio::net::UnixStream::connect(path).await.unwrap();
            let head = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            let answer = read_head(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            (number, client)
        });
    }
    let tunnels = within("all tunnels", opening.join_all()).await;
    let mut speaking = JoinSet::new();
    for (number, mut client) in tunnels {
        speaking.spawn(async move {
            let said = format!("tunnel {number:05}\n");
            client.write_all(said.as_bytes()).await.unwrap();
            let mut heard = vec![0; said.len()];
            client.read_exact(&mut heard).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&heard), said);
            client
        });
    }
    let tunnels = within("all answers", speaking.join_all()).await;
    assert_eq!(tunnels.len(), TUNNELS);
}
