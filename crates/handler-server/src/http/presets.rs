//! `/v1/presets` and `/v1/quick-files`.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::{presets, quick_files};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use handler_types::preset::{Preset, PresetView, QuickFile, QuickFileView};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Environment presets; a wrong file with its problem.
#[utoipa::path(get, path = "/v1/presets", tag = "presets", responses((status = 200, body = Vec<PresetView>)))]
pub async fn list(State(app): S) -> ApiResult<Json<Vec<PresetView>>> {
    Ok(Json(presets::list(&app)?))
}

/// One preset.
#[utoipa::path(get, path = "/v1/presets/{name}", tag = "presets", params(("name" = String, Path)),
    responses((status = 200, body = Preset)))]
pub async fn get(State(app): S, Path(name): Path<String>) -> ApiResult<Json<Preset>> {
    Ok(Json(presets::get(&app, &name)?))
}

/// Makes or replaces a preset.
#[utoipa::path(put, path = "/v1/presets/{name}", tag = "presets", params(("name" = String, Path)),
    request_body = Preset, responses((status = 200, body = PresetView)))]
pub async fn put(
    State(app): S,
    Path(name): Path<String>,
    Document(preset): Document<Preset>,
) -> ApiResult<Json<PresetView>> {
    Ok(Json(presets::put(&app, &name, &preset)?))
}

/// Removes a preset; sandboxes made with it stay as they are.
#[utoipa::path(delete, path = "/v1/presets/{name}", tag = "presets", params(("name" = String, Path)),
    responses((status = 204)))]
pub async fn remove(State(app): S, Path(name): Path<String>) -> ApiResult<StatusCode> {
    presets::remove(&app, &name)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Quick files; sensitive ones without their text.
#[utoipa::path(get, path = "/v1/quick-files", tag = "quick files",
    responses((status = 200, body = Vec<QuickFileView>)))]
pub async fn list_files(State(app): S) -> ApiResult<Json<Vec<QuickFileView>>> {
    Ok(Json(quick_files::list(&app)?))
}

/// One quick file; a sensitive one without its text.
#[utoipa::path(get, path = "/v1/quick-files/{name}", tag = "quick files", params(("name" = String, Path)),
    responses((status = 200, body = QuickFile)))]
pub async fn get_file(State(app): S, Path(name): Path<String>) -> ApiResult<Json<QuickFile>> {
    Ok(Json(quick_files::get(&app, &name)?))
}

/// Makes or replaces a quick file.
#[utoipa::path(put, path = "/v1/quick-files/{name}", tag = "quick files", params(("name" = String, Path)),
    request_body = QuickFile, responses((status = 200, body = QuickFileView)))]
pub async fn put_file(
    State(app): S,
    Path(name): Path<String>,
    Document(file): Document<QuickFile>,
) -> ApiResult<Json<QuickFileView>> {
    Ok(Json(quick_files::put(&app, &name, file).await?))
}

/// Removes a quick file; sandboxes that have it keep it.
#[utoipa::path(delete, path = "/v1/quick-files/{name}", tag = "quick files", params(("name" = String, Path)),
    responses((status = 204)))]
pub async fn remove_file(State(app): S, Path(name): Path<String>) -> ApiResult<StatusCode> {
    quick_files::remove(&app, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Puts a quick file into a running sandbox.
#[utoipa::path(post, path = "/v1/quick-files/{name}/copy/{sandbox}", tag = "quick files",
    params(("name" = String, Path), ("sandbox" = String, Path)), responses((status = 204)))]
pub async fn copy_file(
    State(app): S,
    Path((name, sandbox)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    quick_files::copy_into(&app, &name, &sandbox).await?;
    Ok(StatusCode::NO_CONTENT)
}
