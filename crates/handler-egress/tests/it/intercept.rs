//! Tunnels to a secret's host, with TLS and without.

use crate::origin::{Origin, Received, Reply, certificate, certificate_for, streamed, text};
use crate::world::{
    Answer, Filter, PHANTOM, VALUE, enforce, injection, next_answer, read_head, within,
};
use base64::Engine;
use bytes::Bytes;
use handler_types::egress::EgressDecision;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const NAME: &str = "api.example.test";

/// A filter, an origin `api.example.test` with TLS behind it, and the sandbox's trust.
pub(crate) struct World {
    pub(crate) origin: Origin,
    pub(crate) host: String,
    pub(crate) filter: Filter,
    pub(crate) ca_pem: String,
}

impl World {
    pub(crate) async fn new(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::with(reply, NAME, true).await
    }

    async fn with(
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
        certified: &str,
        trusted: bool,
    ) -> Self {
        let (acceptor, roots) = certificate(certified);
        let origin = Origin::tls(acceptor, reply).await;
        Self::around(origin, trusted.then_some(roots)).await
    }

    /// The same with an origin that speaks these versions.
    pub(crate) async fn speaking(
        alpn: &[&str],
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let (acceptor, roots) = certificate_for(NAME, alpn);
        let origin = Origin::tls(acceptor, reply).await;
        Self::around(origin, Some(roots)).await
    }

    /// The same with other time limits.
    pub(crate) async fn limited(
        alpn: &[&str],
        limits: handler_egress::Limits,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let (acceptor, roots) = certificate_for(NAME, alpn);
        let origin = Origin::tls(acceptor, reply).await;
        Self::within_limits(origin, Some(roots), limits).await
    }

    /// The same around an origin, trusted by these roots.
    pub(crate) async fn around(origin: Origin, roots: Option<String>) -> Self {
        Self::within_limits(origin, roots, handler_egress::Limits::default()).await
    }

    async fn within_limits(
        origin: Origin,
        roots: Option<String>,
        limits: handler_egress::Limits,
    ) -> Self {
        let host = format!("{NAME}:{}", origin.port);
        let filter = Filter::start(|config| {
            config.limits = limits;
            let inside = vec!["127.0.0.1".parse().unwrap()];
            config.hosts.insert(NAME.to_owned(), inside);
            config.extra_roots_pem = roots;
        })
        .await;
        let literal = format!("127.0.0.1:{}", origin.port);
        let ca_pem = filter
            .put(enforce(&[&host, &literal]), vec![injection(&[&host])])
            .await;
        Self {
            origin,
            host,
            filter,
            ca_pem,
        }
    }

    pub(crate) async fn tls(&self, name: &str) -> std::io::Result<TlsStream<UnixStream>> {
        let tunnel = self.filter.tunnel(&self.host).await;
        connect_tls(tunnel, &self.ca_pem, name, &["http/1.1"]).await
    }

    /// TLS with a client that speaks these versions.
    pub(crate) async fn tls_for(&self, alpn: &[&str]) -> TlsStream<UnixStream> {
        let tunnel = self.filter.tunnel(&self.host).await;
        connect_tls(tunnel, &self.ca_pem, NAME, alpn).await.unwrap()
    }

    /// One request in a tunnel of its own; headers and body as given.
    pub(crate) async fn ask(&self, start: &str, headers: &str, body: &str) -> Answer {
        let mut tls = self.tls(NAME).await.unwrap();
        let head = format!(
            "{start} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n{body}",
            self.host
        );
        tls.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = within("the answer", tls.read_to_end(&mut answer)).await;
        Answer::parse(&answer)
    }

    async fn assert_no_value_in_events(&self, events: usize) {
        let events = self
            .filter
            .events_until(|event| event.seq >= events as u64)
            .await;
        let all = serde_json::to_string(&events).unwrap();
        assert!(!all.contains(VALUE) && !all.contains(PHANTOM), "{all}");
    }
}

/// TLS as a client with these roots speaks it.
pub(crate) async fn connect_tls(
    tunnel: UnixStream,
    roots_pem: &str,
    name: &str,
    alpn: &[&str],
) -> std::io::Result<TlsStream<UnixStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(roots_pem.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, tunnel);
    within("TLS", connecting).await
}

#[tokio::test]
async fn a_phantom_in_header_credentials_query_and_body_becomes_the_value() {
    let world = World::new(|_| text("fine")).await;
    let engine = base64::engine::general_purpose::STANDARD;
    let basic = engine.encode(format!("user:{PHANTOM}"));
    let body = format!("{{\"key\":\"{PHANTOM}\"}}");
    let answer = world
        .ask(
            &format!("POST /v1?key={PHANTOM}"),
            &format!(
                "X-Api-Key: {PHANTOM}\r\nAuthorization: Basic {basic}\r\n\
                 Accept-Encoding: gzip, br\r\nContent-Length: {}\r\n",
                body.len()
            ),
            &body,
        )
        .await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
    let received = &world.origin.received()[0];
    assert_eq!(received.target, format!("/v1?key={VALUE}"));
    assert_eq!(received.headers["x-api-key"], VALUE);
    assert_eq!(received.headers["host"], world.host.as_str());
    let basic = engine.encode(format!("user:{VALUE}"));
    let basic = format!("Basic {basic}");
    assert_eq!(received.headers["authorization"], basic.as_str());
    assert_eq!(received.headers["accept-encoding"], "identity");
    let body = format!("{{\"key\":\"{VALUE}\"}}");
    assert_eq!(String::from_utf8_lossy(&received.body), body);
    let events = world
        .filter
        .events_until(|event| event.decision == EgressDecision::Injected)
        .await;
    assert_eq!(events.len(), 2, "one for the tunnel, one for the secret");
    let injected = events.last().unwrap();
    assert_eq!(injected.host, world.host);
    assert_eq!(injected.secret.as_deref(), Some("providers/test/apiKey"));
    world.assert_no_value_in_events(2).await;
}

#[tokio::test]
async fn a_value_in_a_response_becomes_the_phantom_wherever_it_is_split() {
    let (send, receive) = mpsc::channel(1);
    let receive = std::sync::Mutex::new(Some(receive));
    let world = World::new(move |_| {
        let mut reply = streamed(receive.lock().unwrap().take().unwrap());
        let value = format!("k={VALUE}");
        reply
            .headers_mut()
            .insert("set-cookie", value.parse().unwrap());
        reply
    })
    .await;
    let mut tls = world.tls(NAME).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", world.host);
    tls.write_all(request.as_bytes()).await.unwrap();
    let head = within("the head", read_head(&mut tls)).await;
    assert!(head.contains(&format!("k={PHANTOM}")), "{head}");
    assert!(!head.contains(VALUE));
    for at in 1..VALUE.len() {
        let (front, back) = VALUE.split_at(at);
        send.send(Bytes::from(format!("data: {front}")))
            .await
            .unwrap();
        send.send(Bytes::from(format!("{back}\n\n"))).await.unwrap();
        // The end of the event is given at once, although the stream goes on.
        let mut got = String::new();
        within("the event", async {
            while !got.contains(PHANTOM) || !got.contains("\n\n") {
                let byte = char::from(tls.read_u8().await.unwrap());
                got.push(byte);
                // Chunk sizes between the pieces are no part of the body.
                if got.ends_with("\r\n") {
                    let line = got[..got.len() - 2].rfind("\r\n").map_or(0, |at| at + 2);
                    if u32::from_str_radix(got[line..].trim(), 16).is_ok() {
                        got.truncate(line.saturating_sub(2));
                    }
                }
            }
        })
        .await;
        assert!(!got.contains(VALUE));
    }
}

#[tokio::test]
async fn a_request_that_names_another_host_is_refused() {
    let world = World::new(|_| text("fine")).await;
    let mut tls = world.tls(NAME).await.unwrap();
    for host in [
        "Host: other.example\r\n".to_owned(),
        String::new(),
        format!("Host: {0}\r\nHost: {0}\r\n", world.host),
        format!("Host: {NAME}:1\r\n"),
    ] {
        let request = format!("GET / HTTP/1.1\r\n{host}\r\n");
        tls.write_all(request.as_bytes()).await.unwrap();
        let answer = next_answer(&mut tls).await;
        assert_eq!(answer.status, 403, "{host}");
        assert_eq!(answer.refusal().1, "host");
    }
    let event = world.filter.event(EgressDecision::Mismatch).await;
    assert_eq!(event.reason.as_deref(), Some("host"));
    // Without its port the host is the tunnel's.
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    tls.write_all(request.as_bytes()).await.unwrap();
    let head = within("the answer", read_head(&mut tls)).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(world.origin.received().len(), 1);
}

#[tokio::test]
async fn a_tls_server_name_other_than_the_tunnel_s_host_is_refused() {
    let world = World::new(|_| text("fine")).await;
    world.tls("other.example.test").await.expect_err("refused");
    world.tls("127.0.0.1").await.expect_err("no server name");
    let event = world.filter.event(EgressDecision::Mismatch).await;
    assert_eq!(event.reason.as_deref(), Some("sni"));
    assert_eq!(event.host, world.host);
    assert!(world.origin.received().is_empty());
}

#[tokio::test]
async fn a_server_that_cannot_prove_its_name_gets_no_secret() {
    for world in [
        World::with(|_| text("fine"), "other.example.test", true).await,
        World::with(|_| text("fine"), NAME, false).await,
    ] {
        let answer = world
            .ask("GET /", &format!("x-api-key: {PHANTOM}\r\n"), "")
            .await;
        assert_eq!(answer.status, 502);
        assert_eq!(answer.refusal().0, "handler_egress_unreachable");
        assert!(world.origin.received().is_empty());
    }
}

#[tokio::test]
async fn a_phantom_of_another_secret_inside_the_tunnel_is_a_leak() {
    let world = World::new(|_| text("fine")).await;
    let mut other = injection(&["elsewhere.example:443"]);
    other.name = "other/secret".to_owned();
    other.phantom = "other-PHANTOM-123".to_owned();
    other.value = "other-SECRETS-123".to_owned();
    let literal = format!("127.0.0.1:{}", world.origin.port);
    let injections = vec![injection(&[&world.host]), other];
    world
        .filter
        .put(enforce(&[&world.host, &literal]), injections)
        .await;
    let headers = format!("a: {PHANTOM}\r\nb: other-PHANTOM-123\r\n");
    let answer = world.ask("GET /", &headers, "").await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.refusal().0, "handler_egress_leak");
    let body = "other-PHANTOM-123";
    let headers = format!("Content-Length: {}\r\na: {PHANTOM}\r\n", body.len());
    let answer = world.ask("POST /", &headers, body).await;
    assert_eq!(answer.refusal().0, "handler_egress_leak");
    let event = world.filter.event(EgressDecision::Leak).await;
    assert_eq!(event.secret.as_deref(), Some("other/secret"));
    for received in world.origin.received() {
        assert!(!received.whole && received.body.is_empty(), "{received:?}");
    }
}

#[tokio::test]
async fn several_requests_share_a_tunnel_and_each_gives_the_secret() {
    let world = World::new(|received| text(received.target.clone())).await;
    let mut tls = world.tls(NAME).await.unwrap();
    for number in 0..3 {
        let request = format!(
            "GET /{number} HTTP/1.1\r\nHost: {}\r\nx-api-key: {PHANTOM}\r\n\r\n",
            world.host
        );
        tls.write_all(request.as_bytes()).await.unwrap();
        let head = within("the answer", read_head(&mut tls)).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        tls.read_exact(&mut [0; 2]).await.unwrap();
    }
    let events = world
        .filter
        .events_until(|event| event.decision == EgressDecision::Injected && event.seq == 4)
        .await;
    assert_eq!(events.len(), 4);
}

#[tokio::test]
async fn plain_http_in_the_tunnel_of_a_secret_s_host_is_looked_at_as_well() {
    let origin = Origin::plain(|_| text(VALUE)).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter
        .put(enforce(&[&host]), vec![injection(&[&host])])
        .await;
    let mut tunnel = filter.tunnel(&host).await;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nx-api-key: {PHANTOM}\r\nConnection: close\r\n\r\n"
    );
    tunnel.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    within("the answer", tunnel.read_to_end(&mut answer))
        .await
        .unwrap();
    assert_eq!(Answer::parse(&answer).text(), PHANTOM);
    assert_eq!(origin.received()[0].headers["x-api-key"], VALUE);
}

#[tokio::test]
async fn a_stream_inside_the_tunnel_ends_when_the_rules_forbid_its_host() {
    let (send, receive) = mpsc::channel(1);
    let receive = std::sync::Mutex::new(Some(receive));
    let world = World::new(move |_| streamed(receive.lock().unwrap().take().unwrap())).await;
    let mut tls = world.tls(NAME).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", world.host);
    tls.write_all(request.as_bytes()).await.unwrap();
    within("the head", read_head(&mut tls)).await;
    world.filter.put(enforce(&[]), vec![]).await;
    let mut rest = Vec::new();
    let _ = within("the end", tls.read_to_end(&mut rest)).await;
    within("the origin is let go", send.closed()).await;
}
