//! `…/network/…` of sandboxes and sessions: what was asked for, and one entry more or less.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::network::{Edit, edit_sandbox, edit_session};
use crate::app::{learn as rules, sessions};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use handler_types::learn::{EnforcementRequest, EntriesRequest, LearnView};
use handler_types::sandbox::SandboxView;
use handler_types::session::SessionView;
use std::sync::Arc;

type S = State<Arc<App>>;

/// What a sandbox asked for, each destination once, and the entry that would allow it.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/network/learn", tag = "network", params(("id" = String, Path)),
    responses((status = 200, body = LearnView), (status = 404, body = handler_types::Problem)))]
pub async fn learn(State(app): S, Path(id): Path<String>) -> ApiResult<Json<LearnView>> {
    Ok(Json(rules::of(&app, &id).await?))
}

/// Puts entries on a sandbox's list, live. Of a session's sandbox: on the session's.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/network/allow", tag = "network", params(("id" = String, Path)),
    request_body = EntriesRequest, responses((status = 200, body = SandboxView),
    (status = 409, description = "Its network has no list", body = handler_types::Problem)))]
pub async fn allow(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EntriesRequest>,
) -> ApiResult<Json<SandboxView>> {
    let edit = Edit::Allow(request.entries);
    Ok(Json(edit_sandbox(&app, &id, edit).await?))
}

/// Takes entries off a sandbox's list, live: tunnels that they allowed are closed.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/network/block", tag = "network", params(("id" = String, Path)),
    request_body = EntriesRequest, responses((status = 200, body = SandboxView),
    (status = 409, description = "It is not on the list", body = handler_types::Problem)))]
pub async fn block(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EntriesRequest>,
) -> ApiResult<Json<SandboxView>> {
    let edit = Edit::Block(request.entries);
    Ok(Json(edit_sandbox(&app, &id, edit).await?))
}

/// Says whether a sandbox's unlisted destinations are refused or only told, live.
#[utoipa::path(put, path = "/v1/sandboxes/{id}/network/enforcement", tag = "network", params(("id" = String, Path)),
    request_body = EnforcementRequest, responses((status = 200, body = SandboxView),
    (status = 409, description = "Its network has no list", body = handler_types::Problem)))]
pub async fn enforcement(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EnforcementRequest>,
) -> ApiResult<Json<SandboxView>> {
    let edit = Edit::Enforce(request.enforcement);
    Ok(Json(edit_sandbox(&app, &id, edit).await?))
}

/// What a session's sandbox asked for.
#[utoipa::path(get, path = "/v1/sessions/{id}/network/learn", tag = "network", params(("id" = String, Path)),
    responses((status = 200, body = LearnView),
    (status = 409, description = "It has no sandbox now", body = handler_types::Problem)))]
pub async fn learn_session(State(app): S, Path(id): Path<String>) -> ApiResult<Json<LearnView>> {
    Ok(Json(sessions::learned(&app, &id).await?))
}

/// Puts entries on a session's list, live and for later starts.
#[utoipa::path(post, path = "/v1/sessions/{id}/network/allow", tag = "network", params(("id" = String, Path)),
    request_body = EntriesRequest, responses((status = 200, body = SessionView),
    (status = 409, description = "Its network has no list", body = handler_types::Problem)))]
pub async fn allow_session(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EntriesRequest>,
) -> ApiResult<Json<SessionView>> {
    let edit = Edit::Allow(request.entries);
    Ok(Json(edit_session(&app, &id, edit).await?))
}

/// Takes entries off a session's list, live and for later starts.
#[utoipa::path(post, path = "/v1/sessions/{id}/network/block", tag = "network", params(("id" = String, Path)),
    request_body = EntriesRequest, responses((status = 200, body = SessionView),
    (status = 409, description = "It is not on the list", body = handler_types::Problem)))]
pub async fn block_session(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EntriesRequest>,
) -> ApiResult<Json<SessionView>> {
    let edit = Edit::Block(request.entries);
    Ok(Json(edit_session(&app, &id, edit).await?))
}

/// Says whether a session's unlisted destinations are refused or only told, live and for later starts.
#[utoipa::path(put, path = "/v1/sessions/{id}/network/enforcement", tag = "network", params(("id" = String, Path)),
    request_body = EnforcementRequest, responses((status = 200, body = SessionView),
    (status = 409, description = "Its network has no list", body = handler_types::Problem)))]
pub async fn enforcement_session(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EnforcementRequest>,
) -> ApiResult<Json<SessionView>> {
    let edit = Edit::Enforce(request.enforcement);
    Ok(Json(edit_session(&app, &id, edit).await?))
}
