//! `/v1/sandboxes`: make, list, start, stop, remove, switch the network, look at events and figures.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::network::{Edit, edit_sandbox};
use crate::app::sandboxes as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use handler_types::api::{NetworkUpdate, Page};
use handler_types::egress::EgressEvent;
use handler_types::sandbox::{CreateSandbox, SandboxState, SandboxView};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Which page of a list, and which items.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// From the page before.
    #[serde(default)]
    pub cursor: String,
    /// 1–500 (default 50).
    pub limit: Option<u32>,
    /// Only sandboxes in this state.
    pub state: Option<SandboxState>,
    /// Only sandboxes of this backend.
    pub backend: Option<String>,
    /// Only sandboxes with this label, `key=value`.
    pub label: Option<String>,
    /// Only sandboxes with this text in their name, id, project folder or image.
    pub search: Option<String>,
    /// Only sandboxes that count for this project.
    pub project: Option<String>,
}

/// Makes a sandbox and waits until it runs.
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", request_body = CreateSandbox,
    responses((status = 201, body = SandboxView), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn create(
    State(app): S,
    Document(request): Document<CreateSandbox>,
) -> ApiResult<(StatusCode, Json<SandboxView>)> {
    Ok((
        StatusCode::CREATED,
        Json(rules::create(&app, request).await?),
    ))
}

/// Lists sandboxes, newest first.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", params(ListQuery),
    responses((status = 200, body = Page<SandboxView>)))]
pub async fn list(
    State(app): S,
    Query(query): Query<ListQuery>,
) -> ApiResult<Json<Page<SandboxView>>> {
    Ok(Json(rules::list(&app, query).await?))
}

/// One sandbox, by id, unique prefix or name.
#[utoipa::path(get, path = "/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxView), (status = 404, body = handler_types::Problem)))]
pub async fn get(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SandboxView>> {
    Ok(Json(rules::find(&app, &id).await?))
}

/// Removes a sandbox with everything in it.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 204)))]
pub async fn delete(State(app): S, Path(id): Path<String>) -> ApiResult<StatusCode> {
    rules::delete(&app, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Starts a stopped sandbox.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/start", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxView)))]
pub async fn start(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SandboxView>> {
    Ok(Json(rules::start(&app, &id).await?))
}

/// Stops a sandbox: its processes end, its home is kept.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/stop", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxView)))]
pub async fn stop(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SandboxView>> {
    Ok(Json(rules::stop(&app, &id).await?))
}

/// Stops and starts a sandbox.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/restart", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxView)))]
pub async fn restart(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SandboxView>> {
    Ok(Json(crate::app::lifetime::restart(&app, &id).await?))
}

/// Changes what a sandbox may reach; applies to the next request and re-judges open tunnels.
#[utoipa::path(put, path = "/v1/sandboxes/{id}/network", tag = "sandboxes", params(("id" = String, Path)),
    request_body = NetworkUpdate, responses((status = 200, body = SandboxView)))]
pub async fn network(
    State(app): S,
    Path(id): Path<String>,
    Document(update): Document<NetworkUpdate>,
) -> ApiResult<Json<SandboxView>> {
    let edit = Edit::Replace(update.network);
    Ok(Json(edit_sandbox(&app, &id, edit).await?))
}

/// The filter's last decisions for a sandbox (at most 500).
#[utoipa::path(get, path = "/v1/sandboxes/{id}/egress-events", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = Vec<EgressEvent>)))]
pub async fn egress_events(
    State(app): S,
    Path(id): Path<String>,
) -> ApiResult<Json<Vec<EgressEvent>>> {
    let view = rules::find(&app, &id).await?;
    Ok(Json(app.egress_events.of(view.id.as_str())))
}
