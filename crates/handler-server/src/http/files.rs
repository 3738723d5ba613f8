//! Files of a sandbox. Bodies stream both ways; paths are the sandbox's, a relative one is below its working folder.

use super::document::Document;
use super::problem::{ApiError, ApiResult};
use super::range;
use crate::app::sandboxes::{self, guest_error};
use crate::state::App;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use handler_engine::guest::WriteOptions;
use handler_types::ProblemCode;
use handler_types::api::{ChmodRequest, DirListing, FileWritten, MkdirRequest, MoveRequest};
use handler_types::guest::FileEntry;
use handler_types::sandbox::SandboxView;
use std::sync::Arc;

type S = State<Arc<App>>;

const FILE_SIZE: HeaderName = HeaderName::from_static("x-file-size");
const FILE_MODE: HeaderName = HeaderName::from_static("x-file-mode");
const FILE_SHA256: HeaderName = HeaderName::from_static("x-file-sha256");

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
    /// The SHA-256 in the header `x-file-sha256` (read; the file is read twice).
    #[serde(default)]
    pub hash: bool,
    /// Permission bits of a new file, octal (write).
    pub mode: Option<String>,
    /// Make parent folders (write).
    #[serde(default)]
    pub parents: bool,
}

/// A path inside: a relative one is below the working folder.
///
/// # Errors
/// 400 for one that is empty or holds a NUL.
pub(super) fn inside(view: &SandboxView, path: &str) -> ApiResult<String> {
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

/// Reads a file, whole or a range: by `offset` and `length`, or by one range of the header `Range`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", tag = "files", params(("id" = String, Path), PathQuery),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>), (status = 206), (status = 416)))]
pub async fn read(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    let wanted = headers.get(header::RANGE).and_then(|v| v.to_str().ok());
    let (mut offset, mut length) = (query.offset, query.length);
    let mut part = None;
    if let Some(wanted) = wanted.and_then(range::parse) {
        let (known, _) = guest
            .read_file(&path, 0, Some(0))
            .await
            .map_err(guest_error)?;
        let Some(found) = wanted.within(known.size) else {
            return Ok(range::unsatisfiable(known.size));
        };
        (offset, length) = (found.start, Some(found.length));
        part = Some(found);
    }
    let sha256 = match query.hash {
        true => Some(guest.hash(&path).await.map_err(guest_error)?.sha256),
        false => None,
    };
    let (meta, stream) = guest
        .read_file(&path, offset, length)
        .await
        .map_err(guest_error)?;
    let hold = app.engine.hold(&view.id).map_err(sandboxes::engine_error)?;
    let pieces = stream.into_stream().inspect(move |_| {
        let _in_use = &hold;
    });
    let mut response = Body::from_stream(pieces).into_response();
    let out = response.headers_mut();
    out.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    out.insert(FILE_SIZE, meta.size.into());
    if let Ok(mode) = format!("{:o}", meta.mode).parse() {
        out.insert(FILE_MODE, mode);
    }
    if let Some(sha256) = sha256.and_then(|sha256| sha256.parse().ok()) {
        out.insert(FILE_SHA256, sha256);
    }
    let rest = meta.size.saturating_sub(offset);
    // Those of /proc say 0 and have content: their length is known at their end.
    if meta.size > 0 {
        let length = length.map_or(rest, |length| length.min(rest));
        out.insert(header::CONTENT_LENGTH, length.into());
    }
    if let Some(part) = part {
        out.insert(header::CONTENT_RANGE, part.header(meta.size));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// Writes a file whole; a reader sees the old or the new one, and an upload that breaks off changes nothing. With
/// `If-None-Match: *` only when nothing is there (else 409). With `x-content-sha256` only when the content has that
/// hash (else 400).
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files", tag = "files", params(("id" = String, Path), PathQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 200, body = FileWritten)))]
pub async fn write(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    let options = WriteOptions {
        mode: query.mode.as_deref().map(octal).transpose()?,
        parents: query.parents,
        create_only: create_only(&headers)?,
        sha256: announced_hash(&headers)?,
    };
    let _in_use = app.engine.hold(&view.id).map_err(sandboxes::engine_error)?;
    let content = body
        .into_data_stream()
        .map(|piece| piece.map_err(|e| e.to_string()));
    let written = guest
        .write_file_with(&path, options, content)
        .await
        .map_err(guest_error)?;
    let written = FileWritten {
        size: written.size,
        sha256: written.sha256,
    };
    Ok(([(FILE_SHA256, written.sha256.clone())], Json(written)).into_response())
}

fn octal(text: &str) -> ApiResult<u32> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| {
            ApiError::new(
                ProblemCode::Invalid,
                "mode: octal permission bits, e.g. 644",
            )
        })
}

fn create_only(headers: &HeaderMap) -> ApiResult<bool> {
    match headers.get(header::IF_NONE_MATCH) {
        None => Ok(false),
        Some(value) if value == "*" => Ok(true),
        Some(_) => Err(ApiError::new(
            ProblemCode::Invalid,
            "If-None-Match: only `*` is known here",
        )),
    }
}

fn announced_hash(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(value) = headers.get("x-content-sha256") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(Some(text));
    }
    Err(ApiError::new(
        ProblemCode::Invalid,
        "x-content-sha256: 64 hexadecimal digits",
    ))
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

/// Size and SHA-256 of a file.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/hash", tag = "files", params(("id" = String, Path), PathQuery),
    responses((status = 200, body = FileWritten)))]
pub async fn hash(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
) -> ApiResult<Json<FileWritten>> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    let found = guest.hash(&path).await.map_err(guest_error)?;
    Ok(Json(FileWritten {
        size: found.size,
        sha256: found.sha256,
    }))
}

/// Sets permission bits; with `recursive` of all that a folder holds.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/chmod", tag = "files", params(("id" = String, Path)),
    request_body = ChmodRequest, responses((status = 204)))]
pub async fn chmod(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<ChmodRequest>,
) -> ApiResult<StatusCode> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &request.path)?;
    let mode = octal(&request.mode)?;
    guest
        .chmod(&path, mode, request.recursive)
        .await
        .map_err(guest_error)?;
    Ok(StatusCode::NO_CONTENT)
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
