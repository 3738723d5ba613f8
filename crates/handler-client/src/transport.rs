//! One request, one answer: JSON in and out, problems as errors, bodies bounded.

use crate::error::ClientError;
use bytes::Bytes;
use handler_base::http::{Endpoint, full};
use handler_types::{Problem, ProblemCode};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// Longest JSON answer read, bytes.
const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// A client of one daemon.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    token: String,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client for the daemon at `endpoint`, with its token.
    #[must_use]
    pub fn new(endpoint: Endpoint, token: String) -> Self {
        Self { endpoint, token }
    }

    /// Where the daemon is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.endpoint.host())
            .header(
                header::USER_AGENT,
                concat!("handler/", env!("CARGO_PKG_VERSION")),
            )
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
    }

    /// Sends a request with a JSON body (or none) and reads a JSON answer.
    ///
    /// # Errors
    /// [`ClientError`]; a refusal comes as its problem.
    pub async fn call<B: Serialize, R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<R, ClientError> {
        let bytes = self.call_raw(method, path, body).await?;
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(bytes).map_err(|e| ClientError::Unexpected(e.to_string()))
    }

    /// As [`Client::call`], the answer as bytes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn call_raw<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<Bytes, ClientError> {
        let mut builder = self.request(method.clone(), path);
        // A command is not done again by this client, and its output need not be kept for a day.
        if method != Method::GET && !path.ends_with("/exec") {
            builder = builder.header("idempotency-key", handler_base::random::hex(16));
        }
        let body = match body {
            Some(body) => {
                builder = builder.header(header::CONTENT_TYPE, "application/json");
                serde_json::to_vec(body).map_err(|e| ClientError::Unexpected(e.to_string()))?
            }
            None => Vec::new(),
        };
        let request = builder
            .body(full(body))
            .map_err(|e| ClientError::Broken(Box::new(e)))?;
        let response = self.endpoint.send(request, None).await?;
        whole(accepted(response).await?).await
    }

    /// Sends a streaming body; the answer's body streams too.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stream<B>(
        &self,
        method: Method,
        path: &str,
        body: B,
    ) -> Result<Response<Incoming>, ClientError>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.stream_as(method, path, "application/octet-stream", body)
            .await
    }

    /// As [`Client::stream`], saying what the body is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stream_as<B>(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: B,
    ) -> Result<Response<Incoming>, ClientError>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let request = self
            .request(method, path)
            .header(header::CONTENT_TYPE, content_type)
            .body(body)
            .map_err(|e| ClientError::Broken(Box::new(e)))?;
        accepted(self.endpoint.send(request, None).await?).await
    }
}

impl Client {
    /// Sends a request that is put together by hand; the daemon's name and the token are added. Whatever is answered
    /// is given, refusals too.
    ///
    /// # Errors
    /// [`ClientError`] when there is no answer.
    pub async fn send<B>(&self, mut request: Request<B>) -> Result<Response<Incoming>, ClientError>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let host = self.endpoint.host().parse();
        let bearer = format!("Bearer {}", self.token).parse();
        let (Ok(host), Ok(bearer)) = (host, bearer) else {
            return Err(ClientError::Unexpected("the token is no header".to_owned()));
        };
        request.headers_mut().insert(header::HOST, host);
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
        Ok(self.endpoint.send(request, None).await?)
    }
}

async fn accepted(response: Response<Incoming>) -> Result<Response<Incoming>, ClientError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let bytes = whole(response).await?;
    let problem = serde_json::from_slice::<Problem>(&bytes).unwrap_or_else(|_| {
        let text: String = String::from_utf8_lossy(&bytes).chars().take(500).collect();
        let mut problem = Problem::new(ProblemCode::Internal, text);
        problem.status = status.as_u16();
        problem
    });
    Err(ClientError::Refused(problem))
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(ClientError::Broken)
}

/// Percent-encodes a text for a path segment or query value.
#[must_use]
pub fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, b| {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            write!(out, "%{b:02X}").expect("writing to a string cannot fail");
        }
        out
    })
}
