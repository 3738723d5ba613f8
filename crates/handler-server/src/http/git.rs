//! `/v1/sandboxes/{id}/git…` and `/v1/forks`.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::git::{fork, look, merge};
use crate::app::sandboxes;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use handler_types::api::Page;
use handler_types::git::{
    CreateFork, ForkKept, ForkView, GitCommit, GitShow, GitStatus, MergeRequest, MergeResult,
};
use handler_types::sandbox::SandboxView;
use std::sync::Arc;

type S = State<Arc<App>>;

/// Which repository, and which commits.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct GitQuery {
    /// Folder inside (default: the working folder; a relative one is below it).
    pub path: Option<String>,
    /// Branch, tag or commit to begin at (log; default: what is checked out).
    #[serde(rename = "ref")]
    pub from: Option<String>,
    /// Commits to pass over (log).
    #[serde(default)]
    pub skip: u32,
    /// 1–500 (log; default 50).
    pub limit: Option<u32>,
}

/// Branch and changed paths of the repository in a sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/git", tag = "git", params(("id" = String, Path), GitQuery),
    responses((status = 200, body = GitStatus)))]
pub async fn status(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<GitQuery>,
) -> ApiResult<Json<GitStatus>> {
    Ok(Json(look::status(&app, &id, query.path.as_deref()).await?))
}

/// Commits, newest first.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/git/log", tag = "git", params(("id" = String, Path), GitQuery),
    responses((status = 200, body = Vec<GitCommit>)))]
pub async fn log(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<GitQuery>,
) -> ApiResult<Json<Vec<GitCommit>>> {
    let limit = query.limit.unwrap_or(50).clamp(1, 500);
    let (path, from) = (query.path.as_deref(), query.from.as_deref());
    Ok(Json(
        look::log(&app, &id, path, from, query.skip, limit).await?,
    ))
}

/// A commit with its message and patch.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/git/commits/{commit}", tag = "git",
    params(("id" = String, Path), ("commit" = String, Path), GitQuery), responses((status = 200, body = GitShow)))]
pub async fn show(
    State(app): S,
    Path((id, commit)): Path<(String, String)>,
    Query(query): Query<GitQuery>,
) -> ApiResult<Json<GitShow>> {
    Ok(Json(
        look::show(&app, &id, query.path.as_deref(), &commit).await?,
    ))
}

/// What is not committed, as a patch.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/git/diff", tag = "git", params(("id" = String, Path), GitQuery),
    responses((status = 200, content_type = "text/x-diff", body = String)))]
pub async fn diff(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<GitQuery>,
) -> ApiResult<String> {
    look::diff(&app, &id, query.path.as_deref()).await
}

/// Makes a fork of a project: a clone with a branch of its own, and a sandbox that works on it.
#[utoipa::path(post, path = "/v1/forks", tag = "git", request_body = CreateFork,
    responses((status = 201, body = SandboxView)))]
pub async fn create_fork(
    State(app): S,
    Document(request): Document<CreateFork>,
) -> ApiResult<(StatusCode, Json<SandboxView>)> {
    Ok((
        StatusCode::CREATED,
        Json(fork::create(&app, request).await?),
    ))
}

/// Forks and how they stand towards their projects.
#[utoipa::path(get, path = "/v1/forks", tag = "git", responses((status = 200, body = Page<ForkView>)))]
pub async fn forks(State(app): S) -> ApiResult<Json<Page<ForkView>>> {
    Ok(Json(fork::list(&app).await?))
}

/// How a fork stands. A fork is removed by removing its sandbox.
#[utoipa::path(get, path = "/v1/forks/{sandbox}", tag = "git", params(("sandbox" = String, Path)),
    responses((status = 200, body = ForkView)))]
pub async fn get_fork(State(app): S, Path(sandbox): Path<String>) -> ApiResult<Json<ForkView>> {
    Ok(Json(fork::get(&app, &sandbox).await?))
}

/// Whether to insist.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RemoveQuery {
    /// Remove it even when its work cannot be kept.
    #[serde(default)]
    pub force: bool,
}

/// Removes a fork with its sandbox and folder. What its project does not have is kept there, hidden.
#[utoipa::path(delete, path = "/v1/forks/{sandbox}", tag = "git", params(("sandbox" = String, Path), RemoveQuery),
    responses((status = 200, body = ForkKept), (status = 409, body = handler_types::Problem)))]
pub async fn remove_fork(
    State(app): S,
    Path(sandbox): Path<String>,
    Query(query): Query<RemoveQuery>,
) -> ApiResult<Json<ForkKept>> {
    fork::get(&app, &sandbox).await?;
    Ok(Json(sandboxes::remove(&app, &sandbox, query.force).await?))
}

/// Takes a fork's work back into its project; conflicts are told and change nothing.
#[utoipa::path(post, path = "/v1/forks/{sandbox}/merge", tag = "git", params(("sandbox" = String, Path)),
    request_body = MergeRequest, responses((status = 200, body = MergeResult)))]
pub async fn merge_fork(
    State(app): S,
    Path(sandbox): Path<String>,
    Document(request): Document<MergeRequest>,
) -> ApiResult<Json<MergeResult>> {
    Ok(Json(merge::run(&app, &sandbox, request).await?))
}
