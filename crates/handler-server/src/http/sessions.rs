//! `/v1/sessions`: make, list, attach, cancel, stop, remove.

use super::document::Document;
use super::problem::ApiResult;
use super::viewer;
use crate::app::network::{Edit, edit_session};
use crate::app::sessions as rules;
use crate::state::App;
use axum::Json;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use handler_types::api::{NetworkUpdate, Page};
use handler_types::session::{CreateSession, SessionState, SessionView};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Which page of the list, and which sessions.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct SessionQuery {
    /// From the page before.
    #[serde(default)]
    pub cursor: String,
    /// 1–500 (default 50).
    pub limit: Option<u32>,
    /// Only sessions of this project folder.
    #[serde(default)]
    pub scope: String,
    /// Only sessions of this agent, by its id.
    #[serde(default)]
    pub agent_id: String,
    /// Only sessions in this state.
    pub state: Option<SessionState>,
    /// Archived sessions too (default: without them).
    pub archived: Option<bool>,
}

/// Makes a session; it starts in the background (`state` tells, `/v1/events` follows).
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = CreateSession,
    responses((status = 202, body = SessionView), (status = "4XX", description = "Problem", body = handler_types::Problem)))]
pub async fn create(
    State(app): S,
    Document(request): Document<CreateSession>,
) -> ApiResult<(StatusCode, Json<SessionView>)> {
    Ok((
        StatusCode::ACCEPTED,
        Json(rules::create(&app, request).await?),
    ))
}

/// Lists sessions, last active first.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(SessionQuery),
    responses((status = 200, body = Page<SessionView>)))]
pub async fn list(
    State(app): S,
    Query(query): Query<SessionQuery>,
) -> ApiResult<Json<Page<SessionView>>> {
    Ok(Json(rules::list(&app, query).await?))
}

/// One session, by id or unique prefix.
#[utoipa::path(get, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionView)))]
pub async fn get(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SessionView>> {
    Ok(Json(rules::find(&app, &id).await?))
}

/// Stops a session: its sandbox goes, its history stays; attaching starts it again.
#[utoipa::path(post, path = "/v1/sessions/{id}/stop", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionView)))]
pub async fn stop(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SessionView>> {
    Ok(Json(rules::stop(&app, &id).await?))
}

/// Cancels the turn under way; pending permissions are answered `cancelled`.
#[utoipa::path(post, path = "/v1/sessions/{id}/cancel", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionView)))]
pub async fn cancel(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SessionView>> {
    Ok(Json(rules::cancel(&app, &id).await?))
}

/// Removes a session with its folder.
#[utoipa::path(delete, path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 204)))]
pub async fn delete(State(app): S, Path(id): Path<String>) -> ApiResult<StatusCode> {
    rules::delete(&app, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes what the session may reach besides its model's host: live and for later starts.
#[utoipa::path(put, path = "/v1/sessions/{id}/network", tag = "sessions", params(("id" = String, Path)),
    request_body = NetworkUpdate, responses((status = 200, body = SessionView)))]
pub async fn network(
    State(app): S,
    Path(id): Path<String>,
    Document(update): Document<NetworkUpdate>,
) -> ApiResult<Json<SessionView>> {
    let edit = Edit::Replace(update.network);
    Ok(Json(edit_session(&app, &id, edit).await?))
}

/// Attaches over ACP (subprotocol `acp.v1`): a stopped session is started again first.
#[utoipa::path(get, path = "/v1/sessions/{id}/acp", tag = "sessions", params(("id" = String, Path)),
    responses((status = 101)))]
pub async fn acp(
    State(app): S,
    Path(id): Path<String>,
    upgrade: WebSocketUpgrade,
) -> ApiResult<Response> {
    // An unknown session is refused before the upgrade.
    let view = rules::find(&app, &id).await?;
    Ok(upgrade
        .protocols(["acp.v1"])
        .max_message_size(viewer::MAX_READ)
        .max_frame_size(viewer::MAX_READ)
        .on_upgrade(move |socket| viewer::run(socket, app, view.id)))
}
