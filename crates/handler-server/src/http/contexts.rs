//! `/v1/contexts`: what projects are for.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::contexts as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use handler_types::context::{ContextRequest, ContextView};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Contexts, with the projects in them and the accounts and providers made for them.
#[utoipa::path(get, path = "/v1/contexts", tag = "contexts", responses((status = 200, body = Vec<ContextView>)))]
pub async fn list(State(app): S) -> ApiResult<Json<Vec<ContextView>>> {
    Ok(Json(rules::list(&app).await?))
}

/// Makes a context.
#[utoipa::path(post, path = "/v1/contexts", tag = "contexts", request_body = ContextRequest,
    responses((status = 201, body = ContextView),
    (status = 409, description = "`context exists`", body = handler_types::Problem)))]
pub async fn create(
    State(app): S,
    Document(request): Document<ContextRequest>,
) -> ApiResult<(StatusCode, Json<ContextView>)> {
    let made = rules::create(&app, request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Gives a context another colour.
#[utoipa::path(put, path = "/v1/contexts/{name}", tag = "contexts", params(("name" = String, Path)),
    request_body = ContextRequest, responses((status = 200, body = ContextView),
    (status = 404, description = "`context not found`", body = handler_types::Problem),
    (status = 409, description = "`a context's name cannot change`", body = handler_types::Problem)))]
pub async fn put(
    State(app): S,
    Path(name): Path<String>,
    Document(request): Document<ContextRequest>,
) -> ApiResult<Json<ContextView>> {
    Ok(Json(rules::update(&app, &name, request).await?))
}

/// Removes a context that nothing is in.
#[utoipa::path(delete, path = "/v1/contexts/{name}", tag = "contexts", params(("name" = String, Path)),
    responses((status = 204), (status = 409, description = "`context in use`", body = handler_types::Problem)))]
pub async fn remove(State(app): S, Path(name): Path<String>) -> ApiResult<StatusCode> {
    rules::remove(&app, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
