//! `/v1/sessions/{id}`: what its agent changed, what is in its folder, changes taken back.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::sessions::files as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use handler_types::session_folder::{
    RevealRequest, RevertRequest, SessionChanges, SessionDiff, SessionFile, SessionFolder,
    SessionFound, SessionMounts,
};
use std::sync::Arc;

type S = State<Arc<App>>;

/// What to look at.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PlaceQuery {
    /// Relative to the session's folder or the mount; empty: it itself.
    #[serde(default)]
    pub path: String,
    /// Target of a browsable mount to look into instead of the session's folder.
    pub mount: Option<String>,
}

/// What was typed.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FindQuery {
    /// A part of a path; empty: the files changed last.
    #[serde(default)]
    pub q: String,
}

/// Which file.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FileQuery {
    /// Relative to the session's folder.
    pub path: String,
}

/// What changed in the session's folder since it started.
#[utoipa::path(get, path = "/v1/sessions/{id}/changes", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionChanges), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn changes(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SessionChanges>> {
    Ok(Json(rules::changes(&app, &id).await?))
}

/// What the session's agent sees of this machine.
#[utoipa::path(get, path = "/v1/sessions/{id}/mounts", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionMounts), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn mounts(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SessionMounts>> {
    Ok(Json(rules::mounts(&app, &id).await?))
}

/// What is in a folder of the session's folder or of a mount.
#[utoipa::path(get, path = "/v1/sessions/{id}/folder", tag = "sessions", params(("id" = String, Path), PlaceQuery),
    responses((status = 200, body = SessionFolder), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn folder(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PlaceQuery>,
) -> ApiResult<Json<SessionFolder>> {
    let found = rules::folder(&app, &id, query.path, query.mount.as_deref()).await?;
    Ok(Json(found))
}

/// Files of the session's folder by a part of their path, at most 20.
#[utoipa::path(get, path = "/v1/sessions/{id}/find", tag = "sessions", params(("id" = String, Path), FindQuery),
    responses((status = 200, body = SessionFound), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn find(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<FindQuery>,
) -> ApiResult<Json<SessionFound>> {
    Ok(Json(rules::find(&app, &id, query.q).await?))
}

/// A file: text or image of at most 1 MiB, and what a changed one was in the commit of the session's start.
#[utoipa::path(get, path = "/v1/sessions/{id}/file", tag = "sessions", params(("id" = String, Path), PlaceQuery),
    responses((status = 200, body = SessionFile), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn file(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PlaceQuery>,
) -> ApiResult<Json<SessionFile>> {
    let found = rules::file(&app, &id, query.path, query.mount.as_deref()).await?;
    Ok(Json(found))
}

/// What changed in a file, hunk by hunk.
#[utoipa::path(get, path = "/v1/sessions/{id}/diff", tag = "sessions", params(("id" = String, Path), FileQuery),
    responses((status = 200, body = SessionDiff), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn diff(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<FileQuery>,
) -> ApiResult<Json<SessionDiff>> {
    Ok(Json(rules::diff(&app, &id, query.path).await?))
}

/// Takes back a hunk, or all that changed in a file; answers with the difference that is left.
#[utoipa::path(post, path = "/v1/sessions/{id}/revert", tag = "sessions", params(("id" = String, Path)),
    request_body = RevertRequest,
    responses((status = 200, body = SessionDiff),
        (status = 409, description = "The file changed meanwhile, or has no earlier version", body = handler_types::Problem),
        (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn revert(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<RevertRequest>,
) -> ApiResult<Json<SessionDiff>> {
    Ok(Json(rules::revert(&app, &id, request).await?))
}

/// Shows a file or folder in the desktop's file manager; opens no file.
#[utoipa::path(post, path = "/v1/sessions/{id}/reveal", tag = "sessions", params(("id" = String, Path)),
    request_body = RevealRequest,
    responses((status = 204), (status = 409, description = "No desktop answers", body = handler_types::Problem),
        (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn reveal(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<RevealRequest>,
) -> ApiResult<StatusCode> {
    rules::reveal(&app, &id, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
