//! From errors to `application/problem+json`: the one place where an error meets an HTTP status.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use handler_types::{Problem, ProblemCode};

/// A refusal on its way out. `detail` is safe to show; the log gets the cause.
#[derive(Debug)]
pub struct ApiError(pub Problem);

/// What every handler returns.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// A refusal with a code and what happened.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Problem::new(code, detail))
    }

    /// As [`ApiError::new`], under a title of its own (those of contract D).
    pub fn titled(code: ProblemCode, title: &str, detail: impl Into<String>) -> Self {
        let mut problem = Problem::new(code, detail);
        title.clone_into(&mut problem.title);
        Self(problem)
    }

    /// A fault of ours: logged whole, shown without its cause.
    pub fn internal(what: &str, error: &dyn std::error::Error) -> Self {
        tracing::error!(what, error = %chain(error), "internal error");
        Self::new(
            ProblemCode::Internal,
            format!("{what} failed; the daemon's log says why"),
        )
    }
}

/// The whole chain of an error in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (
            status,
            [(header::CONTENT_TYPE, "application/problem+json")],
            body,
        )
            .into_response();
        if let Some(seconds) = self.0.retry_after_seconds {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}
