//! Ports of a sandbox: listed, forwarded, opened in a browser, connected to.

use super::document::Document;
use super::preview::ENTRANCE;
use super::problem::ApiResult;
use super::tunnel;
use crate::app::ports as rules;
use crate::app::previews::Preview;
use crate::app::sandboxes;
use crate::state::App;
use axum::Json;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use handler_types::port::{ForwardRequest, OpenRequest, OpenedPort, PortView};
use std::sync::Arc;
use std::time::Instant;

type S = State<Arc<App>>;

/// Lists the ports on which something listens inside, and those that are forwarded. Changes are told as `ports` on
/// the stream of events for a minute after each look, and as long as one is forwarded.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports", tag = "ports", params(("id" = String, Path)),
    responses((status = 200, body = Vec<PortView>)))]
pub async fn list(State(app): S, Path(id): Path<String>) -> ApiResult<Json<Vec<PortView>>> {
    Ok(Json(rules::list(&app, &id).await?))
}

/// Forwards a port to the host, by default to its loopback; it is there again after a restart of the daemon. One that
/// is forwarded already in this way stays as it is.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/ports", tag = "ports", params(("id" = String, Path)),
    request_body = ForwardRequest, responses((status = 200, body = PortView)))]
pub async fn forward(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<ForwardRequest>,
) -> ApiResult<Json<PortView>> {
    Ok(Json(rules::forward(&app, &id, &request).await?))
}

/// Takes a forward away, with its connections.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/ports/{port}", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path)), responses((status = 204)))]
pub async fn unforward(
    State(app): S,
    Path((id, port)): Path<(String, u16)>,
) -> ApiResult<StatusCode> {
    rules::unforward(&app, &id, port).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets one browser in to the preview of a port: answers an address that works once, within a minute, and leads to
/// the page itself.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/ports/{port}/open", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path)), request_body = OpenRequest,
    responses((status = 200, body = OpenedPort)))]
pub async fn open(
    State(app): S,
    Path((id, port)): Path<(String, u16)>,
    Document(request): Document<OpenRequest>,
) -> ApiResult<Json<OpenedPort>> {
    rules::check(port)?;
    let sandbox = sandboxes::find(&app, &id).await?.id;
    let page = rules::preview_url(&app, &sandbox, port);
    let path = request.path.as_deref().unwrap_or("/");
    let ticket = app
        .previews
        .ticket(Preview { sandbox, port }, path, Instant::now())?;
    let host = page.trim_end_matches('/');
    let url = format!("{host}{ENTRANCE}?ticket={ticket}");
    Ok(Json(OpenedPort { url }))
}

/// A TCP connection to a port inside over a WebSocket (`tcp.v1`): bytes in binary frames, their ends as text frames
/// (`TunnelWord`).
#[utoipa::path(get, path = "/v1/sandboxes/{id}/connect/{port}", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path)), responses((status = 101)))]
pub async fn connect(
    State(app): S,
    Path((id, port)): Path<(String, u16)>,
    upgrade: WebSocketUpgrade,
) -> ApiResult<Response> {
    rules::check(port)?;
    let sandbox = sandboxes::find(&app, &id).await?.id;
    let inside = rules::dial(&app, &sandbox, port).await?;
    let shutdown = app.shutdown.clone();
    Ok(
        tunnel::accept(upgrade, "tcp.v1").on_upgrade(move |socket| async move {
            tunnel::carry(socket, inside, shutdown).await;
        }),
    )
}
