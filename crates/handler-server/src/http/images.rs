//! `/v1/images` and `/v1/image-updates`: lists, names, removal; pulls and imports become builds.

use super::document::Document;
use super::problem::{ApiError, ApiResult};
use super::upload;
use crate::app::builds::{self, Upload, Work};
use crate::app::images as rules;
use crate::state::App;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use handler_types::ProblemCode;
use handler_types::build::{
    BuildKind, BuildView, ImageUpdates, ImageUpdatesRequest, PullRequest, TagRequest,
};
use handler_types::image::ImageView;
use std::sync::Arc;

type S = State<Arc<App>>;

/// Whose store.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct BackendQuery {
    /// The backend; absent: all (list), the first that has it (one image), the first that can (new ones).
    pub backend: Option<String>,
    /// Name of the new image (import).
    pub name: Option<String>,
}

/// Images of the backends, untagged ones too; a backend that does not answer is left out unless it was named.
#[utoipa::path(get, path = "/v1/images", tag = "images", params(BackendQuery),
    responses((status = 200, body = Vec<ImageView>)))]
pub async fn list(
    State(app): S,
    Query(query): Query<BackendQuery>,
) -> ApiResult<Json<Vec<ImageView>>> {
    Ok(Json(rules::list(&app, query.backend.as_deref()).await?))
}

/// One image with its configuration, by name, id or the beginning of an id.
#[utoipa::path(get, path = "/v1/images/{reference}", tag = "images",
    params(("reference" = String, Path, description = "slashes may be written as they are"), BackendQuery),
    responses((status = 200, body = ImageView), (status = 404, body = handler_types::Problem)))]
pub async fn get(
    State(app): S,
    Path(reference): Path<String>,
    Query(query): Query<BackendQuery>,
) -> ApiResult<Json<ImageView>> {
    let view = rules::inspect(&app, query.backend.as_deref(), &reference);
    Ok(Json(view.await?))
}

/// Removes a name, and the image with its last one; an id removes the image. Refused while in use.
#[utoipa::path(delete, path = "/v1/images/{reference}", tag = "images",
    params(("reference" = String, Path), BackendQuery),
    responses((status = 204), (status = 409, body = handler_types::Problem)))]
pub async fn remove(
    State(app): S,
    Path(reference): Path<String>,
    Query(query): Query<BackendQuery>,
) -> ApiResult<StatusCode> {
    rules::remove(&app, query.backend.as_deref(), &reference).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gets an image from its registry, as a build that can be followed.
#[utoipa::path(post, path = "/v1/images/pull", tag = "images", request_body = PullRequest,
    responses((status = 202, body = BuildView)))]
pub async fn pull(
    State(app): S,
    Document(request): Document<PullRequest>,
) -> ApiResult<(StatusCode, Json<BuildView>)> {
    let backend = rules::backend(&app, request.backend.as_deref()).await?;
    if !handler_drivers::oci::images::is_reference(&request.reference) {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "reference: the name of an image, e.g. debian:13",
        ));
    }
    let work = Work::Pull(request.reference.clone());
    let view = builds::submit(&app, BuildKind::Pull, &backend, &request.reference, work)?;
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// Gives an image another name, taking it from whatever had it.
#[utoipa::path(post, path = "/v1/images/tag", tag = "images", request_body = TagRequest,
    responses((status = 200, body = ImageView)))]
pub async fn tag(
    State(app): S,
    Document(request): Document<TagRequest>,
) -> ApiResult<Json<ImageView>> {
    let backend = request.backend.as_deref();
    let view = rules::tag(&app, backend, &request.reference, &request.name);
    Ok(Json(view.await?))
}

/// Makes an image from an uploaded root file system archive (tar, plain or gzip), as a build that can be followed.
#[utoipa::path(post, path = "/v1/images/import", tag = "images", params(BackendQuery),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses((status = 202, body = BuildView), (status = 507, body = handler_types::Problem)))]
pub async fn import(
    State(app): S,
    Query(query): Query<BackendQuery>,
    body: Body,
) -> ApiResult<(StatusCode, Json<BuildView>)> {
    let backend = rules::backend(&app, query.backend.as_deref()).await?;
    let target = query.name.clone().unwrap_or_else(|| "archive".to_owned());
    if query
        .name
        .as_deref()
        .is_some_and(|name| !handler_drivers::oci::images::is_image_name(name))
    {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "name: as images are called, in lower case, e.g. localhost/base:1",
        ));
    }
    let upload = Upload::begin(&app, BuildKind::Import, &backend, &target)?;
    upload::receive(body, &upload.path()).await?;
    let view = builds::submit_upload(&app, upload, Work::Import(query.name))?;
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// When harness images are rebuilt by themselves.
#[utoipa::path(get, path = "/v1/image-updates", tag = "images", responses((status = 200, body = ImageUpdates)))]
pub async fn updates(State(app): S) -> Json<ImageUpdates> {
    Json(app.updates.view())
}

/// Sets how often harness images are rebuilt by themselves.
#[utoipa::path(put, path = "/v1/image-updates", tag = "images", request_body = ImageUpdatesRequest,
    responses((status = 200, body = ImageUpdates)))]
pub async fn set_updates(
    State(app): S,
    Document(request): Document<ImageUpdatesRequest>,
) -> ApiResult<Json<ImageUpdates>> {
    Ok(Json(rules::updates::set(&app, request.schedule)?))
}

/// Rebuilds every harness image that exists, now, one after the other.
#[utoipa::path(post, path = "/v1/image-updates/run", tag = "images",
    responses((status = 202, body = ImageUpdates), (status = 409, body = handler_types::Problem)))]
pub async fn run_updates(State(app): S) -> ApiResult<(StatusCode, Json<ImageUpdates>)> {
    Ok((StatusCode::ACCEPTED, Json(rules::updates::run(&app)?)))
}
