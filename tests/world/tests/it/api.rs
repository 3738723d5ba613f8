//! The API as strangers and clients meet it: who may speak, the one shape of refusals, keys, pages, events.

use crate::support::{LONG, Reply, Sandbox, http, world};
use anyhow::Context as _;
use handler_testkit::World;
use handler_types::event::ServerEvent;
use handler_types::network::NetworkPolicy;
use handler_types::api::NetworkUpdate;
use handler_types::sandbox::SandboxState;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A refusal in our shape with this status and code.
fn problem(reply: &Reply, status: u16, code: &str) -> Value {
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(reply.head.contains("content-type: application/problem+json"), "{reply:?}");
    let body: Value = serde_json::from_str(&reply.body).expect("JSON");
    assert_eq!(body["status"], status, "{body}");
    assert_eq!(body["code"], code, "{body}");
    assert!(body["title"].is_string() && body["detail"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    body
}

struct Speaker {
    port: u16,
    host: String,
    token: String,
}

impl Speaker {
    fn new(world: &World) -> anyhow::Result<Self> {
        let port = world.port()?;
        Ok(Self {
            port,
            host: format!("Host: 127.0.0.1:{port}"),
            token: format!("Authorization: Bearer {}", world.token()?),
        })
    }

    async fn say(&self, line: &str, headers: &[&str], body: &str) -> anyhow::Result<Reply> {
        let line = format!("{line} HTTP/1.1");
        http(self.port, &[&[line.as_str(), &self.host, &self.token], headers].concat(), body).await
    }
}

#[tokio::test]
async fn strangers_and_other_sites_are_turned_away() -> anyhow::Result<()> {
    let world = world().await?;
    let to = Speaker::new(&world)?;
    let get = "GET /v1/sandboxes HTTP/1.1";
    assert_eq!(to.say("GET /v1/sandboxes", &[], "").await?.status, 200);
    let wrong = format!("Authorization: Bearer {}", "0".repeat(64));
    let cut = &to.token[..to.token.len() - 1];
    for token in [None, Some(wrong.as_str()), Some(cut), Some("Authorization: Bearer "), Some("Authorization: Basic eDp5")] {
        let mut head = vec![get, to.host.as_str()];
        head.extend(token);
        problem(&http(to.port, &head, "").await?, 401, "unauthorized");
    }
    let query = format!("GET /v1/sandboxes?token={} HTTP/1.1", world.token()?);
    problem(&http(to.port, &[&query, &to.host], "").await?, 401, "unauthorized");
    for host in ["evil.example", "evil.example:80", "127.0.0.1:1", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
        let host = format!("Host: {host}");
        problem(&http(to.port, &[get, &host, &to.token], "").await?, 403, "forbidden");
        let health = http(to.port, &["GET /v1/health HTTP/1.1", &host], "").await?;
        problem(&health, 403, "forbidden");
    }
    for origin in ["http://evil.example", "null", "https://127.0.0.1", "http://localhost:1", "file://"] {
        let origin = format!("Origin: {origin}");
        problem(&http(to.port, &[get, &to.host, &to.token, &origin], "").await?, 403, "forbidden");
        let upgrade = [
            "GET /v1/sandboxes/x/processes/1/attach HTTP/1.1", &to.host, &to.token, &origin, "Connection: upgrade",
            "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        ];
        problem(&http(to.port, &upgrade, "").await?, 403, "forbidden");
    }
    let own = format!("Origin: http://localhost:{}", to.port);
    let answered = to.say("GET /v1/sandboxes", &[&own], "").await?;
    assert_eq!(answered.status, 200);
    assert!(!answered.head.contains("access-control-allow"), "{}", answered.head);
    let preflight = http(to.port, &["OPTIONS /v1/sandboxes HTTP/1.1", &to.host, "Origin: http://evil.example"], "").await?;
    assert_eq!(preflight.status, 403);
    assert_eq!(http(to.port, &["GET /v1/health HTTP/1.1", &to.host], "").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn every_refusal_has_the_one_shape() -> anyhow::Result<()> {
    let world = world().await?;
    let to = Speaker::new(&world)?;
    let json = "Content-Type: application/json";
    for path in ["/v1/nothing", "/", "/v2/sandboxes", "/v1/sandboxes/nobody", "/v1/sandboxes/%2e%2e%2fx"] {
        problem(&to.say(&format!("GET {path}"), &[], "").await?, 404, "not_found");
    }
    for body in ["", "{", "[]", "null", "{\"nmae\":\"x\"}", "{\"name\":7}", "{\"network\":{\"mode\":\"most\"}}",
        "{\"network\":{\"mode\":\"filtered\",\"allow\":[\"example.com\"]}}", "\"\u{0}\""]
    {
        let reply = to.say("POST /v1/sandboxes", &[json], body).await?;
        assert!(reply.status == 400 || reply.status == 422, "{body}: {reply:?}");
        problem(&reply, reply.status, "invalid");
    }
    let typo = to.say("POST /v1/sandboxes", &[json], "{\"nmae\":\"x\"}").await?;
    assert!(typo.body.contains("nmae"), "{typo:?}");
    let untyped = to.say("POST /v1/sandboxes", &[], "{}").await?;
    problem(&untyped, untyped.status, "invalid");
    let method = to.say("PATCH /v1/secrets", &[], "").await?;
    problem(&method, method.status, "invalid");
    let huge = format!("{{\"value\":\"{}\"}}", "x".repeat(70_000));
    let reply = to.say("PUT /v1/secrets/a", &[json], &huge).await?;
    let body = problem(&reply, reply.status, "invalid");
    assert!(!body.to_string().contains("xxxxxxxx"), "a value is in its own refusal");
    problem(&to.say("PUT /v1/secrets/..%2f..%2fx", &[json], "{\"value\":\"abc\"}").await?, 400, "invalid");
    problem(&to.say("GET /v1/sandboxes?limit=-1", &[], "").await?, 400, "invalid");
    assert_eq!(world.client().sandboxes("", 9).await?.items.len(), 0);
    Ok(())
}

#[tokio::test]
async fn a_request_sent_again_under_its_key_makes_one_sandbox_even_after_a_restart() -> anyhow::Result<()> {
    let mut world = world().await?;
    let to = Speaker::new(&world)?;
    let key = "Idempotency-Key: once";
    let json = "Content-Type: application/json";
    let first = to.say("POST /v1/sandboxes", &[key, json], "{\"name\":\"one\"}").await?;
    assert_eq!(first.status, 201, "{first:?}");
    let id = |reply: &Reply| serde_json::from_str::<Value>(&reply.body).expect("JSON")["id"].clone();
    let again = to.say("POST /v1/sandboxes", &[key, json], "{\"name\":\"one\"}").await?;
    assert_eq!((again.status, id(&again)), (201, id(&first)));
    assert!(again.head.contains("idempotency-replayed: true"), "{}", again.head);
    problem(&to.say("POST /v1/sandboxes", &[key, json], "{\"name\":\"two\"}").await?, 409, "conflict");
    world.kill9()?;
    world.start_daemon().await?;
    let to = Speaker::new(&world)?;
    let later = to.say("POST /v1/sandboxes", &[key, json], "{\"name\":\"one\"}").await?;
    assert_eq!((later.status, id(&later)), (201, id(&first)));
    assert_eq!(world.client().sandboxes("", 9).await?.items.len(), 1);
    let long = format!("Idempotency-Key: {}", "k".repeat(201));
    problem(&to.say("POST /v1/sandboxes", &[&long, json], "{}").await?, 400, "invalid");
    // Many at once under one key: one is made; the others wait their turn or are told so.
    let head = ["Idempotency-Key: race", json];
    let racing = (0..6).map(|_| to.say("POST /v1/sandboxes", &head, "{}"));
    for reply in futures::future::try_join_all(racing).await? {
        assert!(reply.status == 201 || reply.status == 409, "{reply:?}");
    }
    assert_eq!(world.client().sandboxes("", 9).await?.items.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_list_is_read_page_by_page_while_others_are_made() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let mut wanted = Vec::new();
    for _ in 0..7 {
        wanted.insert(0, Sandbox::plain(&world).await?.id);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.sandboxes(&cursor, 3).await?;
        assert!(page.items.len() <= 3);
        seen.extend(page.items.iter().map(|view| view.id.to_string()));
        // What is new comes before the first page, and moves no later one.
        Sandbox::plain(&world).await?;
        match page.next_cursor {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert_eq!(seen, wanted);
    let to = Speaker::new(&world)?;
    let running = to.say("GET /v1/sandboxes?state=stopped", &[], "").await?;
    assert!(running.body.starts_with("{\"items\":[]"), "{running:?}");
    Ok(())
}

#[tokio::test]
async fn what_changes_is_told_as_events() -> anyhow::Result<()> {
    let world = world().await?;
    let mut events = world.client().events().await?;
    let sandbox = Sandbox::plain(&world).await?;
    sandbox.sh("curl -sS -m 20 http://denied.example/ || wget -q -O- http://denied.example/").await?;
    let update = NetworkUpdate { network: NetworkPolicy::Open };
    sandbox.client.set_network(&sandbox.id, &update).await?;
    world.client().delete_sandbox(&sandbox.id).await?;
    let (mut states, mut denied, mut opened) = (Vec::new(), false, false);
    loop {
        let event = tokio::time::timeout(LONG, events.next()).await??.context("the stream ended")?;
        match event {
            ServerEvent::Sandbox { sandbox: view } if view.id.as_str() == sandbox.id => {
                opened |= view.network == NetworkPolicy::Open;
                states.push(view.state);
            }
            ServerEvent::Egress { event } => denied |= event.host == "denied.example:80",
            ServerEvent::SandboxRemoved { id } if id == sandbox.id => break,
            ServerEvent::Missed => anyhow::bail!("events were missed"),
            _ => {}
        }
    }
    states.dedup();
    assert_eq!(states.first(), Some(&SandboxState::Creating), "{states:?}");
    assert!(states.contains(&SandboxState::Running), "{states:?}");
    assert!(opened, "the change of the network was not told");
    assert!(denied, "the denied request was not told");
    // As a browser reads it: named events with rising numbers, and no answer kept.
    let to = Speaker::new(&world)?;
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", to.port)).await?;
    let request = format!("GET /v1/events HTTP/1.1\r\n{}\r\n{}\r\n\r\n", to.host, to.token);
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    let mut block = [0; 4096];
    let mut made = None;
    while !text.contains("event: sandbox-removed") {
        let count = tokio::time::timeout(LONG, stream.read(&mut block)).await??;
        anyhow::ensure!(count > 0, "the stream ended: {text}");
        text.push_str(&String::from_utf8_lossy(&block[..count]));
        if made.is_none() && text.contains("text/event-stream") {
            let sandbox = Sandbox::plain(&world).await?;
            world.client().delete_sandbox(&sandbox.id).await?;
            made = Some(sandbox.id);
        }
    }
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("id: ")?.trim().parse().ok()).collect();
    assert!(numbers.len() > 2 && numbers.is_sorted(), "{numbers:?}");
    assert!(text.contains("event: sandbox\n") || text.contains("event: sandbox\r\n"), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_description_served_is_the_one_committed_and_names_every_route_used() -> anyhow::Result<()> {
    let world = world().await?;
    let to = Speaker::new(&world)?;
    let served = http(to.port, &["GET /openapi.json HTTP/1.1", &to.host], "").await?;
    assert_eq!(served.status, 200);
    let served: Value = serde_json::from_str(&served.body)?;
    let committed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/handler.json");
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(committed)?)?;
    assert!(served == committed, "run `cargo xtask openapi`");
    for path in ["/v1/sandboxes/{id}/exec", "/v1/secrets/{path}", "/v1/events", "/v1/sandboxes/{id}/network"] {
        assert!(served["paths"][path].is_object(), "{path}");
    }
    let printed: Value = serde_json::from_str(&world.cli_ok(&["openapi"]).await?)?;
    assert!(printed == served);
    Ok(())
}
