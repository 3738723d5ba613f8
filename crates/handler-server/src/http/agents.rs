//! `/v1/agents`: what sessions open on.

use super::document::Document;
use super::problem::ApiResult;
use super::viewer::MAX_READ;
use crate::app::agents as rules;
use crate::app::launches::{self, Wanted};
use crate::app::network::Edit;
use crate::state::App;
use axum::Json;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use handler_types::agent::{AgentPatch, AgentRequest, AgentView};
use handler_types::agent_terminal::{TerminalStart, TerminalStarted};
use handler_types::egress::AgentEgressEvent;
use handler_types::learn::{EnforcementRequest, EntriesRequest};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Which agents.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct AgentQuery {
    /// Only those of this project: its id or name.
    #[serde(default)]
    pub project: String,
}

/// Agents, in projects and outside, in the order they were made.
#[utoipa::path(get, path = "/v1/agents", tag = "agents", params(AgentQuery),
    responses((status = 200, body = Vec<AgentView>)))]
pub async fn list(
    State(app): S,
    Query(query): Query<AgentQuery>,
) -> ApiResult<Json<Vec<AgentView>>> {
    Ok(Json(rules::list(&app, &query.project).await?))
}

/// Makes an agent.
#[utoipa::path(post, path = "/v1/agents", tag = "agents", request_body = AgentRequest,
    responses((status = 201, body = AgentView),
    (status = 400, description = "`reasons` has everything that is wrong", body = handler_types::Problem),
    (status = 409, description = "what `reasons` says is not confirmed, or the name is taken", body = handler_types::Problem)))]
pub async fn create(
    State(app): S,
    Document(request): Document<AgentRequest>,
) -> ApiResult<(StatusCode, Json<AgentView>)> {
    let made = rules::create(&app, request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// One agent: by id, the beginning of one, its name, or `PROJECT/NAME`.
#[utoipa::path(get, path = "/v1/agents/{id}", tag = "agents", params(("id" = String, Path)),
    responses((status = 200, body = AgentView)))]
pub async fn get(State(app): S, Path(id): Path<String>) -> ApiResult<Json<AgentView>> {
    Ok(Json(rules::find(&app, &id).await?))
}

/// Sets an agent up anew, whole. What it may reach is in force in its running sessions at once.
#[utoipa::path(put, path = "/v1/agents/{id}", tag = "agents", params(("id" = String, Path)),
    request_body = AgentRequest, responses((status = 200, body = AgentView),
    (status = 409, description = "what `reasons` says is not confirmed, or it is another home", body = handler_types::Problem),
    (status = 502, description = "Saved; a running session did not take it over", body = handler_types::Problem)))]
pub async fn put(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<AgentRequest>,
) -> ApiResult<Json<AgentView>> {
    Ok(Json(rules::update(&app, &id, request).await?))
}

/// Says whether what is not on an agent's list is refused or only told: in its running sessions at once.
#[utoipa::path(patch, path = "/v1/agents/{id}", tag = "agents", params(("id" = String, Path)),
    request_body = AgentPatch, responses((status = 200, body = AgentView),
    (status = 409, description = "Its network has no list", body = handler_types::Problem),
    (status = 502, description = "Saved; a running session did not take it over", body = handler_types::Problem)))]
pub async fn patch(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<AgentPatch>,
) -> ApiResult<Json<AgentView>> {
    Ok(Json(rules::switch(&app, &id, request.egress).await?))
}

/// The filter's last decisions about what an agent's sandboxes asked for (at most 500; in memory).
#[utoipa::path(get, path = "/v1/agents/{id}/egress-events", tag = "network", params(("id" = String, Path)),
    responses((status = 200, body = Vec<AgentEgressEvent>)))]
pub async fn egress_events(
    State(app): S,
    Path(id): Path<String>,
) -> ApiResult<Json<Vec<AgentEgressEvent>>> {
    Ok(Json(rules::egress_events(&app, &id).await?))
}

/// Removes an agent: its running sessions are stopped; their folders and histories stay.
#[utoipa::path(delete, path = "/v1/agents/{id}", tag = "agents", params(("id" = String, Path)),
    responses((status = 204)))]
pub async fn remove(State(app): S, Path(id): Path<String>) -> ApiResult<StatusCode> {
    rules::remove(&app, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Puts entries on an agent's list: in its running sessions at once, and for later ones.
#[utoipa::path(post, path = "/v1/agents/{id}/network/allow", tag = "network", params(("id" = String, Path)),
    request_body = EntriesRequest, responses((status = 200, body = AgentView),
    (status = 409, description = "Its network has no list", body = handler_types::Problem)))]
pub async fn allow(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EntriesRequest>,
) -> ApiResult<Json<AgentView>> {
    let edit = Edit::Allow(request.entries);
    Ok(Json(rules::edit_network(&app, &id, edit).await?))
}

/// Takes entries off an agent's list, likewise.
#[utoipa::path(post, path = "/v1/agents/{id}/network/block", tag = "network", params(("id" = String, Path)),
    request_body = EntriesRequest, responses((status = 200, body = AgentView),
    (status = 409, description = "It is not on the list", body = handler_types::Problem)))]
pub async fn block(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EntriesRequest>,
) -> ApiResult<Json<AgentView>> {
    let edit = Edit::Block(request.entries);
    Ok(Json(rules::edit_network(&app, &id, edit).await?))
}

/// Says whether what is not on an agent's list is refused or only told, likewise. The call is the confirmation.
#[utoipa::path(put, path = "/v1/agents/{id}/network/enforcement", tag = "network", params(("id" = String, Path)),
    request_body = EnforcementRequest, responses((status = 200, body = AgentView),
    (status = 409, description = "Its network has no list", body = handler_types::Problem)))]
pub async fn enforcement(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<EnforcementRequest>,
) -> ApiResult<Json<AgentView>> {
    let edit = Edit::Enforce(request.enforcement);
    Ok(Json(rules::edit_network(&app, &id, edit).await?))
}

/// Which model a connection runs with, and where.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AcpQuery {
    /// Harness.
    pub harness: Option<String>,
    /// Account, instead of a provider: one of the agent's, or any other that its project's context allows.
    pub account: Option<String>,
    /// Provider: one of the agent's, or any other that its project's context allows.
    pub provider: Option<String>,
    /// One of the provider's models.
    pub model: Option<String>,
    /// The folder, for an agent without one of its own; must else lie in it.
    #[serde(default)]
    pub folder: String,
}

/// A plain ACP connection (subprotocol `acp.v1`): one sandbox and one agent process, gone when the socket closes; 1011
/// when the agent ends first. For conversations that outlive it, make a session.
#[utoipa::path(get, path = "/v1/agents/{id}/acp", tag = "agents", params(("id" = String, Path), AcpQuery),
    responses((status = 101),
    (status = 400, description = "`model access unusable`", body = handler_types::Problem),
    (status = 404, description = "`agent not found`", body = handler_types::Problem)))]
pub async fn acp(
    State(app): S,
    Path(id): Path<String>,
    Query(query): Query<AcpQuery>,
    upgrade: WebSocketUpgrade,
) -> ApiResult<Response> {
    let wanted = Wanted {
        harness: query.harness,
        account: query.account,
        provider: query.provider,
        model: query.model,
        folder: query.folder,
    };
    // Whatever can be told before anything is made is told before the upgrade.
    let launch = launches::prepared(&app, &id, &wanted, None).await?;
    Ok(upgrade
        .protocols(["acp.v1"])
        .max_message_size(MAX_READ)
        .max_frame_size(MAX_READ)
        .on_upgrade(move |socket| launches::connection::run(socket, app, launch)))
}

/// Starts the harness's own terminal program in a sandbox; it closes with its program, or when nobody is attached any
/// more.
#[utoipa::path(post, path = "/v1/agents/{id}/terminal", tag = "agents", params(("id" = String, Path)),
    request_body = TerminalStart, responses((status = 201, body = TerminalStarted),
    (status = 400, description = "`model access unusable`", body = handler_types::Problem),
    (status = 404, description = "`agent not found`", body = handler_types::Problem),
    (status = 409, description = "`the terminal cannot start`", body = handler_types::Problem)))]
pub async fn terminal(
    State(app): S,
    Path(id): Path<String>,
    Document(request): Document<TerminalStart>,
) -> ApiResult<(StatusCode, Json<TerminalStarted>)> {
    let started = launches::terminal::start(&app, &id, request).await?;
    Ok((StatusCode::CREATED, Json(started)))
}
