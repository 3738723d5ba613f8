//! Blind tunnels.

use crate::world::{Filter, enforce, within};
use handler_types::egress::EgressRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn world() -> (TcpListener, String, Filter) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = format!("host.containers.internal:{port}");
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    (listener, host, filter)
}

#[tokio::test]
async fn a_server_may_speak_first_and_a_half_closed_tunnel_still_answers() {
    let (listener, host, filter) = world().await;
    let mut client = filter.tunnel(&host).await;
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"220 ready").await.unwrap();
    let mut greeting = [0; 9];
    within("the greeting", client.read_exact(&mut greeting))
        .await
        .unwrap();
    assert_eq!(&greeting, b"220 ready");
    client.write_all(b"all I say").await.unwrap();
    client.shutdown().await.unwrap();
    let mut said = String::new();
    within("the end", server.read_to_string(&mut said))
        .await
        .unwrap();
    assert_eq!(said, "all I say");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = String::new();
    within("the answer", client.read_to_string(&mut answer))
        .await
        .unwrap();
    assert_eq!(answer, "answer");
}

#[tokio::test]
async fn bytes_sent_before_the_tunnel_stood_are_not_lost() {
    let (listener, host, filter) = world().await;
    let mut client = filter.client().await;
    let head = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\nearly bytes");
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut server, _) = within("the connection", listener.accept()).await.unwrap();
    let mut early = [0; 11];
    within("the bytes", server.read_exact(&mut early))
        .await
        .unwrap();
    assert_eq!(&early, b"early bytes");
}

#[tokio::test]
async fn tens_of_megabytes_pass_both_ways_at_once_unchanged() {
    let (listener, host, filter) = world().await;
    let client = filter.tunnel(&host).await;
    let (server, _) = listener.accept().await.unwrap();
    let length = 24 * 1024 * 1024;
    let bytes = |seed: usize| -> Vec<u8> {
        (0..length)
            .map(|at| ((at * 31 + seed) % 251) as u8)
            .collect()
    };
    let (from_client, from_server) = (bytes(1), bytes(2));
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let (wanted_there, wanted_here) = (from_client.clone(), from_server.clone());
    let sends = tokio::spawn(async move {
        client_write.write_all(&from_client).await.unwrap();
        client_write.shutdown().await.unwrap();
    });
    let answers = tokio::spawn(async move {
        server_write.write_all(&from_server).await.unwrap();
        server_write.shutdown().await.unwrap();
    });
    let (mut there, mut here) = (Vec::new(), Vec::new());
    within("all bytes", async {
        tokio::try_join!(
            server_read.read_to_end(&mut there),
            client_read.read_to_end(&mut here)
        )
    })
    .await
    .unwrap();
    sends.await.unwrap();
    answers.await.unwrap();
    assert!(there == wanted_there && here == wanted_here);
}

#[tokio::test]
async fn a_tunnel_to_a_host_that_gets_a_secret_from_now_on_is_closed() {
    let (listener, host, filter) = world().await;
    let mut client = filter.tunnel(&host).await;
    let _server = listener.accept().await.unwrap();
    let injections = vec![crate::world::injection(&[&host])];
    filter.put(enforce(&[&host]), injections).await;
    let read = within("the end", client.read(&mut [0; 8])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn removing_a_sandbox_ends_its_tunnels_and_its_listener_at_once() {
    let (listener, host, filter) = world().await;
    let mut client = filter.tunnel(&host).await;
    let (mut server, _) = listener.accept().await.unwrap();
    let sandbox = "s1".to_owned();
    let mut control = filter.control().await;
    control.ask(&EgressRequest::Remove { sandbox }).await;
    for read in [
        within("the end", client.read(&mut [0; 8])).await,
        within("the end", server.read(&mut [0; 8])).await,
    ] {
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    assert!(!filter.listen_path("s1").exists());
}
