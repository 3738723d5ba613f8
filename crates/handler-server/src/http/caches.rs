//! `/v1/caches`: what tools keep between sandboxes.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::caches as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use handler_types::cache::{CacheSizes, CachesInfo, CachesRequest};
use std::sync::Arc;

type S = State<Arc<App>>;

/// What is declared, what is kept, and where.
#[utoipa::path(get, path = "/v1/caches", tag = "caches", responses((status = 200, body = CachesInfo)))]
pub async fn info(State(app): S) -> ApiResult<Json<CachesInfo>> {
    Ok(Json(rules::info(&app).await?))
}

/// Declares caches, all of them; counts for new sessions. What is kept of others stays until it is cleared.
#[utoipa::path(put, path = "/v1/caches", tag = "caches", request_body = CachesRequest,
    responses((status = 200, body = CachesInfo),
    (status = 400, description = "One cannot be", body = handler_types::Problem)))]
pub async fn declare(
    State(app): S,
    Document(request): Document<CachesRequest>,
) -> ApiResult<Json<CachesInfo>> {
    Ok(Json(rules::declare(&app, request).await?))
}

/// Bytes on disk of each cache that is kept.
#[utoipa::path(get, path = "/v1/caches/sizes", tag = "caches", responses((status = 200, body = CacheSizes),
    (status = 502, description = "One cannot be measured", body = handler_types::Problem)))]
pub async fn sizes(State(app): S) -> ApiResult<Json<CacheSizes>> {
    Ok(Json(rules::sizes(&app).await?))
}

/// Empties the shared caches.
#[utoipa::path(delete, path = "/v1/caches/files", tag = "caches", responses((status = 204),
    (status = 409, description = "A sandbox has one", body = handler_types::Problem)))]
pub async fn clear_all(State(app): S) -> ApiResult<StatusCode> {
    rules::clear_global(&app, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Empties a shared cache.
#[utoipa::path(delete, path = "/v1/caches/{name}/files", tag = "caches", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = handler_types::Problem),
    (status = 409, description = "A sandbox has it", body = handler_types::Problem)))]
pub async fn clear(State(app): S, Path(name): Path<String>) -> ApiResult<StatusCode> {
    rules::clear_global(&app, Some(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Empties a project's own caches.
#[utoipa::path(delete, path = "/v1/projects/{id}/caches", tag = "caches", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = handler_types::Problem),
    (status = 409, description = "A sandbox has one", body = handler_types::Problem)))]
pub async fn clear_project(State(app): S, Path(id): Path<String>) -> ApiResult<StatusCode> {
    rules::clear_own(&app, &id, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Empties one of a project's own caches.
#[utoipa::path(delete, path = "/v1/projects/{id}/caches/{name}/files", tag = "caches",
    params(("id" = String, Path), ("name" = String, Path)),
    responses((status = 204), (status = 404, body = handler_types::Problem),
    (status = 409, description = "A sandbox has it", body = handler_types::Problem)))]
pub async fn clear_one_of_project(
    State(app): S,
    Path((id, name)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    rules::clear_own(&app, &id, Some(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
