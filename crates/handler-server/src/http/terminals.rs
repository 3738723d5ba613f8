//! `/v1/sandboxes/{id}/terminals`: make, list, look, type, close; the WebSocket is in [`super::terminal_socket`].

use super::document::Document;
use super::problem::{ApiError, ApiResult};
use super::terminal_socket;
use crate::app::terminals::{self as rules, ScreenAnswer};
use crate::state::App;
use axum::Json;
use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts as _, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use handler_types::ProblemCode;
use handler_types::guest::TtySize;
use handler_types::terminal::{
    CreateTerminal, ScreenFormat, ScreenView, TerminalView, TmuxSessions, UpdateTerminal,
    ViewerMode,
};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Most lines of scrollback that are given.
const MOST_LINES: usize = 10_000;
/// Longest message of a viewer, bytes.
const MAX_MESSAGE: usize = 1024 * 1024;

/// Opens a terminal; it outlives its viewers and the daemon.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/terminals", tag = "terminals", params(("id" = String, Path)),
    request_body = CreateTerminal, responses((status = 201, body = TerminalView)))]
pub async fn create(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<CreateTerminal>,
) -> ApiResult<(StatusCode, Json<TerminalView>)> {
    let view = rules::create(&app, &id, request).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

/// Lists a sandbox's terminals; ended ones too, until they are closed.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/terminals", tag = "terminals", params(("id" = String, Path)),
    responses((status = 200, body = Vec<TerminalView>)))]
pub async fn list(State(app): S, Path(id): Path<String>) -> ApiResult<Json<Vec<TerminalView>>> {
    Ok(Json(rules::list(&app, &id).await?))
}

/// Which part of a terminal a WebSocket shows, and how.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ViewQuery {
    /// The viewer's columns; with `rows`.
    pub cols: Option<u16>,
    /// The viewer's rows.
    pub rows: Option<u16>,
    /// Whether it may type and set the size.
    #[serde(default)]
    pub mode: ViewerMode,
    /// Lines that have left the screen, given before it (default none, at most 10 000).
    #[serde(default)]
    pub scrollback: usize,
    /// Who says what was drawn: the daemon for what the socket took, or the viewer by `ack` commands. A viewer that
    /// acknowledges is never more than 512 KiB ahead.
    #[serde(default)]
    pub ack: super::processes::AckBy,
}

/// One terminal. As a WebSocket (protocol `terminal.v1`): its screen, then its output in binary frames, events in
/// text frames; binary frames from the viewer are keys.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/terminals/{terminal}", tag = "terminals",
    params(("id" = String, Path), ("terminal" = u32, Path), ViewQuery),
    responses((status = 200, body = TerminalView), (status = 101)))]
pub async fn get(
    State(app): S,
    Path((id, terminal)): Path<(String, u32)>,
    Query(query): Query<ViewQuery>,
    request: Request,
) -> ApiResult<Response> {
    let (mut parts, _) = request.into_parts();
    if !parts.headers.contains_key(header::UPGRADE) {
        let hub = rules::find(&app, &id, terminal).await?;
        return Ok(Json(hub.view()).into_response());
    }
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &app)
        .await
        .map_err(|error| ApiError::new(ProblemCode::Invalid, error.body_text()))?;
    let size = match (query.cols, query.rows) {
        (Some(cols), Some(rows)) if cols > 0 && rows > 0 => Some(TtySize { cols, rows }),
        (None, None) => None,
        _ => {
            return Err(ApiError::new(
                ProblemCode::Invalid,
                "cols and rows: both, from 1",
            ));
        }
    };
    // Looking wakes nothing; typing does.
    let hub = match query.mode {
        ViewerMode::Write => rules::awake(&app, &id, terminal).await?,
        ViewerMode::Read => rules::find(&app, &id, terminal).await?,
    };
    let viewer = terminal_socket::Viewer {
        mode: query.mode,
        size,
        scrollback: query.scrollback.min(MOST_LINES),
        ack: query.ack,
    };
    Ok(upgrade
        .protocols(["terminal.v1"])
        .max_message_size(MAX_MESSAGE)
        .on_upgrade(move |socket| terminal_socket::run(socket, hub, viewer)))
}

/// Renames a terminal.
#[utoipa::path(patch, path = "/v1/sandboxes/{id}/terminals/{terminal}", tag = "terminals",
    params(("id" = String, Path), ("terminal" = u32, Path)), request_body = UpdateTerminal,
    responses((status = 200, body = TerminalView)))]
pub async fn update(
    State(app): S,
    Path((id, terminal)): Path<(String, u32)>,
    Document(update): Document<UpdateTerminal>,
) -> ApiResult<Json<TerminalView>> {
    Ok(Json(rules::update(&app, &id, terminal, update).await?))
}

/// Closes a terminal: its program is told to hang up, then killed with all it started.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/terminals/{terminal}", tag = "terminals",
    params(("id" = String, Path), ("terminal" = u32, Path)), responses((status = 204)))]
pub async fn close(
    State(app): S,
    Path((id, terminal)): Path<(String, u32)>,
) -> ApiResult<StatusCode> {
    rules::close(&app, &id, terminal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How a screen is wanted.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ScreenQuery {
    /// `text`, `ansi` (with colours) or `json`.
    #[serde(default)]
    pub format: ScreenFormat,
    /// Lines that have left the screen, given before it (default none, at most 10 000).
    #[serde(default)]
    pub scrollback: usize,
}

/// What is on a terminal now.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/terminals/{terminal}/screen", tag = "terminals",
    params(("id" = String, Path), ("terminal" = u32, Path), ScreenQuery),
    responses((status = 200, body = ScreenView, content_type = "application/json"),
        (status = 200, body = String, content_type = "text/plain")))]
pub async fn screen(
    State(app): S,
    Path((id, terminal)): Path<(String, u32)>,
    Query(query): Query<ScreenQuery>,
) -> ApiResult<Response> {
    let lines = query.scrollback.min(MOST_LINES);
    let answer = rules::screen(&app, &id, terminal, query.format, lines).await?;
    Ok(match answer {
        ScreenAnswer::Text(text) => text.into_response(),
        ScreenAnswer::View(view) => Json(view).into_response(),
    })
}

/// Types on a terminal: the body is what the keys send.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/terminals/{terminal}/input", tag = "terminals",
    params(("id" = String, Path), ("terminal" = u32, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204)))]
pub async fn input(
    State(app): S,
    Path((id, terminal)): Path<(String, u32)>,
    body: Bytes,
) -> ApiResult<StatusCode> {
    rules::type_in(&app, &id, terminal, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets a terminal's size.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/terminals/{terminal}/resize", tag = "terminals",
    params(("id" = String, Path), ("terminal" = u32, Path)), request_body = TtySize, responses((status = 204)))]
pub async fn resize(
    State(app): S,
    Path((id, terminal)): Path<(String, u32)>,
    Document(size): Document<TtySize>,
) -> ApiResult<StatusCode> {
    rules::resize(&app, &id, terminal, size).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the tmux sessions inside a sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/tmux", tag = "terminals", params(("id" = String, Path)),
    responses((status = 200, body = TmuxSessions)))]
pub async fn tmux(State(app): S, Path(id): Path<String>) -> ApiResult<Json<TmuxSessions>> {
    Ok(Json(rules::tmux_sessions(&app, &id).await?))
}
