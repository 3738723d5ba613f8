//! `/v1/projects`.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::projects as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use handler_types::project::{CreateProject, ProjectSettings, ProjectView};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Which projects.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ProjectQuery {
    /// Only the project that this folder is in: the innermost one.
    #[serde(default)]
    pub folder: String,
}

/// Projects, last used first.
#[utoipa::path(get, path = "/v1/projects", tag = "projects", params(ProjectQuery),
    responses((status = 200, body = Vec<ProjectView>)))]
pub async fn list(
    State(app): S,
    Query(query): Query<ProjectQuery>,
) -> ApiResult<Json<Vec<ProjectView>>> {
    Ok(Json(rules::list(&app, &query.folder).await?))
}

/// Makes a project with its first agents: all of it or nothing.
#[utoipa::path(post, path = "/v1/projects", tag = "projects", request_body = CreateProject,
    responses((status = 201, body = ProjectView),
    (status = 400, description = "`reasons` has everything that is wrong", body = handler_types::Problem),
    (status = 409, description = "The folder is another project's, or what `reasons` says is not confirmed", body = handler_types::Problem)))]
pub async fn create(
    State(app): S,
    Document(request): Document<CreateProject>,
) -> ApiResult<(StatusCode, Json<ProjectView>)> {
    let made = rules::create(&app, request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// One project, by id, the beginning of one, or its name.
#[utoipa::path(get, path = "/v1/projects/{id}", tag = "projects", params(("id" = String, Path)),
    responses((status = 200, body = ProjectView)))]
pub async fn get(State(app): S, Path(id): Path<String>) -> ApiResult<Json<ProjectView>> {
    Ok(Json(rules::find(&app, &id).await?))
}

/// Says something else of a project, whole.
#[utoipa::path(put, path = "/v1/projects/{id}", tag = "projects", params(("id" = String, Path)),
    request_body = ProjectSettings, responses((status = 200, body = ProjectView)))]
pub async fn put(
    State(app): S,
    Path(id): Path<String>,
    Document(settings): Document<ProjectSettings>,
) -> ApiResult<Json<ProjectView>> {
    Ok(Json(rules::update(&app, &id, settings).await?))
}

/// Removes a project, its agents and its own caches; their running sessions are stopped. Its folder is not touched.
#[utoipa::path(delete, path = "/v1/projects/{id}", tag = "projects", params(("id" = String, Path)),
    responses((status = 204)))]
pub async fn remove(State(app): S, Path(id): Path<String>) -> ApiResult<StatusCode> {
    rules::remove(&app, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
