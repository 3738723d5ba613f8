//! `/v1/knowledge`: folders of notes that agents may read.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::knowledge as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use handler_types::knowledge::{
    KnowledgeFolderRequest, KnowledgeFolderView, KnowledgeListing, KnowledgeNote,
    SetKnowledgeRootRequest,
};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Which folder or note.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct KnowledgeQuery {
    /// Relative to the root; empty: the root itself.
    #[serde(default)]
    pub path: String,
}

/// Where the knowledge root is, and its folders.
#[utoipa::path(get, path = "/v1/knowledge", tag = "knowledge",
    responses((status = 200, body = KnowledgeListing)))]
pub async fn list(State(app): S) -> ApiResult<Json<KnowledgeListing>> {
    Ok(Json(rules::list(&app).await?))
}

/// Says where the knowledge root is. Agents' folders stay relative and follow it.
#[utoipa::path(put, path = "/v1/knowledge/root", tag = "knowledge", request_body = SetKnowledgeRootRequest,
    responses((status = 200, body = KnowledgeListing),
    (status = 400, description = "It cannot be the root", body = handler_types::Problem),
    (status = 409, description = "The environment says where it is", body = handler_types::Problem)))]
pub async fn set_root(
    State(app): S,
    Document(request): Document<SetKnowledgeRootRequest>,
) -> ApiResult<Json<KnowledgeListing>> {
    Ok(Json(rules::set_root(&app, request).await?))
}

/// Makes a folder in the knowledge root.
#[utoipa::path(post, path = "/v1/knowledge/folders", tag = "knowledge", request_body = KnowledgeFolderRequest,
    responses((status = 201, body = KnowledgeFolderView),
    (status = 400, description = "It would be hidden, or lie outside", body = handler_types::Problem),
    (status = 409, description = "It is there", body = handler_types::Problem)))]
pub async fn make(
    State(app): S,
    Document(request): Document<KnowledgeFolderRequest>,
) -> ApiResult<(StatusCode, Json<KnowledgeFolderView>)> {
    let made = rules::make(&app, request.path).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// What is in a knowledge folder.
#[utoipa::path(get, path = "/v1/knowledge/browse", tag = "knowledge", params(KnowledgeQuery),
    responses((status = 200, body = KnowledgeFolderView),
    (status = 400, description = "It may not be used", body = handler_types::Problem)))]
pub async fn browse(
    State(app): S,
    Query(query): Query<KnowledgeQuery>,
) -> ApiResult<Json<KnowledgeFolderView>> {
    Ok(Json(rules::browse(&app, query.path).await?))
}

/// A note: untrusted text of at most 1 MiB.
#[utoipa::path(get, path = "/v1/knowledge/note", tag = "knowledge", params(KnowledgeQuery),
    responses((status = 200, body = KnowledgeNote),
    (status = 400, description = "It may not be read", body = handler_types::Problem)))]
pub async fn note(
    State(app): S,
    Query(query): Query<KnowledgeQuery>,
) -> ApiResult<Json<KnowledgeNote>> {
    Ok(Json(rules::note(&app, query.path).await?))
}
