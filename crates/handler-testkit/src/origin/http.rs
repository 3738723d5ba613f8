//! An HTTP origin: answers a few paths and remembers every request with its headers, which is how a test
//! proves what arrived outside.
//!
//! | path | answer |
//! |---|---|
//! | `/bytes/<n>` | so many bytes (at most 1 GiB), streamed |
//! | `/redirect?to=<url>` | 302 to it |
//! | `/status/<code>` | that status |
//! | `/echo` | the request's body |
//! | anything else | `hello from origin` |

use crate::wait::eventually;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How many of the newest requests are kept.
const KEPT: usize = 1000;

/// Longest body read, bytes.
const MAX_BODY: usize = 16 << 20;

/// Most bytes of one answer.
const MAX_BYTES: u64 = 1 << 30;

/// A request that arrived.
#[derive(Debug, Clone)]
pub struct OriginRequest {
    /// Its method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl OriginRequest {
    /// Whether `text` is anywhere in it: path, header values, body.
    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        let has = |bytes: &[u8]| {
            bytes
                .windows(text.len().max(1))
                .any(|window| window == text.as_bytes())
        };
        has(self.path.as_bytes())
            || has(&self.body)
            || self.headers.values().any(|value| has(value.as_bytes()))
    }
}

type Log = Arc<Mutex<VecDeque<OriginRequest>>>;

/// A running origin; it ends when dropped.
#[derive(Debug)]
pub struct HttpOrigin {
    address: SocketAddr,
    log: Log,
    task: JoinHandle<()>,
}

impl HttpOrigin {
    /// Starts one on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let log = Log::default();
        let router = axum::Router::new().fallback(answer).with_state(log.clone());
        let task = handler_base::tasks::spawn_named("http origin", async move {
            // It only ends with its task.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, log, task })
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What arrived, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<OriginRequest> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().cloned().collect()
    }

    /// Waits for a request.
    ///
    /// # Errors
    /// When none fits within that time.
    pub async fn wait_for(
        &self,
        within: Duration,
        fits: impl Fn(&OriginRequest) -> bool,
    ) -> anyhow::Result<OriginRequest> {
        eventually("a request to the origin", within, || {
            let found = self.requests().into_iter().find(|request| fits(request));
            std::future::ready(found)
        })
        .await
    }
}

impl Drop for HttpOrigin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(log): State<Log>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let path = head
        .uri
        .path_and_query()
        .map_or_else(|| "/".to_owned(), ToString::to_string);
    let response = respond(&path, &body);
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() == KEPT {
        log.pop_front();
    }
    log.push_back(OriginRequest {
        method: head.method.to_string(),
        path,
        headers: head.headers,
        body,
    });
    response
}

fn respond(path: &str, body: &Bytes) -> Response {
    if let Some(to) = path.strip_prefix("/redirect?to=") {
        return (StatusCode::FOUND, [(header::LOCATION, to.to_owned())]).into_response();
    }
    if let Some(code) = path.strip_prefix("/status/") {
        return code
            .parse()
            .map_or(StatusCode::BAD_REQUEST, |code| {
                StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST)
            })
            .into_response();
    }
    if let Some(count) = path.strip_prefix("/bytes/") {
        return match count.parse::<u64>() {
            Ok(count) if count <= MAX_BYTES => many(count),
            _ => StatusCode::BAD_REQUEST.into_response(),
        };
    }
    if path == "/echo" {
        return body.clone().into_response();
    }
    "hello from origin\n".into_response()
}

/// A body of `count` bytes, made while it is read.
fn many(count: u64) -> Response {
    static BLOCK: [u8; 64 << 10] = [b'x'; 64 << 10];
    struct Blocks(u64);
    impl Iterator for Blocks {
        type Item = Result<Bytes, Infallible>;
        fn next(&mut self) -> Option<Self::Item> {
            let size = self.0.min(BLOCK.len() as u64);
            self.0 -= size;
            let size = usize::try_from(size).ok().filter(|size| *size > 0)?;
            Some(Ok(Bytes::from_static(&BLOCK[..size])))
        }
    }
    let length = [(header::CONTENT_LENGTH, count.to_string())];
    let body = Body::from_stream(futures::stream::iter(Blocks(count)));
    (length, body).into_response()
}
