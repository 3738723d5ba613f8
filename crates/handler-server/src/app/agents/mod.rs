//! Rules of agents: what sessions open on, in projects and outside (contract D.1, D.8, E).
//!
//! Invariants: a save that gives an agent more than it had is confirmed or refused; what an agent may reach is in
//! force in its running sessions when the call that changed it returns; an agent that goes takes its running
//! sessions' sandboxes along, and leaves their folders.

pub(crate) mod check;
mod follow;
mod risks;
mod session;
mod view;

pub(crate) use follow::merged;
pub use session::{Extras, Use, extras, for_session, touch};
pub use view::views;

use crate::app::launches;
use crate::app::network::Edit;
use crate::app::sessions::{self, store_error};
use crate::app::{audit, contexts};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use check::Problems;
use handler_base::clock::now_ms;
use handler_store::StoreError;
use handler_store::rows::{AgentRow, ProjectRow};
use handler_types::agent::{AgentRequest, AgentSettings, AgentView};
use handler_types::egress::AgentEgressEvent;
use handler_types::event::ServerEvent;
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::session::StopHow;
use handler_types::{AgentId, ProblemCode, ProjectId};
use std::collections::HashSet;
use std::sync::Arc;

/// What the store refuses, in the words of contract D.
pub(super) fn row_error(error: StoreError) -> ApiError {
    let text = error.to_string();
    match error {
        StoreError::NameTaken { name } => ApiError::titled(
            ProblemCode::Conflict,
            "agent names must differ",
            format!("the project has an agent `{name}` already, whatever the case"),
        ),
        StoreError::FolderTaken { .. } => {
            ApiError::titled(ProblemCode::Conflict, "folder already used", text)
        }
        StoreError::NotFound { .. } => ApiError::new(ProblemCode::NotFound, text),
        other => store_error(other),
    }
}

/// Every agent, in the order they were made; only those of a project, if one is named.
///
/// # Errors
/// 404 for the project.
pub async fn list(app: &App, project: &str) -> ApiResult<Vec<AgentView>> {
    let mut rows = app.store.agents().all().await.map_err(row_error)?;
    if !project.is_empty() {
        let project = super::projects::find_row(app, project).await?;
        rows.retain(|row| row.project.as_ref() == Some(&project.id));
    }
    views(app, &rows).await
}

/// One agent: by id, the beginning of one, its name, or `PROJECT/NAME`.
///
/// # Errors
/// 404, 409 when several fit.
pub async fn find(app: &App, text: &str) -> ApiResult<AgentView> {
    let row = find_row(app, text).await?;
    view::one(app, row).await
}

pub(in crate::app) async fn find_row(app: &App, text: &str) -> ApiResult<AgentRow> {
    let rows = app.store.agents().all().await.map_err(row_error)?;
    let projects = app.store.projects().all().await.map_err(row_error)?;
    pick(&rows, &projects, text)
}

/// The agent that a text means. Pure.
fn pick(rows: &[AgentRow], projects: &[ProjectRow], text: &str) -> ApiResult<AgentRow> {
    let called = |row: &AgentRow, name: &str| {
        let own = row.settings.name.as_deref().unwrap_or_default();
        own.to_lowercase() == name.to_lowercase()
    };
    let found: Vec<&AgentRow> = if let Some((project, name)) = text.split_once('/') {
        let project = super::projects::pick(projects, project)?;
        rows.iter()
            .filter(|row| row.project.as_ref() == Some(&project.id) && called(row, name))
            .collect()
    } else {
        let is_prefix = text.len() > AgentId::PREFIX.len() && text.starts_with(AgentId::PREFIX);
        rows.iter()
            .filter(|row| (is_prefix && row.id.as_str().starts_with(text)) || called(row, text))
            .collect()
    };
    let shown: String = text.chars().take(80).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(ApiError::titled(
            ProblemCode::NotFound,
            "agent not found",
            format!("there is no agent `{shown}`; `handler agent list` shows them"),
        )),
        several => {
            let ids: Vec<&str> = several.iter().map(|row| row.id.as_str()).collect();
            let detail = format!(
                "several agents are called `{shown}`: say PROJECT/NAME or an id: {}",
                ids.join(", ")
            );
            Err(ApiError::new(ProblemCode::Ambiguous, detail))
        }
    }
}

/// Makes one.
///
/// # Errors
/// Everything that is wrong with it; risks that are not confirmed; a name that is taken.
pub async fn create(app: &App, request: AgentRequest) -> ApiResult<AgentView> {
    let _turn = app.agents_turn.lock().await;
    let is_default = request.default;
    let row = checked(app, request, None, "").await?;
    let agents = app.store.agents();
    let added = agents.insert(row.clone(), is_default && row.project.is_some());
    added.await.map_err(|error| match error {
        StoreError::NotFound { id } => unknown_project(&id),
        other => row_error(other),
    })?;
    tell(app, &row.id).await
}

fn unknown_project(id: &str) -> ApiError {
    let detail = format!("there is no project `{id}`; `handler project list` shows them");
    ApiError::titled(ProblemCode::Invalid, "unknown project", detail)
}

/// A new agent's row, checked; `own` is the project it is made with and its context, `what` stands before each problem.
pub(super) async fn checked(
    app: &App,
    request: AgentRequest,
    own: Option<(&ProjectId, Option<&str>)>,
    what: &str,
) -> ApiResult<AgentRow> {
    let project = own.map(|(id, _)| id.clone()).or(request.project_id.clone());
    let mut context = own.and_then(|(_, context)| context.map(str::to_owned));
    if let (Some(id), None) = (&project, own) {
        let found = app.store.projects().get(id).await.map_err(row_error)?;
        let found = found.ok_or_else(|| unknown_project(id.as_str()))?;
        context = found.settings.context;
    }
    let home = check::Home {
        is_project: project.is_some(),
        context: context.as_deref(),
    };
    let is_confirmed = request.confirm_risks;
    let mut problems = Problems::default();
    let settings = check::settings(app, request.into(), home, &mut problems).await;
    problems.none().map_err(|error| prefixed(error, what))?;
    confirmed(&risks::guarded(), &settings, is_confirmed).map_err(|e| prefixed(e, what))?;
    let now = now_ms();
    Ok(AgentRow {
        id: AgentId::from_random(handler_base::random::bytes()),
        project,
        settings,
        created_ms: now,
        updated_ms: now,
        used_ms: None,
    })
}

fn prefixed(mut error: ApiError, what: &str) -> ApiError {
    if !what.is_empty() {
        error.0.detail = format!("{what}: {}", error.0.detail);
        for text in &mut error.0.reasons {
            *text = format!("{what}: {text}");
        }
    }
    error
}

/// Whether what is wider was confirmed.
fn confirmed(before: &AgentSettings, after: &AgentSettings, is_confirmed: bool) -> ApiResult<()> {
    let risks = risks::widened(before, after);
    if is_confirmed || risks.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "this gives the agent more than it had: {}; save again with confirmRisks",
        risks.join("; ")
    );
    let mut error = ApiError::new(ProblemCode::RisksNotConfirmed, detail);
    error.0.reasons = risks;
    Err(error)
}

/// Sets one up anew, whole. What it may reach is in force in its running sessions; the rest counts for new starts.
///
/// # Errors
/// As [`create`]; 409 for another home; 502 when a running session did not take it over.
pub async fn update(app: &Arc<App>, text: &str, request: AgentRequest) -> ApiResult<AgentView> {
    let _turn = app.agents_turn.lock().await;
    let row = find_row(app, text).await?;
    if request.project_id.is_some() && request.project_id != row.project {
        let detail = "an agent stays in its project, or outside: make another like it (`handler agent copy`)";
        return Err(ApiError::titled(
            ProblemCode::Conflict,
            "home cannot change",
            detail,
        ));
    }
    let (is_default, is_confirmed) = (request.default, request.confirm_risks);
    let mut problems = Problems::default();
    let context = contexts::of_project(app, row.project.as_ref()).await?;
    let home = check::Home {
        is_project: row.project.is_some(),
        context: context.as_deref(),
    };
    let settings = check::settings(app, request.into(), home, &mut problems).await;
    problems.none()?;
    confirmed(&row.settings, &settings, is_confirmed)?;
    save(app, &row, settings, is_default).await
}

/// Changes what it may reach: on its own list, and in its sessions.
///
/// # Errors
/// 404; 409 for what the policy does not allow; 502 when a running session did not take it over.
pub async fn edit_network(app: &Arc<App>, text: &str, edit: Edit) -> ApiResult<AgentView> {
    let _turn = app.agents_turn.lock().await;
    let row = find_row(app, text).await?;
    let mut settings = row.settings.clone();
    settings.network = edit.apply(&row.settings.network)?;
    save(app, &row, settings, false).await
}

/// Says whether what is not on its list is refused or only told.
///
/// # Errors
/// As [`edit_network`], under the titles of the contract.
pub async fn switch(app: &Arc<App>, text: &str, enforcement: Enforcement) -> ApiResult<AgentView> {
    let row = find_row(app, text).await?;
    if !matches!(row.settings.network, NetworkPolicy::Filtered { .. }) {
        let detail = "its network is none or open: there is no list";
        let title = "egress can only be switched on filtered agents";
        return Err(ApiError::titled(ProblemCode::Conflict, title, detail));
    }
    let edit = Edit::Enforce(enforcement);
    edit_network(app, row.id.as_str(), edit)
        .await
        .map_err(|mut error| {
            if error.0.code == ProblemCode::BackendFailed {
                "egress not switched on every connection".clone_into(&mut error.0.title);
            }
            error
        })
}

/// The last decisions about what its sandboxes asked for.
///
/// # Errors
/// 404.
pub async fn egress_events(app: &App, text: &str) -> ApiResult<Vec<AgentEgressEvent>> {
    let row = find_row(app, text).await?;
    Ok(app.egress_events.of_agent(row.id.as_str()))
}

/// Writes settings, then puts a changed policy into force.
async fn save(
    app: &Arc<App>,
    row: &AgentRow,
    settings: AgentSettings,
    is_default: bool,
) -> ApiResult<AgentView> {
    let (before, after) = (row.settings.network.clone(), settings.network.clone());
    let agents = app.store.agents();
    let saved = agents.update(&row.id, settings, is_default).await;
    saved.map_err(row_error)?;
    let mut left = Vec::new();
    if before != after {
        audit::changed_agent(app, &row.id, &before, &after).await;
        left = follow::sessions(app, &row.id, &before, &after).await?;
    }
    let view = tell(app, &row.id).await?;
    if left.is_empty() {
        return Ok(view);
    }
    Err(ApiError::titled(
        ProblemCode::BackendFailed,
        "saved, but not applied to every live connection",
        left.join("; "),
    ))
}

/// Tells everyone how it is now.
async fn tell(app: &App, id: &AgentId) -> ApiResult<AgentView> {
    let agent = find(app, id.as_str()).await?;
    app.events.publish(ServerEvent::Agent {
        agent: Box::new(agent.clone()),
    });
    Ok(agent)
}

/// Removes one: its running sessions are stopped, their folders stay.
///
/// # Errors
/// 404; a session that could not be stopped.
pub async fn remove(app: &Arc<App>, text: &str) -> ApiResult<()> {
    let _turn = app.agents_turn.lock().await;
    let row = find_row(app, text).await?;
    // First of all it is gone: no session starts on it any more.
    app.store
        .agents()
        .delete(&row.id)
        .await
        .map_err(row_error)?;
    clear(app, &[row.id]).await
}

/// Ends what is left of agents that are gone.
pub(super) async fn clear(app: &Arc<App>, gone: &[AgentId]) -> ApiResult<()> {
    let mut result = Ok(());
    for id in gone {
        app.events
            .publish(ServerEvent::AgentRemoved { id: id.to_string() });
        for session in follow::of_agent(app, id).await? {
            let ended = sessions::end(app, &session.id, StopHow::Explicit, "its agent was removed");
            if let Err(error) = ended.await {
                result = Err(error);
            }
        }
        if let Err(error) = launches::end(app, id).await {
            result = Err(error);
        }
        remove_state(app, id).await;
        app.egress_events.forget_agent(id.as_str());
    }
    result
}

async fn remove_state(app: &App, id: &AgentId) {
    let folder = app.settings.layout.agent_state_dir(id);
    if !folder.exists() {
        return;
    }
    // Agents wrote below it: the engine's remover follows no link and opens closed folders.
    let shown = folder.display().to_string();
    let removed = tokio::task::spawn_blocking(move || handler_engine::remove_folder(&folder)).await;
    if !matches!(removed, Ok(Ok(()))) {
        tracing::warn!(folder = shown, "an agent's state could not be removed");
    }
}

/// At the daemon's start: ends what a removal that broke off left.
pub async fn tidy(app: &Arc<App>) {
    if let Err(error) = tidied(app).await {
        tracing::error!(error = %error.0.detail, "what removed agents left could not be cleared");
    }
}

async fn tidied(app: &Arc<App>) -> ApiResult<()> {
    let rows = app.store.agents().all().await.map_err(row_error)?;
    let known: HashSet<AgentId> = rows.into_iter().map(|row| row.id).collect();
    let mut gone = HashSet::new();
    for session in app.store.sessions().all().await.map_err(store_error)? {
        let is_live = app.sessions.get(&session.id).await.is_some();
        if let Some(agent) = session
            .agent
            .filter(|agent| is_live && !known.contains(agent))
        {
            gone.insert(agent);
        }
    }
    let states = std::fs::read_dir(app.settings.layout.agent_states_dir());
    for entry in states.into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(id) = name.to_str().and_then(|name| name.parse::<AgentId>().ok())
            && !known.contains(&id)
        {
            gone.insert(id);
        }
    }
    clear(app, &gone.into_iter().collect::<Vec<_>>()).await
}
