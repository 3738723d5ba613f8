//! Files of a sandbox. Bodies stream both ways; paths are the sandbox's, a relative one is below its working folder.

use super::document::Document;
use super::problem::{ApiError, ApiResult};
use crate::app::sandboxes::{self, guest_error};
use crate::state::App;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use handler_types::ProblemCode;
use handler_types::api::{DirListing, FileWritten, MkdirRequest, MoveRequest};
use handler_types::guest::FileEntry;
use handler_types::sandbox::SandboxView;
use std::sync::Arc;

type S = State<Arc<App>>;

/// Which path.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct PathQuery {
    /// Path inside.
    pub path: String,
    /// First byte (read).
    #[serde(default)]
    pub offset: u64,
    /// Most bytes (read).
    pub length: Option<u64>,
    /// 1–32 (list; default 1).
    pub depth: Option<u32>,
    /// A folder with all it holds (remove).
    #[serde(default)]
    pub recursive: bool,
    /// Permission bits of a new file, octal (write).
    pub mode: Option<String>,
    /// Make parent folders (write).
    #[serde(default)]
    pub parents: bool,
}

fn inside(view: &SandboxView, path: &str) -> ApiResult<String> {
    if path.is_empty() || path.contains('\0') {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "path: not empty, without NUL",
        ));
    }
    if path.starts_with('/') {
        Ok(path.to_owned())
    } else {
        Ok(format!("{}/{path}", view.workdir.trim_end_matches('/')))
    }
}

/// Reads a file, whole or a range.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", tag = "files", params(("id" = String, Path), PathQuery),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
pub async fn read(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Response> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    let (meta, stream) = guest
        .read_file(&path, query.offset, query.length)
        .await
        .map_err(guest_error)?;
    let rest = meta.size.saturating_sub(query.offset);
    let length = query.length.map_or(rest, |l| l.min(rest));
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (
            header::HeaderName::from_static("x-file-size"),
            meta.size.to_string(),
        ),
        (
            header::HeaderName::from_static("x-file-mode"),
            format!("{:o}", meta.mode),
        ),
    ];
    Ok((headers, Body::from_stream(stream.into_stream())).into_response())
}

/// Writes a file whole; a reader sees the old or the new one.
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files", tag = "files", params(("id" = String, Path), PathQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 200, body = FileWritten)))]
pub async fn write(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
    body: Body,
) -> ApiResult<Json<FileWritten>> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    let mode = match query.mode.as_deref().map(|m| u32::from_str_radix(m, 8)) {
        Some(Ok(mode)) if mode <= 0o7777 => Some(mode),
        None => None,
        Some(_) => {
            return Err(ApiError::new(
                ProblemCode::Invalid,
                "mode: octal permission bits",
            ));
        }
    };
    let content = body
        .into_data_stream()
        .map(|piece| piece.map_err(|e| e.to_string()));
    let written = guest
        .write_file(&path, mode, query.parents, content)
        .await
        .map_err(guest_error)?;
    Ok(Json(FileWritten {
        size: written.size,
        sha256: written.sha256,
    }))
}

/// Removes a path.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/files", tag = "files", params(("id" = String, Path), PathQuery),
    responses((status = 204)))]
pub async fn remove(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
) -> ApiResult<StatusCode> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    guest
        .remove(&path, query.recursive)
        .await
        .map_err(guest_error)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Describes a path; links are not followed.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/stat", tag = "files", params(("id" = String, Path), PathQuery),
    responses((status = 200, body = FileEntry)))]
pub async fn stat(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Json<FileEntry>> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    Ok(Json(
        guest
            .stat(&inside(&view, &query.path)?)
            .await
            .map_err(guest_error)?,
    ))
}

/// Lists a folder.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/dir", tag = "files", params(("id" = String, Path), PathQuery),
    responses((status = 200, body = DirListing)))]
pub async fn list(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Json<DirListing>> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let depth = query.depth.unwrap_or(1).clamp(1, 32);
    let (entries, truncated) = guest
        .list(&inside(&view, &query.path)?, depth)
        .await
        .map_err(guest_error)?;
    Ok(Json(DirListing { entries, truncated }))
}

/// Makes a folder.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/mkdir", tag = "files", params(("id" = String, Path)),
    request_body = MkdirRequest, responses((status = 204)))]
pub async fn mkdir(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<MkdirRequest>,
) -> ApiResult<StatusCode> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &request.path)?;
    guest
        .mkdir(&path, request.parents, None)
        .await
        .map_err(guest_error)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Renames a path.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/move", tag = "files", params(("id" = String, Path)),
    request_body = MoveRequest, responses((status = 204)))]
pub async fn rename(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<MoveRequest>,
) -> ApiResult<StatusCode> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let (from, to) = (inside(&view, &request.from)?, inside(&view, &request.to)?);
    guest
        .rename(&from, &to, request.overwrite)
        .await
        .map_err(guest_error)?;
    Ok(StatusCode::NO_CONTENT)
}
