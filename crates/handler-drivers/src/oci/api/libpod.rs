//! Podman's own API, for what Docker's cannot say: keep-id, unmasked paths, image mounts, the runtime by container.

use super::{OciUse, REQUEST_TIMEOUT};
use crate::oci::error::OciError;
use handler_base::http::{Endpoint, HttpError, full};
use http_body_util::{BodyExt, Limited};

/// Version of the API that is asked for; every Podman since 4 answers it.
const VERSION: &str = "v4.0.0";
/// Longest answer, in bytes.
const MOST: usize = 8 * 1024 * 1024;

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status, 200 to 399.
    pub status: u16,
    /// JSON, or null when there was none.
    pub body: serde_json::Value,
}

impl OciUse {
    /// Asks Podman's own API: `path` begins with a slash, below `/libpod`.
    ///
    /// # Errors
    /// [`OciError`].
    pub async fn libpod(
        &self,
        method: &str,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<Answer, OciError> {
        let broken = |error: &dyn std::fmt::Display| OciError::Broken(error.to_string());
        let socket = self.inner.socket();
        let text = body.map(ToString::to_string).unwrap_or_default();
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/{VERSION}/libpod{path}"))
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(full(text))
            .map_err(|error| broken(&error))?;
        let answer = Endpoint::Unix(socket)
            .send(request, Some(REQUEST_TIMEOUT))
            .await
            .map_err(|error| match error {
                HttpError::Timeout(limit) => OciError::Timeout(limit),
                other => broken(&other),
            })?;
        let status = answer.status().as_u16();
        let bytes = Limited::new(answer.into_body(), MOST)
            .collect()
            .await
            .map_err(|error| broken(&error))?
            .to_bytes();
        if status < 400 {
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            return Ok(Answer { status, body });
        }
        Err(OciError::refused(status, &message(&bytes)))
    }
}

/// The engine's words in a refusal.
fn message(bytes: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
    let field = parsed
        .as_ref()
        .and_then(|value| value.get("message")?.as_str());
    match field {
        Some(text) => text.to_owned(),
        None => String::from_utf8_lossy(bytes).into_owned(),
    }
}
