//! How fast a blind tunnel is, against a plain relay in the same run. Prints; judges nothing.

use crate::world::{Filter, enforce};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

const LENGTH: usize = 256 * 1024 * 1024;
const ROUNDS: usize = 7;

/// Seconds until everything a server sends has come through `stream`.
async fn receive(mut stream: UnixStream) -> f64 {
    let began = Instant::now();
    let mut buf = vec![0; 256 * 1024];
    let mut total = 0;
    while total < LENGTH {
        match stream.read(&mut buf).await.unwrap() {
            0 => panic!("the stream ended early"),
            read => total += read,
        }
    }
    began.elapsed().as_secs_f64()
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    LENGTH as f64 / seconds[seconds.len() / 2] / 1e6
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; run alone"]
#[expect(clippy::print_stdout, reason = "the figures are its result")]
async fn a_blind_tunnel_against_a_plain_relay() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let chunk = vec![7; 256 * 1024];
        while let Ok((mut stream, _)) = listener.accept().await {
            let chunk = chunk.clone();
            tokio::spawn(async move {
                for _ in 0..LENGTH / chunk.len() {
                    stream.write_all(&chunk).await.unwrap();
                }
            });
        }
    });
    let host = format!("host.containers.internal:{}", address.port());
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    let relay = filter.dir.path().join("relay.sock");
    let plain = UnixListener::bind(&relay).unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = plain.accept().await {
            tokio::spawn(async move {
                let mut far = TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional_with_sizes(&mut near, &mut far, 65536, 65536)
                    .await;
            });
        }
    });
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(receive(filter.tunnel(&host).await).await);
        theirs.push(receive(UnixStream::connect(&relay).await.unwrap()).await);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "tunnel {ours:.0} MB/s, relay {theirs:.0} MB/s, ratio {:.2}",
        ours / theirs
    );
}
