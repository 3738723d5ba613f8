//! The API as strangers meet it: who may speak, the one shape of refusals, the description.

use crate::support::{Reply, http, world};
use handler_testkit::World;
use serde_json::Value;

/// A refusal in our shape with this status and code.
pub(crate) fn problem(reply: &Reply, status: u16, code: &str) -> Value {
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(
        reply
            .head
            .contains("content-type: application/problem+json"),
        "{reply:?}"
    );
    let body: Value = serde_json::from_str(&reply.body).expect("JSON");
    assert_eq!(body["status"], status, "{body}");
    assert_eq!(body["code"], code, "{body}");
    assert!(
        body["title"].is_string() && body["detail"].as_str().is_some_and(|text| !text.is_empty()),
        "{body}"
    );
    body
}

/// One who knows the token and speaks to the loopback port.
pub(crate) struct Speaker {
    pub(crate) port: u16,
    pub(crate) host: String,
    pub(crate) token: String,
}

impl Speaker {
    pub(crate) fn new(world: &World) -> anyhow::Result<Self> {
        let port = world.port()?;
        Ok(Self {
            port,
            host: format!("Host: 127.0.0.1:{port}"),
            token: format!("Authorization: Bearer {}", world.token()?),
        })
    }

    pub(crate) async fn say(
        &self,
        line: &str,
        headers: &[&str],
        body: &str,
    ) -> anyhow::Result<Reply> {
        let line = format!("{line} HTTP/1.1");
        http(
            self.port,
            &[&[line.as_str(), &self.host, &self.token], headers].concat(),
            body,
        )
        .await
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
    for token in [
        None,
        Some(wrong.as_str()),
        Some(cut),
        Some("Authorization: Bearer "),
        Some("Authorization: Basic eDp5"),
    ] {
        let mut head = vec![get, to.host.as_str()];
        head.extend(token);
        problem(&http(to.port, &head, "").await?, 401, "unauthorized");
    }
    let query = format!("GET /v1/sandboxes?token={} HTTP/1.1", world.token()?);
    problem(
        &http(to.port, &[&query, &to.host], "").await?,
        401,
        "unauthorized",
    );
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1:1",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
    ] {
        let host = format!("Host: {host}");
        problem(
            &http(to.port, &[get, &host, &to.token], "").await?,
            403,
            "forbidden",
        );
        let health = http(to.port, &["GET /v1/health HTTP/1.1", &host], "").await?;
        problem(&health, 403, "forbidden");
    }
    for origin in [
        "http://evil.example",
        "null",
        "https://127.0.0.1",
        "http://localhost:1",
        "file://",
    ] {
        let origin = format!("Origin: {origin}");
        problem(
            &http(to.port, &[get, &to.host, &to.token, &origin], "").await?,
            403,
            "forbidden",
        );
        let upgrade = [
            "GET /v1/sandboxes/x/processes/1/attach HTTP/1.1",
            &to.host,
            &to.token,
            &origin,
            "Connection: upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        ];
        problem(&http(to.port, &upgrade, "").await?, 403, "forbidden");
    }
    let own = format!("Origin: http://localhost:{}", to.port);
    let answered = to.say("GET /v1/sandboxes", &[&own], "").await?;
    assert_eq!(answered.status, 200);
    assert!(
        !answered.head.contains("access-control-allow"),
        "{}",
        answered.head
    );
    let preflight = http(
        to.port,
        &[
            "OPTIONS /v1/sandboxes HTTP/1.1",
            &to.host,
            "Origin: http://evil.example",
        ],
        "",
    )
    .await?;
    assert_eq!(preflight.status, 403);
    assert_eq!(
        http(to.port, &["GET /v1/health HTTP/1.1", &to.host], "")
            .await?
            .status,
        200
    );
    Ok(())
}

#[tokio::test]
async fn every_refusal_has_the_one_shape() -> anyhow::Result<()> {
    let world = world().await?;
    let to = Speaker::new(&world)?;
    let json = "Content-Type: application/json";
    for path in [
        "/v1/nothing",
        "/",
        "/v2/sandboxes",
        "/v1/sandboxes/nobody",
        "/v1/sandboxes/%2e%2e%2fx",
    ] {
        problem(
            &to.say(&format!("GET {path}"), &[], "").await?,
            404,
            "not_found",
        );
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"nmae\":\"x\"}",
        "{\"name\":7}",
        "{\"network\":{\"mode\":\"most\"}}",
        "{\"network\":{\"mode\":\"filtered\",\"allow\":[\"example.com\"]}}",
        "\"\u{0}\"",
    ] {
        let reply = to.say("POST /v1/sandboxes", &[json], body).await?;
        assert!(
            reply.status == 400 || reply.status == 422,
            "{body}: {reply:?}"
        );
        problem(&reply, reply.status, "invalid");
    }
    let typo = to
        .say("POST /v1/sandboxes", &[json], "{\"nmae\":\"x\"}")
        .await?;
    assert!(typo.body.contains("nmae"), "{typo:?}");
    let untyped = to.say("POST /v1/sandboxes", &[], "{}").await?;
    problem(&untyped, untyped.status, "invalid");
    let method = to.say("PATCH /v1/secrets", &[], "").await?;
    problem(&method, method.status, "invalid");
    let huge = format!("{{\"value\":\"{}\"}}", "x".repeat(70_000));
    let reply = to.say("PUT /v1/secrets/a", &[json], &huge).await?;
    let body = problem(&reply, reply.status, "invalid");
    assert!(
        !body.to_string().contains("xxxxxxxx"),
        "a value is in its own refusal"
    );
    problem(
        &to.say(
            "PUT /v1/secrets/..%2f..%2fx",
            &[json],
            "{\"value\":\"abc\"}",
        )
        .await?,
        400,
        "invalid",
    );
    problem(
        &to.say("GET /v1/sandboxes?limit=-1", &[], "").await?,
        400,
        "invalid",
    );
    assert_eq!(world.client().sandboxes("", 9).await?.items.len(), 0);
    Ok(())
}

#[tokio::test]
async fn the_description_served_is_the_one_committed_and_names_every_route_used()
-> anyhow::Result<()> {
    let world = world().await?;
    let to = Speaker::new(&world)?;
    let served = http(to.port, &["GET /openapi.json HTTP/1.1", &to.host], "").await?;
    assert_eq!(served.status, 200);
    let served: Value = serde_json::from_str(&served.body)?;
    let committed =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/handler.json");
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(committed)?)?;
    assert!(served == committed, "run `cargo xtask openapi`");
    for path in [
        "/v1/sandboxes/{id}/exec",
        "/v1/secrets/{path}",
        "/v1/events",
        "/v1/sandboxes/{id}/network",
    ] {
        assert!(served["paths"][path].is_object(), "{path}");
    }
    let printed: Value = serde_json::from_str(&world.cli_ok(&["openapi"]).await?)?;
    assert!(printed == served);
    Ok(())
}
