//! Behind a proxy that the machine has to use.

use crate::world::{Answer, Filter, enforce, filtered, read_head, within};
use handler_egress::UpstreamProxy;
use handler_types::network::Enforcement;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A proxy that notes what it is asked, greets first, and then echoes. It knows one name.
async fn proxy() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = read_head(&mut stream).await;
            let known = head.contains("outside.invalid");
            notes.lock().unwrap().push(head);
            tokio::spawn(async move {
                if !known {
                    let _ = stream.write_all(b"HTTP/1.1 407 No\r\n\r\n").await;
                    return;
                }
                // The other end speaks at once: its bytes come with the answer.
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\nhello ")
                    .await;
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    (port, asked)
}

#[tokio::test]
async fn the_outside_is_reached_through_the_proxy_by_name_and_with_its_credentials() {
    let (port, asked) = proxy().await;
    let url = format!("http://user:pass@127.0.0.1:{port}");
    let filter = Filter::start(|config| {
        config.upstream_proxy = Some(UpstreamProxy::new(&url, "").unwrap());
    })
    .await;
    filter.put(enforce(&["outside.invalid:443"]), vec![]).await;
    let mut tunnel = filter.tunnel("outside.invalid:443").await;
    tunnel.write_all(b"world").await.unwrap();
    let mut got = [0; 11];
    within("the echo", tunnel.read_exact(&mut got))
        .await
        .unwrap();
    assert_eq!(&got, b"hello world");
    let asked = asked.lock().unwrap().clone();
    assert!(asked[0].starts_with("CONNECT outside.invalid:443 HTTP/1.1\r\n"));
    assert!(asked[0].contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"));
}

#[tokio::test]
async fn the_machine_itself_and_exceptions_are_not_asked_of_the_proxy() {
    let (port, asked) = proxy().await;
    let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin_port = origin.local_addr().unwrap().port();
    let filter = Filter::start(|config| {
        let url = format!("http://127.0.0.1:{port}");
        config.upstream_proxy = Some(UpstreamProxy::new(&url, "direct.invalid").unwrap());
    })
    .await;
    let entries = [
        format!("host.containers.internal:{origin_port}"),
        format!("127.0.0.1:{origin_port}"),
    ];
    filter
        .put(filtered(&entries, Enforcement::LogOnly), vec![])
        .await;
    for entry in &entries {
        drop(filter.tunnel(entry).await);
    }
    let ask = |host: &str| format!("CONNECT {host} HTTP/1.1\r\nConnection: close\r\n\r\n");
    // Not asked of the proxy, and nothing else knows it.
    let answer: Answer = filter.talk(ask("direct.invalid:443")).await;
    assert_eq!(answer.refusal().1, "resolve");
    assert!(asked.lock().unwrap().is_empty());
    // Never dialled, with a proxy or without.
    let answer = filter.talk(ask("169.254.169.254:80")).await;
    assert_eq!(answer.refusal().1, "address");
    assert!(asked.lock().unwrap().is_empty());
    let answer = filter.talk(ask("unknown.invalid:443")).await;
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("407"), "{}", answer.text());
}

/// A SOCKS 5 proxy that wants a name and a password, notes where it is asked to lead, greets, and then echoes.
async fn socks() -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut methods = [0; 2];
            stream.read_exact(&mut methods).await.unwrap();
            let mut offered = vec![0; usize::from(methods[1])];
            stream.read_exact(&mut offered).await.unwrap();
            assert!(offered.contains(&2), "{offered:?}");
            stream.write_all(&[5, 2]).await.unwrap();
            let mut credentials = [0; 11];
            stream.read_exact(&mut credentials).await.unwrap();
            let is_known = &credentials == b"\x01\x04user\x04pass";
            stream.write_all(&[1, u8::from(!is_known)]).await.unwrap();
            if !is_known {
                continue;
            }
            let mut head = vec![0; 5];
            stream.read_exact(&mut head).await.unwrap();
            let mut rest = vec![0; usize::from(head[4]) + 2];
            stream.read_exact(&mut rest).await.unwrap();
            let is_refused = rest.starts_with(b"refused");
            notes.lock().unwrap().push([head, rest].concat());
            let code = if is_refused { 2 } else { 0 };
            stream
                .write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0])
                .await
                .unwrap();
            tokio::spawn(async move {
                let _ = stream.write_all(b"hello ").await;
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    (port, asked)
}

#[tokio::test]
async fn a_socks_proxy_is_asked_by_name_with_its_credentials_and_may_refuse() {
    let (port, asked) = socks().await;
    let filter_by = async |user: &str| {
        let url = format!("socks5h://{user}@127.0.0.1:{port}");
        let filter = Filter::start(|config| {
            config.upstream_proxy = Some(UpstreamProxy::new(&url, "").unwrap());
        })
        .await;
        let entries = ["outside.invalid:443", "refused.invalid:443"];
        filter.put(enforce(&entries), vec![]).await;
        filter
    };
    let filter = filter_by("user:pass").await;
    let mut tunnel = filter.tunnel("outside.invalid:443").await;
    tunnel.write_all(b"world").await.unwrap();
    let mut got = [0; 11];
    within("the echo", tunnel.read_exact(&mut got))
        .await
        .unwrap();
    assert_eq!(&got, b"hello world");
    let first = asked.lock().unwrap()[0].clone();
    assert_eq!(first, b"\x05\x01\x00\x03\x0foutside.invalid\x01\xbb");
    let ask = |host: &str| format!("CONNECT {host} HTTP/1.1\r\nConnection: close\r\n\r\n");
    let answer: Answer = filter.talk(ask("refused.invalid:443")).await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    let stranger = filter_by("user:fail").await;
    let answer: Answer = stranger.talk(ask("outside.invalid:443")).await;
    assert_eq!(answer.status, 502);
    assert!(!answer.text().contains("fail\""), "{}", answer.text());
}
