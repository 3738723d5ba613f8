//! Modes, refusals and live switching, seen from the sandbox.

use crate::origin::{Origin, text};
use crate::world::{Filter, enforce, filtered, injection, next_answer, read_head, within};
use handler_types::egress::{EgressDecision, EgressRefusal};
use handler_types::network::{Enforcement, NetworkPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn get(url: &str) -> String {
    format!("GET {url} HTTP/1.1\r\nHost: ignored\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn an_unlisted_host_is_refused_with_json_and_an_event() {
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&["listed.example:443"]), vec![]).await;
    for request in [
        get("http://other.example/x"),
        "CONNECT other.example:80 HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(),
    ] {
        let answer = filter.talk(request).await;
        assert_eq!(answer.status, 403);
        let refusal = ("handler_egress_denied".into(), "unlisted".into());
        assert_eq!(answer.refusal(), refusal);
        assert!(answer.text().contains("other.example:80"));
    }
    let event = filter.event(EgressDecision::Denied).await;
    assert_eq!(event.host, "other.example:80");
    assert_eq!(event.reason.as_deref(), Some("unlisted"));
    assert_eq!(
        (event.sandbox.as_str(), event.label.as_str()),
        ("s1", "label of s1")
    );
    assert_eq!(event.seq, 1);
}

#[tokio::test]
async fn a_refusal_and_its_event_say_the_same_on_every_path() {
    let filter = Filter::start(|_| {}).await;
    let listed = "listed.example:443";
    filter
        .put(enforce(&[listed]), vec![injection(&[listed])])
        .await;
    for request in [
        get("http://other.example/x"),
        "CONNECT other.example:443 HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(),
        get("http://169.254.169.254/latest"),
        "CONNECT localhost:80 HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(),
        "GET /no-host HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
    ] {
        let answer = filter.talk(request).await;
        let told: EgressRefusal = serde_json::from_str(&answer.text()).unwrap();
        let events = filter.events_until(|event| event.host == told.host).await;
        let event = events.last().unwrap();
        assert_eq!(Some(event.decision), told.decision);
        assert_eq!(event.reason.as_deref(), Some(told.reason.as_str()));
    }
}

#[tokio::test]
async fn destinations_that_could_mean_something_else_are_refused_with_their_reason() {
    let filter = Filter::start(|_| {}).await;
    filter.put(NetworkPolicy::Open, vec![]).await;
    for (request, reason) in [
        (get("http://a.example./"), "name"),
        (get("http://me:pw@a.example/"), "name"),
        (get("http://127.1/"), "name"),
        (get("http://2130706433/"), "name"),
        (get("http://0x7f000001/"), "name"),
        (get("http://a.example:0/"), "name"),
        (get("http://127.0.0.1:9/"), "address"),
        (get("http://[::1]:9/"), "address"),
        (get("http://[::ffff:127.0.0.1]:9/"), "address"),
        (get("http://169.254.169.254/latest/meta-data"), "address"),
        (get("http://localhost:9/"), "address"),
        (get("http://x.localhost:9/"), "address"),
        (get("http://host.containers.internal:9/"), "address"),
        (get("https://a.example/"), "target"),
        (get("/origin-form"), "target"),
    ] {
        let answer = filter.talk(&request).await;
        assert_eq!(answer.status, 403, "{request}");
        assert_eq!(answer.refusal().1, reason, "{request}");
    }
    let connect = "CONNECT a.example HTTP/1.1\r\nConnection: close\r\n\r\n";
    assert_eq!(filter.talk(connect).await.status, 403);
}

#[tokio::test]
async fn bytes_that_are_no_http_end_the_connection_and_are_reported() {
    let filter = Filter::start(|_| {}).await;
    filter.put(NetworkPolicy::Open, vec![]).await;
    let answer = filter
        .talk("GET http://ex\u{e4}mple.com/ HTTP/1.1\r\n\r\n")
        .await;
    assert_eq!(answer.status, 400);
    let event = filter.event(EgressDecision::Denied).await;
    assert_eq!(event.reason.as_deref(), Some("malformed"));
    let huge = format!(
        "GET http://a.example/ HTTP/1.1\r\nx: {}\r\n\r\n",
        "y".repeat(70_000)
    );
    assert_eq!(filter.talk(huge).await.status, 431);
}

#[tokio::test]
async fn without_network_everything_is_refused() {
    let filter = Filter::start(|_| {}).await;
    filter.put(NetworkPolicy::None, vec![]).await;
    let answer = filter.talk(get("http://a.example/")).await;
    assert_eq!(answer.refusal().1, "policy none");
}

#[tokio::test]
async fn a_name_that_resolves_inside_is_refused_although_it_is_listed() {
    let origin = Origin::plain(|_| text("secret")).await;
    let host = format!("rebind.example:{}", origin.port);
    let filter = Filter::start(|config| {
        let inside = vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        config.hosts.insert("rebind.example".to_owned(), inside);
    })
    .await;
    filter.put(enforce(&[&host]), vec![]).await;
    let answer = filter.talk(get(&format!("http://{host}/"))).await;
    assert_eq!(answer.refusal().1, "address");
    // An entry that names the very address makes it reachable.
    let literal = format!("127.0.0.1:{}", origin.port);
    filter.put(enforce(&[&host, &literal]), vec![]).await;
    let answer = filter.talk(get(&format!("http://{host}/"))).await;
    assert_eq!(answer.text(), "secret");
}

#[tokio::test]
async fn switching_enforcement_counts_from_the_next_request_of_the_same_connection() {
    let origin = Origin::plain(|_| text("hello")).await;
    let literal = format!("127.0.0.1:{}", origin.port);
    let name = format!("learned.example:{}", origin.port);
    let filter = Filter::start(|config| {
        let inside = vec!["127.0.0.1".parse().unwrap()];
        config.hosts.insert("learned.example".to_owned(), inside);
    })
    .await;
    let put = |enforcement| {
        let policy = filtered(std::slice::from_ref(&literal), enforcement);
        filter.put(policy, vec![])
    };
    let request = format!("GET http://{name}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    put(Enforcement::Enforce).await;
    let mut client = filter.client().await;
    for (enforcement, status) in [(Enforcement::Enforce, 403), (Enforcement::LogOnly, 200)] {
        put(enforcement).await;
        client.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(next_answer(&mut client).await.status, status);
    }
    // What was only tolerated is closed as soon as it is not any more.
    put(Enforcement::Enforce).await;
    let read = within("the end", client.read(&mut [0; 8])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let mut client = filter.client().await;
    client.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(next_answer(&mut client).await.status, 403);
    let events = filter
        .events_until(|event| event.decision == EgressDecision::Denied && event.seq > 2)
        .await;
    let decisions: Vec<EgressDecision> = events
        .iter()
        .map(|event| event.decision)
        .filter(|decision| *decision != EgressDecision::Ended)
        .collect();
    assert_eq!(
        decisions,
        [
            EgressDecision::Denied,
            EgressDecision::Unlisted,
            EgressDecision::Denied
        ]
    );
}

#[tokio::test]
async fn a_tunnel_is_closed_when_the_policy_forbids_it_and_others_live_on() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let alias = format!("host.containers.internal:{port}");
    let literal = format!("127.0.0.1:{port}");
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&alias, &literal]), vec![]).await;
    let mut doomed = filter.tunnel(&alias).await;
    let (_doomed_server, _) = listener.accept().await.unwrap();
    let mut kept = filter.tunnel(&literal).await;
    let (mut kept_server, _) = listener.accept().await.unwrap();
    filter.put(enforce(&[&literal]), vec![]).await;
    let mut buf = [0; 16];
    let read = within("the tunnel ends", doomed.read(&mut buf)).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    kept.write_all(b"still here").await.unwrap();
    let read = within("the other tunnel", kept_server.read(&mut buf)).await;
    assert_eq!(&buf[..read.unwrap()], b"still here");
}

#[tokio::test]
async fn sandboxes_are_told_apart_by_their_listener_alone() {
    let origin = Origin::plain(|_| text("hello")).await;
    let alias = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter.put_for("s2", enforce(&[&alias]), vec![]).await;
    filter.put_for("s1", enforce(&[]), vec![]).await;
    let answer = filter.talk(get(&format!("http://{alias}/"))).await;
    assert_eq!(answer.status, 403);
    let mut other = tokio::net::UnixStream::connect(filter.listen_path("s2"))
        .await
        .unwrap();
    let request = get(&format!("http://{alias}/"));
    other.write_all(request.as_bytes()).await.unwrap();
    let head = within("an answer", read_head(&mut other)).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}
