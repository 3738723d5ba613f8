//! Whether names may be looked up, asked over the sandbox's own socket.

use crate::world::{Filter, enforce, filtered, next_answer, read_head, within};
use handler_types::egress::EgressDecision;
use handler_types::network::{Enforcement, NetworkPolicy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

fn ask(name: &str) -> String {
    format!(
        "GET http://names.handler.internal/v1/names/{name} HTTP/1.1\r\nHost: names.handler.internal\r\n\r\n"
    )
}

/// The status of one question on a connection that is kept.
async fn status(client: &mut UnixStream, name: &str) -> u16 {
    client.write_all(ask(name).as_bytes()).await.unwrap();
    let head = within("an answer", read_head(client)).await;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if status != 204 {
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").parse().unwrap();
        client.read_exact(&mut vec![0; length]).await.unwrap();
    }
    status
}

#[tokio::test]
async fn a_name_is_known_where_some_port_of_it_is_listed() {
    let filter = Filter::start(|_| {}).await;
    let entries: Vec<String> = (0..10_000)
        .map(|at| format!("h{at}.example:443"))
        .chain(["git.example:22", "*.wild.example:443"].map(str::to_owned))
        .chain(["host.containers.internal:3000".to_owned()])
        .collect();
    let log_only = filtered(&entries, Enforcement::LogOnly);
    let enforced = filtered(&entries, Enforcement::Enforce);
    let mut client = None;
    for (policy, column) in [
        (enforced, 0),
        (log_only, 1),
        (NetworkPolicy::Open, 2),
        (NetworkPolicy::None, 3),
    ] {
        filter.put(policy, vec![]).await;
        // One connection through all changes of the rules.
        if client.is_none() {
            client = Some(filter.client().await);
        }
        let client = client.as_mut().unwrap();
        for (name, wanted) in [
            ("h9999.example", [204, 204, 204, 404]),
            ("GIT.example", [204, 204, 204, 404]),
            ("a.b.wild.example", [204, 204, 204, 404]),
            ("wild.example", [404, 204, 204, 404]),
            ("other.example", [404, 204, 204, 404]),
            ("host.containers.internal", [204, 204, 404, 404]),
            ("names.handler.internal", [404; 4]),
            ("localhost", [404; 4]),
            ("x.localhost", [404; 4]),
            ("git.example.", [404; 4]),
            ("git.example:22", [404; 4]),
            ("git%2eexample", [404; 4]),
            ("127.0.0.1", [404; 4]),
            ("127.1", [404; 4]),
            ("", [404; 4]),
            ("git.example/", [404; 4]),
            ("git.example?x", [404; 4]),
        ] {
            assert_eq!(
                status(client, name).await,
                wanted[column],
                "{name} {column}"
            );
        }
    }
}

#[tokio::test]
async fn a_refusal_has_the_one_shape_and_repeated_questions_are_reported_once() {
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&["a.example:443"]), vec![]).await;
    let mut client = filter.client().await;
    for name in ["b.example", "B.example", "b.example", "c.example", "a..b"] {
        client.write_all(ask(name).as_bytes()).await.unwrap();
        let answer = next_answer(&mut client).await;
        assert_eq!(answer.status, 404);
        let reason = if name == "a..b" { "name" } else { "unlisted" };
        let refusal = ("handler_egress_denied".to_owned(), reason.to_owned());
        assert_eq!(answer.refusal(), refusal, "{name}");
    }
    let events = filter.events_until(|event| event.host == "a..b").await;
    let told: Vec<(EgressDecision, &str)> = events
        .iter()
        .map(|event| (event.decision, event.host.as_str()))
        .collect();
    let denied = EgressDecision::Denied;
    assert_eq!(
        told,
        [
            (denied, "b.example"),
            (denied, "c.example"),
            (denied, "a..b")
        ]
    );
    assert_eq!(events[0].reason.as_deref(), Some("unlisted"));
}

#[tokio::test]
async fn the_filter_s_own_name_is_never_dialled() {
    let filter = Filter::start(|config| {
        // Whoever could name an address for it would be asked otherwise.
        let here = vec!["127.0.0.1".parse().unwrap()];
        config
            .hosts
            .insert("names.handler.internal".to_owned(), here);
    })
    .await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let literal = format!("127.0.0.1:{port}");
    let name = format!("names.handler.internal:{port}");
    let below = format!("*.handler.internal:{port}");
    let entries = [&literal, &name, &below].map(String::as_str);
    for policy in [
        enforce(&entries),
        filtered(&entries.map(str::to_owned), Enforcement::LogOnly),
        NetworkPolicy::Open,
    ] {
        filter.put(policy, vec![]).await;
        for host in ["names.handler.internal", "NAMES.Handler.INTERNAL"] {
            for request in [
                format!("CONNECT {host}:{port} HTTP/1.1\r\nConnection: close\r\n\r\n"),
                format!("CONNECT {host}:80 HTTP/1.1\r\nConnection: close\r\n\r\n"),
                format!(
                    "GET http://{host}:{port}/v1/names/a.b HTTP/1.1\r\nConnection: close\r\n\r\n"
                ),
                format!("GET http://{host}:{port}/ HTTP/1.1\r\nConnection: close\r\n\r\n"),
            ] {
                let answer = filter.talk(&request).await;
                assert_eq!(answer.status, 403, "{request}");
                assert_eq!(answer.refusal().1, "reserved", "{request}");
            }
        }
        for (request, reason) in [
            ("CONNECT names.handler.internal.:80", "name"),
            ("CONNECT names%2ehandler.internal:80", "name"),
            ("GET http://names.handler.internal./v1/names/a.b", "name"),
            ("GET http://u@names.handler.internal/v1/names/a.b", "name"),
        ] {
            let request = format!("{request} HTTP/1.1\r\nConnection: close\r\n\r\n");
            let answer = filter.talk(&request).await;
            assert!(matches!(answer.status, 403 | 400), "{request}");
            if answer.status == 403 {
                assert_eq!(answer.refusal().1, reason, "{request}");
            }
        }
        for (method, path) in [
            ("POST", "/v1/names/a.b"),
            ("HEAD", "/v1/names/a.b"),
            ("GET", "/"),
            ("GET", "/v1/names"),
        ] {
            let request = format!(
                "{method} http://names.handler.internal{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            );
            assert_eq!(filter.talk(&request).await.status, 404, "{request}");
        }
    }
    let waiting = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
    assert!(waiting.is_err(), "somebody was dialled");
}
