//! `/v1/directories`: folders in work folders, for those who choose one.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::directories as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use handler_types::folder::{CreateDirectoryRequest, DirectoryListing};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Which folder.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DirectoryQuery {
    /// Absolute; empty: the roots.
    #[serde(default)]
    pub path: String,
}

/// The folders in a folder that agents may work in; at most 500, neither hidden ones nor links.
#[utoipa::path(get, path = "/v1/directories", tag = "host", params(DirectoryQuery),
    responses((status = 200, body = DirectoryListing),
    (status = 403, description = "It lies in no work folder", body = handler_types::Problem)))]
pub async fn list(
    State(app): S,
    Query(query): Query<DirectoryQuery>,
) -> ApiResult<Json<DirectoryListing>> {
    Ok(Json(rules::list(&app, query.path).await?))
}

/// Makes a folder there.
#[utoipa::path(post, path = "/v1/directories", tag = "host", request_body = CreateDirectoryRequest,
    responses((status = 201, body = DirectoryListing),
    (status = 403, description = "It would lie in no work folder", body = handler_types::Problem),
    (status = 409, description = "It is there", body = handler_types::Problem)))]
pub async fn make(
    State(app): S,
    Document(request): Document<CreateDirectoryRequest>,
) -> ApiResult<(StatusCode, Json<DirectoryListing>)> {
    let made = rules::make(&app, request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}
