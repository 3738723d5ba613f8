//! Previews: `http://<port>-<sandbox id>.localhost:<daemon's port>/` shows what listens on that port inside.
//!
//! Taken out by its `Host` before any other route. What it serves is a page of untrusted code: on an origin of its
//! own, let in by a ticket or a cookie of that preview ([`crate::app::previews`]) or by the API's token, which goes no
//! further. Requests that another origin makes are refused.

mod connect;
mod enter;
mod forward;
mod headers;
mod host;
mod upgrade;

pub use connect::Connections;
pub(super) use enter::ENTRANCE;

use crate::app::previews::Preview;
use crate::http::problem::ApiError;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::sync::Arc;

/// The middleware: requests to a preview's name go there, all others on.
pub(super) async fn divert(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match host::preview(request.headers(), app.port()) {
        Some(preview) => serve(&app, preview, request).await,
        None => next.run(request).await,
    }
}

async fn serve(app: &Arc<App>, preview: Preview, request: Request) -> Response {
    if let Some(answer) = enter::redeem(app, &preview, &request) {
        return answer;
    }
    if let Some(answer) = enter::refusal(app, &preview, &request) {
        return answer;
    }
    if app.engine.get(&preview.sandbox).is_err() {
        let text = "There is no such sandbox (any more).";
        return page(StatusCode::NOT_FOUND, text);
    }
    match forward::send(app, preview, request).await {
        Ok(response) => response,
        Err(error) => refused(&error),
    }
}

/// An answer of ours in plain words.
fn page(status: StatusCode, text: &str) -> Response {
    let mut response = (status, format!("{text}\n")).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A refusal of the way in, as a page.
fn refused(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.0.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let status = match status {
        // To whoever looks at a page, a sandbox that rests is a service that is away.
        StatusCode::CONFLICT => StatusCode::SERVICE_UNAVAILABLE,
        other => other,
    };
    let mut response = page(status, &error.0.detail);
    if let Some(seconds) = error.0.retry_after_seconds {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
