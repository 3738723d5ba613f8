//! Connections to ports, against the real guest program.

use crate::guest::Real;
use handler_engine::guest::GuestCallError;
use handler_types::guest::GuestErrorCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

async fn server() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    (listener, port)
}

async fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().await.expect("a connection").0
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_direction_ends_on_its_own() {
    let Some(real) = Real::new("bytes_pass_both_ways") else {
        return;
    };
    let handle = real.link().await;
    let (listener, port) = server().await;
    let (stream, mut peer) = tokio::join!(handle.connect_port(port), accept(&listener));
    let mut stream = stream.expect("connected");
    stream.write_all(b"question").await.expect("sent");
    stream.shutdown().await.expect("half closed");
    let mut got = Vec::new();
    peer.read_to_end(&mut got).await.expect("until its end");
    assert_eq!(got, b"question");
    peer.write_all(b"answer")
        .await
        .expect("the other way is open");
    drop(peer);
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.expect("until its end");
    assert_eq!(got, b"answer");

    // The other way round: the server ends first.
    let (stream, mut peer) = tokio::join!(handle.connect_port(port), accept(&listener));
    let mut stream = stream.expect("connected");
    peer.write_all(b"bye").await.expect("sent");
    peer.shutdown().await.expect("half closed");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.expect("until its end");
    assert_eq!(got, b"bye");
    stream.write_all(b"still here").await.expect("open");
    stream.shutdown().await.expect("closed");
    let mut got = Vec::new();
    peer.read_to_end(&mut got).await.expect("until its end");
    assert_eq!(got, b"still here");
    // Neither is a process.
    assert!(handle.processes().await.expect("listed").is_empty());
}

#[tokio::test]
async fn megabytes_pass_at_once_in_both_directions() {
    let Some(real) = Real::new("megabytes_pass_at_once") else {
        return;
    };
    let handle = real.link().await;
    let (listener, port) = server().await;
    let echo = tokio::spawn(async move {
        let (mut from, mut to) = accept(&listener).await.into_split();
        tokio::io::copy(&mut from, &mut to).await.expect("echoed");
    });
    let (mut from, mut to) = tokio::io::split(handle.connect_port(port).await.expect("connected"));
    let piece: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 253) as u8).collect();
    let send = async {
        for _ in 0..8 {
            to.write_all(&piece).await.expect("sent");
        }
        to.shutdown().await.expect("closed");
    };
    let receive = async {
        let mut got = Vec::new();
        from.read_to_end(&mut got).await.expect("received");
        got
    };
    let ((), got) = tokio::join!(send, receive);
    assert!(got == piece.repeat(8));
    echo.await.expect("ended well");
}

#[tokio::test]
async fn a_port_nobody_listens_on_is_refused_and_a_reset_is_no_end() {
    let Some(real) = Real::new("a_port_nobody_listens_on") else {
        return;
    };
    let handle = real.link().await;
    let (listener, port) = server().await;
    let (stream, peer) = tokio::join!(handle.connect_port(port), accept(&listener));
    let mut stream = stream.expect("connected");
    peer.set_zero_linger().expect("set");
    drop(peer);
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.expect_err("reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    drop(listener);
    for port in [port, 0] {
        match handle.connect_port(port).await {
            Err(GuestCallError::Refused(error)) if port > 0 => {
                assert_eq!(error.code, GuestErrorCode::NotFound);
                assert!(error.message.contains(&port.to_string()), "{error}");
            }
            Err(GuestCallError::Refused(error)) => assert_eq!(error.code, GuestErrorCode::Invalid),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn dropping_the_stream_ends_the_connection_and_a_server_that_does_not_read_stalls_only_its_own()
 {
    let Some(real) = Real::new("dropping_the_stream") else {
        return;
    };
    let handle = real.link().await;
    let (listener, port) = server().await;
    let (stalled, peer) = tokio::join!(handle.connect_port(port), accept(&listener));
    let mut stalled = stalled.expect("connected");
    // Far more than the kernel's buffers and the window hold.
    let flood = vec![0; 32 * 1024 * 1024];
    let flooding = tokio::spawn(async move {
        stalled.write_all(&flood).await.ok();
    });
    let (other, mut other_peer) = tokio::join!(handle.connect_port(port), accept(&listener));
    let mut other = other.expect("connected");
    other.write_all(b"x").await.expect("sent");
    assert_eq!(other_peer.read_u8().await.expect("received"), b'x');
    assert!(!flooding.is_finished());
    flooding.abort();
    drop(other);
    assert_eq!(other_peer.read(&mut [0]).await.expect("closed"), 0);
    drop(peer);
}
