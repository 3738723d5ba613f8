//! Origins answer and remember.

use handler_testkit::{HttpOrigin, TcpOrigin, eventually};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(30);

async fn exchange(port: u16, request: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn get(port: u16, path: &str) -> anyhow::Result<String> {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: origin\r\nX-Key: planted-value\r\nConnection: close\r\n\r\n"
    );
    exchange(port, &head).await
}

#[tokio::test]
async fn an_http_origin_remembers_headers_and_bodies() -> anyhow::Result<()> {
    let origin = HttpOrigin::start().await?;
    let post =
        "POST /echo HTTP/1.1\r\nHost: o\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody";
    assert!(
        exchange(origin.port(), post)
            .await?
            .ends_with("\r\n\r\nbody")
    );
    get(origin.port(), "/a?b=c").await?;
    let found = origin
        .wait_for(SOON, |request| request.mentions("planted-value"))
        .await?;
    assert_eq!(
        (found.method.as_str(), found.path.as_str()),
        ("GET", "/a?b=c")
    );
    assert!(origin.requests()[0].mentions("body") && !origin.requests()[0].mentions("planted"));
    Ok(())
}

#[tokio::test]
async fn an_http_origin_answers_its_paths() -> anyhow::Result<()> {
    let origin = HttpOrigin::start().await?;
    let port = origin.port();
    assert!(get(port, "/").await?.ends_with("hello from origin\n"));
    assert!(get(port, "/status/503").await?.starts_with("HTTP/1.1 503"));
    assert!(get(port, "/status/x").await?.starts_with("HTTP/1.1 400"));
    let there = get(port, "/redirect?to=http://127.0.0.1:9/x").await?;
    assert!(there.contains("location: http://127.0.0.1:9/x"));
    let many = get(port, "/bytes/200000").await?;
    assert_eq!(
        many.split_once("\r\n\r\n").map(|parts| parts.1.len()),
        Some(200_000)
    );
    assert!(
        get(port, "/bytes/99999999999")
            .await?
            .starts_with("HTTP/1.1 400")
    );
    Ok(())
}

#[tokio::test]
async fn a_tcp_origin_echoes_and_counts() -> anyhow::Result<()> {
    let origin = TcpOrigin::start().await?;
    let mut stream = TcpStream::connect(("127.0.0.1", origin.port())).await?;
    stream.write_all(b"ping").await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"ping");
    assert_eq!(
        (origin.connections(), origin.open(), origin.bytes()),
        (1, 1, 4)
    );
    drop(stream);
    eventually("the connection's end", SOON, || {
        std::future::ready((origin.open() == 0).then_some(()))
    })
    .await
}
