//! Folders of a sandbox as archives, and what changes in them.

use super::files::inside;
use super::problem::ApiResult;
use crate::app::{archives, sandboxes};
use crate::state::App;
use axum::Json;
use axum::body::Body;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures::{SinkExt as _, StreamExt as _};
use handler_engine::guest::Watch;
use handler_types::api::ArchiveFormat;
use handler_types::guest::Unpacked;
use http_body_util::StreamBody;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

type S = State<Arc<App>>;

/// Which folder, in which form.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ArchiveQuery {
    /// Path inside.
    pub path: String,
    /// Form of the archive (default tar).
    #[serde(default)]
    pub format: ArchiveFormat,
}

/// Reads a folder with all it holds, or one file, as an archive; names are relative to the folder. Links are kept as
/// links. To a client that takes trailers, `x-archive-skipped` says how many paths could not be put in (sockets,
/// device nodes, what may not be read).
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/archive", tag = "files", params(("id" = String, Path), ArchiveQuery),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
pub async fn download(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<ArchiveQuery>,
) -> ApiResult<Response> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    let frames = archives::pack(&guest, &path, query.format).await?;
    let media = match query.format {
        ArchiveFormat::Tar => "application/x-tar",
        ArchiveFormat::TarGz => "application/gzip",
        ArchiveFormat::Zip => "application/zip",
    };
    let headers = [
        (header::CONTENT_TYPE, media),
        (header::TRAILER, archives::SKIPPED),
    ];
    let hold = app.engine.hold(&view.id).map_err(sandboxes::engine_error)?;
    let frames = frames.inspect(move |_| {
        let _in_use = &hold;
    });
    Ok((headers, Body::new(StreamBody::new(frames))).into_response())
}

/// Unpacks an archive into a folder, which is made if it is not there; files that exist are replaced, folders
/// merged. Nothing outside the folder is touched: absolute names and `..` are refused; links that lead out of it
/// and device nodes are left out and told. At most 64 GiB and a million entries.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files/archive", tag = "files", params(("id" = String, Path), ArchiveQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 200, body = Unpacked)))]
pub async fn upload(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<ArchiveQuery>,
    body: Body,
) -> ApiResult<Json<Unpacked>> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    let _in_use = app.engine.hold(&view.id).map_err(sandboxes::engine_error)?;
    let content = body
        .into_data_stream()
        .map(|piece| piece.map_err(|e| e.to_string()));
    let spool = &app.settings.layout.state;
    let unpacked = archives::unpack(&guest, &path, query.format, content, spool).await?;
    Ok(Json(unpacked))
}

/// What to watch.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WatchQuery {
    /// Path of a folder or file inside.
    pub path: String,
    /// Folders below as well.
    #[serde(default)]
    pub recursive: bool,
}

/// Tells over a WebSocket what changes: each text frame is one `WatchEvent`. `overflow` says that changes were
/// missed. It closes when the path is gone.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files/watch", tag = "files", params(("id" = String, Path), WatchQuery),
    responses((status = 101)))]
pub async fn watch(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<WatchQuery>,
    upgrade: WebSocketUpgrade,
) -> ApiResult<Response> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let path = inside(&view, &query.path)?;
    let watch = guest
        .watch(&path, query.recursive)
        .await
        .map_err(sandboxes::guest_error)?;
    let shutdown = app.shutdown.clone();
    Ok(upgrade
        .protocols(["watch.v1"])
        .max_message_size(64 * 1024)
        .on_upgrade(move |socket| tell(socket, watch, shutdown)))
}

async fn tell(socket: WebSocket, mut watch: Watch, shutdown: CancellationToken) {
    let (mut sink, mut source) = socket.split();
    let reason = loop {
        tokio::select! {
            () = shutdown.cancelled() => break "the daemon is stopping; watch again",
            heard = source.next() => match heard {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            event = watch.next() => {
                let Some(event) = event else { break "the path is gone" };
                let text = serde_json::to_string(&event).unwrap_or_default();
                if sink.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
        }
    };
    let frame = CloseFrame {
        code: 1000,
        reason: reason.into(),
    };
    sink.send(Message::Close(Some(frame))).await.ok();
}
