//! Commands of a sandbox: buffered exec, kept processes with their streams.

use super::document::Document;
use super::problem::{ApiError, ApiResult};
use super::spooled::{self, Viewing};
use super::stream;
use crate::app::{exec as rules, exec_stream, sandboxes};
use crate::state::App;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use handler_types::ProblemCode;
use handler_types::api::{ExecRequest, ExecResult, ProcessView, SignalRequest};
use std::sync::Arc;

type S = State<Arc<App>>;

/// How an exec is answered.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExecQuery {
    /// Lines of JSON (`ExecEvent`) while it runs, instead of one document at its end.
    #[serde(default)]
    pub stream: bool,
}

/// Runs a command, waits for its end and answers with its output. A non-zero exit is a result. With `stream=true` the
/// answer is `application/x-ndjson`, each line an `ExecEvent`; a client that leaves early leaves the command running.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec", tag = "processes", params(("id" = String, Path), ExecQuery),
    request_body = ExecRequest, responses((status = 200, body = ExecResult)))]
pub async fn exec(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<ExecQuery>,
    Document(request): Document<ExecRequest>,
) -> ApiResult<Response> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let in_use = app.engine.hold(&view.id).map_err(sandboxes::engine_error)?;
    if !query.stream {
        let result = rules::buffered(&guest, request).await?;
        return Ok(Json(result).into_response());
    }
    let spools = app.spools.clone();
    let lines = exec_stream::stream(guest, request, in_use, (view.id, spools)).await?;
    let media = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((media, Body::from_stream(lines)).into_response())
}

/// Starts a process that is kept: attach to it, signal it, find it again after a restart of the daemon. What it says is
/// kept as well (256 MiB of a process, 1 GiB of a sandbox), whether anyone listens or not.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes", tag = "processes", params(("id" = String, Path)),
    request_body = ExecRequest, responses((status = 201, body = ProcessView)))]
pub async fn start(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<ExecRequest>,
) -> ApiResult<(StatusCode, Json<ProcessView>)> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let process = rules::start(&guest, request).await?;
    app.spools.begin(&view.id, &guest, process.process);
    Ok((StatusCode::CREATED, Json(process)))
}

/// Lists a sandbox's processes (those started through the API).
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes", tag = "processes", params(("id" = String, Path)),
    responses((status = 200, body = Vec<ProcessView>)))]
pub async fn list(State(app): S, Path(id): Path<String>) -> ApiResult<Json<Vec<ProcessView>>> {
    let guest = sandboxes::guest(&app, &id).await?;
    Ok(Json(rules::list(&guest).await?))
}

/// One process.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path)), responses((status = 200, body = ProcessView)))]
pub async fn get(
    State(app): S,
    Path((id, process)): Path<(String, u32)>,
) -> ApiResult<Json<ProcessView>> {
    let guest = sandboxes::guest(&app, &id).await?;
    Ok(Json(rules::view(&rules::find(&guest, process).await?)))
}

/// Forgets an ended process.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/processes/{process}", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path)), responses((status = 204)))]
pub async fn forget(
    State(app): S,
    Path((id, process)): Path<(String, u32)>,
) -> ApiResult<StatusCode> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    guest
        .forget(process)
        .await
        .map_err(sandboxes::guest_error)?;
    app.spools.forget(&view.id, &guest, process);
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a signal to a process, by default to its whole tree.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/signal", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path)), request_body = SignalRequest,
    responses((status = 204)))]
pub async fn signal(
    State(app): S,
    Path((id, process)): Path<(String, u32)>,
    Document(request): Document<SignalRequest>,
) -> ApiResult<StatusCode> {
    if !(1..=31).contains(&request.signal) {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "signal: a number from 1 to 31",
        ));
    }
    let guest = sandboxes::guest(&app, &id).await?;
    guest
        .signal(process, request.signal, request.tree)
        .await
        .map_err(sandboxes::guest_error)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Where input written over HTTP begins.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StdinQuery {
    /// Offset of the body's first byte in the process's input (default: behind what it has).
    pub offset: Option<u64>,
    /// Close the input afterwards.
    #[serde(default)]
    pub close: bool,
}

/// Writes to a process's input; sending the same bytes at the same offset again changes nothing.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/stdin", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path), StdinQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204)))]
pub async fn stdin(
    State(app): S,
    Path((id, process)): Path<(String, u32)>,
    Query(query): Query<StdinQuery>,
    body: Bytes,
) -> ApiResult<StatusCode> {
    let guest = sandboxes::guest(&app, &id).await?;
    rules::write_stdin(&guest, process, query.offset, body, query.close).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Where a stream begins.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AttachQuery {
    /// Offset of the first output byte wanted (default: the first one still kept).
    pub from: Option<u64>,
    /// Who says what need not be kept any longer (default: the daemon, once the socket took it).
    #[serde(default)]
    pub ack: AckBy,
}

/// Who acknowledges output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AckBy {
    /// The daemon, for each piece the socket took; what then sits in a broken socket is lost.
    #[default]
    Daemon,
    /// The client, by `ack` commands, at least every MiB; nothing is lost, it attaches again with `from`.
    Client,
}

/// Streams a process over a WebSocket: binary frames are one stream byte (1 stdout, 2 stderr, 3 terminal)
/// and output; text frames are events and commands. The newest attachment has the stream.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}/attach", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path), AttachQuery), responses((status = 101)))]
pub async fn attach(
    State(app): S,
    Path((id, process)): Path<(String, u32)>,
    Query(query): Query<AttachQuery>,
    upgrade: WebSocketUpgrade,
) -> ApiResult<Response> {
    let (view, guest) = sandboxes::view_and_guest(&app, &id).await?;
    let info = rules::find(&guest, process).await?;
    if info.tty.is_some() {
        return Err(ApiError::new(
            ProblemCode::Conflict,
            "this process is a terminal's: attach to the terminal",
        ));
    }
    if let Some(spool) = app.spools.find(&view.id, &guest, process) {
        let viewing = Viewing {
            spool,
            guest,
            info,
            from: query.from,
            ack: query.ack,
            shutdown: app.shutdown.clone(),
        };
        return Ok(upgrade
            .protocols(["process.v1"])
            .max_message_size(1024 * 1024)
            .on_upgrade(move |socket| spooled::run(socket, viewing)));
    }
    let from = query.from.unwrap_or(info.acked).max(info.acked);
    let stream = guest
        .attach(process, from)
        .await
        .map_err(sandboxes::guest_error)?;
    let shutdown = app.shutdown.clone();
    Ok(upgrade
        .protocols(["process.v1"])
        .max_message_size(1024 * 1024)
        .on_upgrade(move |socket| {
            stream::run(socket, guest, info, stream, from, query.ack, shutdown)
        }))
}
