//! `PATCH /v1/sandboxes/{id}`, pausing and resuming, and what this host hands out.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::lifetime as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use handler_types::limits::HostView;
use handler_types::sandbox::SandboxView;
use handler_types::update::UpdateSandbox;
use std::sync::Arc;

type S = State<Arc<App>>;

/// Changes a sandbox: name, labels, metadata, time to live, idle policy, limits. All of it or nothing.
#[utoipa::path(patch, path = "/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = String, Path)),
    request_body = UpdateSandbox, responses((status = 200, body = SandboxView),
    (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn update(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<UpdateSandbox>,
) -> ApiResult<Json<SandboxView>> {
    Ok(Json(rules::update(&app, &id, request).await?))
}

/// Freezes all processes of a running sandbox: no CPU time, memory kept. Who uses it waits until it is resumed.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/pause", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxView), (status = 422, body = handler_types::Problem)))]
pub async fn pause(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SandboxView>> {
    Ok(Json(rules::pause(&app, &id).await?))
}

/// Thaws a paused sandbox.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/resume", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxView)))]
pub async fn resume(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SandboxView>> {
    Ok(Json(rules::resume(&app, &id).await?))
}

/// What this host hands out at most, and what is handed out.
#[utoipa::path(get, path = "/v1/host", tag = "host", responses((status = 200, body = HostView)))]
pub async fn host(State(app): S) -> Json<HostView> {
    Json(app.engine.host())
}
