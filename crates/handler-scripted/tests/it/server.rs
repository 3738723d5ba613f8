//! Keys, compression, paths, the record, and stopping.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use handler_scripted::{ScriptedConfig, ScriptedModel};
use serde_json::{Value, json};

use crate::decode::plain;
use crate::requests::{ALL, Protocol, request};
use crate::wire::{model, model_with, post, send};

fn with_key() -> ScriptedModel {
    model_with(ScriptedConfig {
        expect_key: Some("sk/real".into()),
        ..ScriptedConfig::default()
    })
}

#[test]
fn only_the_right_key_is_answered_wherever_it_is_put() {
    let model = with_key();
    for protocol in ALL {
        let (path, body) = request(protocol, "hello", &[], &[], false);
        let body = body.to_string();
        let with = |headers: &[(&str, &str)]| send(&model, "POST", &path, headers, body.as_bytes());
        for wrong in [
            None,
            Some(("authorization", "Bearer phantom")),
            Some(("x-api-key", "")),
        ] {
            let answer = with(wrong.as_slice());
            assert_eq!(answer.status, 401, "{protocol:?} {wrong:?}");
            let error = &answer.json()["error"];
            let expected = match protocol {
                Protocol::Anthropic => json!("authentication_error"),
                Protocol::Chat | Protocol::Responses => json!("invalid_request_error"),
                Protocol::Gemini => json!("UNAUTHENTICATED"),
            };
            assert!(
                error["type"] == expected || error["status"] == expected,
                "{error}"
            );
            assert!(
                !answer.body.contains("sk/real"),
                "the answer must not tell the key"
            );
        }
        assert_eq!(with(&[("authorization", "Bearer sk/real")]).status, 200);
        assert_eq!(with(&[("x-api-key", "sk/real")]).status, 200);
        assert_eq!(with(&[("x-goog-api-key", "sk/real")]).status, 200);
        let join = if path.contains('?') { '&' } else { '?' };
        let keyed = format!("{path}{join}key=sk%2Freal");
        assert_eq!(
            send(&model, "POST", &keyed, &[], body.as_bytes()).status,
            200
        );
    }
    assert_eq!(send(&model, "GET", "/v1/models", &[], b"").status, 401);
    assert_eq!(send(&model, "HEAD", "/", &[], b"").status, 200);
}

#[test]
fn a_gzip_body_is_understood_and_a_broken_one_refused() {
    let model = model();
    for protocol in ALL {
        let (path, body) = request(protocol, "hello", &[], &[], false);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder
            .write_all(body.to_string().as_bytes())
            .expect("memory does not fail");
        let gzip = encoder.finish().expect("memory does not fail");
        let headers = [
            ("content-encoding", "gzip"),
            ("content-type", "application/json"),
        ];
        let answer = send(&model, "POST", &path, &headers, &gzip);
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(plain(protocol, &answer.json()).text, "Scripted session");
        let broken = send(&model, "POST", &path, &headers, &gzip[..gzip.len() / 2]);
        assert_eq!(broken.status, 400);
        assert!(broken.json()["error"]["message"].is_string());
    }
    assert_eq!(
        model.requests()[0].body["model"],
        "m-1",
        "the record holds the plain body"
    );
}

#[test]
fn unknown_paths_and_methods_are_not_found() {
    let model = model();
    for (method, path) in [
        ("GET", "/v1/messages"),
        ("POST", "/v1/v1/messages"),
        ("POST", "/nothing"),
        ("DELETE", "/v1/responses"),
        ("POST", "/v1beta/models/g:embedContent"),
    ] {
        let answer = send(&model, method, path, &[], b"{}");
        assert_eq!(answer.status, 404, "{method} {path}");
        assert!(answer.json()["error"]["message"].is_string());
    }
}

#[test]
fn models_are_listed_for_each_family() {
    let model = model();
    let get = |path: &str| send(&model, "GET", path, &[], b"").json();
    assert_eq!(get("/v1/models")["data"][0]["id"], "scripted");
    assert_eq!(get("/models")["object"], "list");
    assert_eq!(get("/v1/models/any-name")["id"], "any-name");
    assert_eq!(
        get("/v1beta/models")["models"][0]["name"],
        "models/scripted"
    );
}

#[test]
fn the_record_is_bounded_and_the_log_is_private_and_complete() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("requests.ndjson");
    let model = model_with(ScriptedConfig {
        expect_key: Some("sk".into()),
        log: Some(log.clone()),
        keep_requests: 2,
        ..ScriptedConfig::default()
    });
    for key in ["one", "two", "sk"] {
        send(
            &model,
            "POST",
            "/v1/messages?a=b",
            &[("X-Api-Key", key)],
            b"{\"messages\":[]}",
        );
    }
    let kept = model.requests();
    let keys: Vec<_> = kept.iter().map(|request| request.key()).collect();
    assert_eq!(keys, [Some("two".into()), Some("sk".into())]);
    assert_eq!(
        (kept[1].status, kept[1].path.as_str()),
        (200, "/v1/messages")
    );
    assert_eq!(
        (kept[1].query.as_str(), kept[1].header("x-API-key")),
        ("a=b", Some("sk"))
    );
    assert!(
        !format!("{kept:?}").contains("sk"),
        "debug text must not tell keys"
    );
    let text = std::fs::read_to_string(&log).expect("the log");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect();
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64()).collect();
    assert_eq!(statuses, [Some(401), Some(401), Some(200)]);
    let mode = std::fs::metadata(&log)
        .expect("the log")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn waiting_ends_with_the_request_or_with_the_time() {
    let model = model();
    let none = model.wait_for(|_| true, Duration::from_millis(20)).await;
    assert!(none.is_none());
    let waiting = model.wait_for(|request| request.path == "/b", Duration::from_secs(30));
    let sending = async {
        send(&model, "GET", "/a", &[], b"");
        send(&model, "GET", "/b", &[], b"");
    };
    let (found, ()) = tokio::join!(waiting, sending);
    assert_eq!(found.expect("the request").path, "/b");
    assert!(
        model
            .wait_for(|request| request.path == "/a", Duration::ZERO)
            .await
            .is_some()
    );
}

#[test]
fn stopping_ends_a_slow_answer_and_frees_the_port() {
    let config = ScriptedConfig {
        word_delay: Duration::from_secs(600),
        ..ScriptedConfig::default()
    };
    let model = ScriptedModel::start(config).expect("a free port");
    let tools = [(
        "bash",
        json!({"properties": {"command": {"type": "string"}}}),
    )];
    let (path, body) = request(Protocol::Chat, "PLAN:slow:9", &[], &tools, true);
    let body = body.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", model.port())).expect("connected");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: m\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .expect("written");
    let mut first = [0; 16];
    stream.read_exact(&mut first).expect("the answer begins");
    let (port, started) = (model.port(), Instant::now());
    model.stop();
    assert!(
        started.elapsed() < Duration::from_secs(300),
        "stopping waited for the words"
    );
    let mut rest = String::new();
    let _closed_or_reset = stream.read_to_string(&mut rest);
    assert!(!rest.contains("word1"), "{rest}");
    let again = ScriptedConfig {
        port,
        ..ScriptedConfig::default()
    };
    assert_eq!(
        ScriptedModel::start(again)
            .expect("the port is free")
            .port(),
        port
    );
}

#[test]
fn a_taken_port_is_an_error() {
    let model = model();
    let same = ScriptedConfig {
        port: model.port(),
        ..ScriptedConfig::default()
    };
    assert!(ScriptedModel::start(same).is_err());
    assert_eq!(
        model.base_url(),
        format!("http://127.0.0.1:{}", model.port())
    );
    assert_eq!(
        post(&model, "/v1/messages", &json!({"messages": []})).status,
        200
    );
}
