//! `Idempotency-Key`: the same mutation sent twice is done once, also over a restart.
//!
//! The answer is stored under key, method and path together with a hash of the body; the second
//! request gets it back with `idempotency-replayed: true`. Another body under the same key is a
//! conflict. Bodies that stream (file uploads) are replaced whole by nature and are left alone.

use super::problem::ApiError;
use crate::app::sessions::store_error;
use crate::state::App;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use handler_store::db::StoreError;
use handler_store::rows::{Begin, Request as StoredRequest, StoredResponse};
use handler_types::ProblemCode;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// Longest JSON body, bytes.
pub const MAX_JSON: usize = 17 * 1024 * 1024;

/// The middleware.
///
/// # Errors
/// 400 for a bad key, 409 while the first request runs or for another body.
pub async fn replay(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let key = request.headers().get("idempotency-key").cloned();
    let is_mutation = matches!(
        *request.method(),
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE
    );
    let is_upload = request.method() == Method::PUT && request.uri().path().ends_with("/files");
    let Some(key) = key.filter(|_| is_mutation && !is_upload) else {
        return Ok(next.run(request).await);
    };
    let key = check_key(&key)?;
    let method = request.method().to_string();
    let path = request.uri().to_string();
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_JSON)
        .await
        .map_err(|_| ApiError::new(ProblemCode::TooLarge, "the body is larger than 17 MiB"))?;
    let hash = fingerprint(app.token(), &body);
    let stored = StoredRequest { key, method, path };
    let begin = match app.store.idempotency().begin(stored.clone(), hash).await {
        Ok(begin) => begin,
        // A full disk must keep nobody from making room; to remove twice is to remove once.
        Err(StoreError::NoSpace) if parts.method == Method::DELETE => {
            return Ok(next.run(Request::from_parts(parts, Body::from(body))).await);
        }
        Err(error) => return Err(store_error(error)),
    };
    match begin {
        Begin::Fresh => {}
        Begin::Replay(response) => return Ok(replayed(response)),
        Begin::AnswerNotKept { status } => {
            return Err(ApiError::new(
                ProblemCode::Conflict,
                format!(
                    "this request was done (status {status}); its answer was too large to keep"
                ),
            ));
        }
        Begin::InProgress => {
            return Err(ApiError::new(
                ProblemCode::Conflict,
                "the first request with this Idempotency-Key is still running",
            ));
        }
        Begin::Mismatch => {
            return Err(ApiError::new(
                ProblemCode::Conflict,
                "this Idempotency-Key was used with another body",
            ));
        }
    }
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    remember(&app, stored, response).await
}

/// Tells bodies apart. Mixed with the token, so that the database alone is no means of guessing a short secret
/// that was stored.
fn fingerprint(token: &str, body: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update(token)
        .chain_update([0])
        .chain_update(body)
        .finalize()
        .into()
}

fn check_key(key: &HeaderValue) -> Result<String, ApiError> {
    key.to_str()
        .ok()
        .filter(|k| (1..=200).contains(&k.len()))
        .map(str::to_owned)
        .ok_or_else(|| {
            ApiError::new(
                ProblemCode::Invalid,
                "Idempotency-Key: 1 to 200 visible ASCII characters",
            )
        })
}

async fn remember(
    app: &App,
    stored: StoredRequest,
    response: Response,
) -> Result<Response, ApiError> {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 128 * 1024 * 1024)
        .await
        .map_err(|_| ApiError::new(ProblemCode::Internal, "the answer could not be read back"))?;
    let content_type = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .map(str::to_owned);
    let status = parts.status.as_u16();
    // What failed on our side or was not ready may be tried again under the same key.
    let is_settled = parts.status.is_success() || (400..424).contains(&status);
    let idempotency = app.store.idempotency();
    let kept = if is_settled {
        let answer = StoredResponse {
            status,
            content_type,
            body: body.to_vec(),
        };
        idempotency.finish(stored, answer).await
    } else {
        idempotency.forget(stored).await
    };
    if let Err(error) = kept {
        // What was done is done: a client told of a failure would do it again.
        tracing::warn!(%error, "the answer is not kept for its Idempotency-Key");
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn replayed(kept: StoredResponse) -> Response {
    let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK);
    let mut response = (status, kept.body).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    if let Some(Ok(value)) = kept.content_type.as_deref().map(HeaderValue::from_str) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
        .headers_mut()
        .insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}
