//! A small registry on a loopback port, which can be told to misbehave.

use crate::world::{digest, gzip, zstd};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// How it answers.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// Wants a token for `/v2/`, given for this `user:password` (empty: to anybody).
    pub(crate) token_for: Option<String>,
    /// Wants name and password with each request.
    pub(crate) basic_for: Option<String>,
    /// So many answers with blobs break off in the middle.
    pub(crate) breaks: usize,
    /// Starts anew whatever range is asked for.
    pub(crate) no_ranges: bool,
    /// So many answers are 503.
    pub(crate) stumbles: usize,
    /// Blobs never end.
    pub(crate) endless: bool,
}

#[derive(Debug, Default)]
struct Inner {
    blobs: Mutex<HashMap<String, Vec<u8>>>,
    manifests: Mutex<HashMap<String, Vec<u8>>>,
    ways: Mutex<Ways>,
    /// Blob requests: digest and range.
    asked: Mutex<Vec<(String, Option<String>)>>,
    port: std::sync::OnceLock<u16>,
}

#[derive(Debug, Clone)]
pub(crate) struct Registry(Arc<Inner>);

impl Registry {
    pub(crate) async fn start() -> Self {
        let inner = Arc::new(Inner::default());
        let router = Router::new()
            .route("/token", get(token))
            .route("/v2/{repository}/manifests/{reference}", get(manifest))
            .route("/v2/{repository}/blobs/{digest}", get(blob))
            .with_state(inner.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("listens");
        inner
            .port
            .set(listener.local_addr().expect("address").port())
            .expect("once");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self(inner)
    }

    pub(crate) fn name(&self, image: &str) -> String {
        format!("localhost:{}/{image}", self.0.port.get().expect("started"))
    }

    pub(crate) fn host(&self) -> String {
        self.name("").trim_end_matches('/').to_owned()
    }

    pub(crate) fn ways(&self, change: impl FnOnce(&mut Ways)) {
        change(&mut self.0.ways.lock().expect("lock"));
    }

    pub(crate) fn asked(&self) -> Vec<(String, Option<String>)> {
        self.0.asked.lock().expect("lock").clone()
    }

    pub(crate) fn put_blob(&self, bytes: Vec<u8>) -> String {
        let name = digest(&bytes);
        self.put_blob_as(&name, bytes);
        name
    }

    pub(crate) fn put_blob_as(&self, name: &str, bytes: Vec<u8>) {
        self.0
            .blobs
            .lock()
            .expect("lock")
            .insert(name.to_owned(), bytes);
    }

    pub(crate) fn put_manifest(&self, reference: &str, text: String) {
        let mut manifests = self.0.manifests.lock().expect("lock");
        manifests.insert(digest(text.as_bytes()), text.clone().into_bytes());
        manifests.insert(reference.to_owned(), text.into_bytes());
    }

    /// An image of these layers, alternately gzip, zstd and plain, behind an index; answers its id.
    pub(crate) fn put_image(&self, tag: &str, layers: &[Vec<u8>]) -> String {
        let diffs: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
        let packed = layers
            .iter()
            .enumerate()
            .map(|(number, layer)| match number % 3 {
                0 => gzip(layer),
                1 => zstd(layer),
                _ => layer.clone(),
            });
        let blobs: Vec<(String, usize)> = packed
            .map(|bytes| (bytes.len(), bytes))
            .map(|(length, bytes)| (self.put_blob(bytes), length))
            .collect();
        self.put_manifests(tag, &diffs, &blobs)
    }

    /// Configuration, manifest and index; answers the id.
    pub(crate) fn put_manifests(
        &self,
        tag: &str,
        diffs: &[String],
        blobs: &[(String, usize)],
    ) -> String {
        let arch = own_architecture();
        let config = serde_json::json!({
            "architecture": arch, "os": "linux", "created": "2026-01-02T03:04:05Z",
            "config": {"Env": ["PATH=/bin"], "WorkingDir": "/srv", "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": diffs},
        });
        let config = config.to_string().into_bytes();
        let size = config.len();
        let id = self.put_blob(config);
        let layers: Vec<_> = blobs.iter().map(|(digest, size)| serde_json::json!({"mediaType": "x", "digest": digest, "size": size})).collect();
        let manifest = serde_json::json!({"schemaVersion": 2, "config": {"digest": id, "size": size}, "layers": layers}).to_string();
        let of_others = serde_json::json!({"digest": digest(b"other"), "size": 1, "platform": {"os": "linux", "architecture": "s390x"}});
        let ours = serde_json::json!({"digest": digest(manifest.as_bytes()), "size": manifest.len(), "platform": {"os": "linux", "architecture": arch}});
        self.put_manifest("unused", manifest);
        self.put_manifest(
            tag,
            serde_json::json!({"schemaVersion": 2, "manifests": [of_others, ours]}).to_string(),
        );
        id
    }
}

pub(crate) fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn basic(text: &str) -> String {
    use base64::Engine as _;
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(text)
    )
}

fn authorization(headers: &HeaderMap) -> &str {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

async fn token(
    State(inner): State<Arc<Inner>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let wanted = inner
        .ways
        .lock()
        .expect("lock")
        .token_for
        .clone()
        .unwrap_or_default();
    let is_known = wanted.is_empty() || authorization(&headers) == basic(&wanted);
    let is_right = query.get("service").is_some_and(|s| s == "test")
        && query.get("scope").is_some_and(|s| s.contains(":pull"));
    if is_known && is_right {
        axum::Json(serde_json::json!({"access_token": "T0KEN"})).into_response()
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

/// The answer instead of the one asked for, if any.
fn refusal(inner: &Inner, headers: &HeaderMap) -> Option<Response> {
    let mut ways = inner.ways.lock().expect("lock");
    if ways.stumbles > 0 {
        ways.stumbles -= 1;
        return Some(StatusCode::SERVICE_UNAVAILABLE.into_response());
    }
    let port = inner.port.get().expect("started");
    let challenge = match (&ways.token_for, &ways.basic_for) {
        (Some(_), _) if authorization(headers) != "Bearer T0KEN" => {
            format!(
                r#"Bearer realm="http://127.0.0.1:{port}/token",service="test",scope="repository:x:pull""#
            )
        }
        (_, Some(login)) if authorization(headers) != basic(login) => {
            "Basic realm=\"x\"".to_owned()
        }
        _ => return None,
    };
    Some(
        (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, challenge)],
        )
            .into_response(),
    )
}

async fn manifest(
    State(inner): State<Arc<Inner>>,
    Path((_, reference)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = refusal(&inner, &headers) {
        return refused;
    }
    let found = inner
        .manifests
        .lock()
        .expect("lock")
        .get(&reference)
        .cloned();
    found.map_or_else(
        || StatusCode::NOT_FOUND.into_response(),
        |bytes| bytes.into_response(),
    )
}

async fn blob(
    State(inner): State<Arc<Inner>>,
    Path((_, digest)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = refusal(&inner, &headers) {
        return refused;
    }
    let range = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    inner
        .asked
        .lock()
        .expect("lock")
        .push((digest.clone(), range.clone()));
    let Some(bytes) = inner.blobs.lock().expect("lock").get(&digest).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut ways = inner.ways.lock().expect("lock");
    if ways.endless {
        let stream = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![7u8; 4096]));
        return Body::from_stream(stream).into_response();
    }
    let start = range.filter(|_| !ways.no_ranges).and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .trim_end_matches('-')
            .parse()
            .ok()
    });
    let rest = bytes[start.unwrap_or(0)..].to_vec();
    let status = if start.is_some() {
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    };
    let content_range = format!(
        "bytes {}-{}/{}",
        start.unwrap_or(0),
        bytes.len().saturating_sub(1),
        bytes.len()
    );
    let body = if ways.breaks > 0 && rest.len() > 1000 {
        ways.breaks -= 1;
        let half = rest[..rest.len() / 2].to_vec();
        let parts = [Ok(half), Err(std::io::Error::other("broken"))];
        // The break comes after the half is on its way.
        use futures::StreamExt as _;
        Body::from_stream(futures::stream::iter(parts).then(|part| async move {
            if part.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            part
        }))
    } else {
        Body::from(rest)
    };
    (status, [(header::CONTENT_RANGE, content_range)], body).into_response()
}
