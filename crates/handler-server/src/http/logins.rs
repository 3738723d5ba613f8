//! Logins: credential files go in and never come out.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::logins;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use handler_types::api::{LoginRequest, LoginView};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Stored logins, without their files.
#[utoipa::path(get, path = "/v1/logins", tag = "logins", responses((status = 200, body = Vec<LoginView>)))]
pub async fn list(State(app): S) -> ApiResult<Json<Vec<LoginView>>> {
    Ok(Json(logins::list(&app).await?))
}

/// Stores a credential file. No endpoint gives it back; sandboxes that have the login use its tokens from now on.
#[utoipa::path(put, path = "/v1/logins/{name}", tag = "logins", params(("name" = String, Path)),
    request_body = LoginRequest, responses((status = 200, body = LoginView)))]
pub async fn put(
    State(app): S,
    Path(name): Path<String>,
    Document(request): Document<LoginRequest>,
) -> ApiResult<Json<LoginView>> {
    Ok(Json(logins::put(&app, &name, request).await?))
}

/// Removes a login that no sandbox has.
#[utoipa::path(delete, path = "/v1/logins/{name}", tag = "logins", params(("name" = String, Path)),
    responses((status = 204)))]
pub async fn remove(State(app): S, Path(name): Path<String>) -> ApiResult<StatusCode> {
    logins::remove(&app, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
