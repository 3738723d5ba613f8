//! Rules of sessions: which agent, in which folder, with which model; started once at a time, stopped with
//! its sandbox, found again after a restart of the daemon.

mod change;
mod choose;
mod doc;
pub mod files;
mod first_prompt;
mod start;
mod take_up;
mod texts;
mod watch;

pub use change::alter;
pub(crate) use choose::choose;
pub(crate) use start::AGENT_LABEL;
pub use start::ensure_running;
pub(crate) use start::place;
pub use take_up::{leave, take_up};
pub(crate) use texts::export;
pub use texts::{Format, SearchQuery, UsageQuery, search, usage};

use crate::app::network::{self, Edit};
use crate::app::sandboxes::{engine_error, work_folder};
use crate::app::{agents, audit, knowledge, learn};
use crate::http::problem::{ApiError, ApiResult};
use crate::http::sessions::SessionQuery;
use crate::state::App;
use doc::SessionDoc;
use handler_session::SessionHandle;
use handler_store::StoreError;
use handler_store::rows::{Lookup, PageRequest, SessionFilter, SessionPatch, SessionRow};
use handler_types::api::Page;
use handler_types::event::ServerEvent;
use handler_types::learn::LearnView;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::SandboxView;
use handler_types::session::{CreateSession, SessionState, SessionView, StopHow};
use handler_types::{AgentId, ProblemCode, SessionId};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Longest first prompt, characters (contract F.3).
const MAX_PROMPT: usize = 200_000;

/// Sessions with an agent, and one lock per session for what starts and ends it.
#[derive(Debug, Default)]
pub struct Sessions {
    live: Mutex<HashMap<SessionId, SessionHandle>>,
    turns: Mutex<HashMap<SessionId, Arc<Mutex<()>>>>,
}

impl Sessions {
    /// The handle of a session with an agent.
    pub async fn get(&self, id: &SessionId) -> Option<SessionHandle> {
        self.live.lock().await.get(id).cloned()
    }

    async fn put(&self, id: SessionId, handle: SessionHandle) {
        self.live.lock().await.insert(id, handle);
    }

    async fn take(&self, id: &SessionId) -> Option<SessionHandle> {
        self.live.lock().await.remove(id)
    }

    /// The lock under which a session is started and ended.
    async fn turn(&self, id: &SessionId) -> Arc<Mutex<()>> {
        self.turns
            .lock()
            .await
            .entry(id.clone())
            .or_default()
            .clone()
    }
}

pub(crate) fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::BadCursor => ApiError::new(ProblemCode::Invalid, error.to_string()),
        StoreError::NoSpace => ApiError::new(ProblemCode::NoSpace, error.to_string()),
        other => ApiError::internal("the database", &other),
    }
}

/// Folder of a session.
fn folder(app: &App, id: &SessionId) -> PathBuf {
    app.settings.layout.session_dir(id)
}

/// A session as it is now: the row, and over it what its agent's owner says.
async fn view(app: &App, row: &SessionRow) -> ApiResult<SessionView> {
    let facts = app
        .sessions
        .get(&row.id)
        .await
        .map(|handle| handle.state().borrow().clone());
    doc::view(row, facts.as_ref())
}

/// Makes a session and starts it in the background.
///
/// # Errors
/// A folder that is not allowed, an unknown harness, a missing account or provider, a mode the harness cannot honour.
pub async fn create(app: &Arc<App>, request: CreateSession) -> ApiResult<SessionView> {
    let (mut request, agent) = agents::for_session(app, request).await?;
    request.knowledge = knowledge::kept(app, &request.knowledge).await?;
    let scope = work_folder(app, &request.scope)?;
    if request
        .prompt
        .as_ref()
        .is_some_and(|p| p.chars().count() > MAX_PROMPT)
    {
        return Err(ApiError::new(
            ProblemCode::TooLarge,
            "prompt: at most 200 000 characters",
        ));
    }
    let choice = choose::choose(app, &request).await?;
    let now = handler_base::clock::now_ms();
    let mut document = SessionDoc::new(&request, &choice, agent.as_ref());
    let mut row = SessionRow {
        id: SessionId::from_random(handler_base::random::bytes()),
        scope,
        harness: choice.descriptor.name.clone(),
        provider: choice.provider_name,
        state: SessionState::Starting,
        document: document.to_json(),
        created_ms: now,
        updated_ms: now,
        agent: agent.as_ref().map(|agent| agent.agent.clone()),
    };
    // Tried before anything is kept: a key without a value, a full disk.
    let redactor = start::check(app, &row, &document, request.prompt.as_deref()).await?;
    document.redact(&redactor);
    row.document = document.to_json();
    app.store
        .sessions()
        .insert(row.clone())
        .await
        .map_err(store_error)?;
    let view = view(app, &row).await?;
    app.events.publish(ServerEvent::Session {
        session: Box::new(view.clone()),
    });
    if let Some(agent) = &agent {
        agents::touch(app, agent).await;
    }
    start::in_background(app.clone(), row.id);
    Ok(view)
}

async fn find_row(app: &App, text: &str) -> ApiResult<SessionRow> {
    match app.store.sessions().find(text).await.map_err(store_error)? {
        Lookup::Found(row) => Ok(row),
        Lookup::None => {
            let shown: String = text.chars().take(80).collect();
            Err(ApiError::new(
                ProblemCode::NotFound,
                format!("there is no session `{shown}`"),
            ))
        }
        Lookup::Ambiguous(ids) => Err(ApiError::new(
            ProblemCode::Ambiguous,
            format!("several sessions begin like that: {}", ids.join(", ")),
        )),
    }
}

/// One session.
///
/// # Errors
/// 404, 409 when several fit.
pub async fn find(app: &App, text: &str) -> ApiResult<SessionView> {
    view(app, &find_row(app, text).await?).await
}

fn agent_id(text: &str) -> ApiResult<Option<AgentId>> {
    if text.is_empty() {
        return Ok(None);
    }
    let id = text.parse();
    id.map(Some).map_err(|e: handler_types::id::IdParseError| {
        ApiError::new(ProblemCode::Invalid, e.to_string())
    })
}

/// A page of sessions.
///
/// # Errors
/// A bad cursor.
pub async fn list(app: &App, query: SessionQuery) -> ApiResult<Page<SessionView>> {
    let scope = (!query.scope.is_empty()).then(|| {
        // A folder is listed under its canonical name, however it was typed.
        let path = std::path::Path::new(&query.scope);
        path.canonicalize()
            .map_or(query.scope.clone(), |p| p.to_string_lossy().into_owned())
    });
    let filter = SessionFilter {
        scope,
        state: query.state,
        agent: agent_id(&query.agent_id)?,
        archived: (!query.archived.unwrap_or(false)).then_some(false),
    };
    let cursor = (!query.cursor.is_empty()).then_some(query.cursor);
    let page = app
        .store
        .sessions()
        .list(
            filter,
            PageRequest {
                cursor,
                limit: query.limit,
            },
        )
        .await
        .map_err(store_error)?;
    let mut items = Vec::with_capacity(page.items.len());
    for row in &page.items {
        items.push(view(app, row).await?);
    }
    Ok(Page {
        items,
        next_cursor: page.next_cursor,
    })
}

/// Stops a session; its history stays.
///
/// # Errors
/// 404.
pub async fn stop(app: &Arc<App>, text: &str) -> ApiResult<SessionView> {
    let row = find_row(app, text).await?;
    end(app, &row.id, StopHow::Explicit, "stopped by a client").await?;
    find(app, row.id.as_str()).await
}

/// Ends a session's agent and sandbox, whatever state it is in.
pub(crate) async fn end(app: &Arc<App>, id: &SessionId, how: StopHow, why: &str) -> ApiResult<()> {
    let turn = app.sessions.turn(id).await;
    let _turn = turn.lock().await;
    if let Some(handle) = app.sessions.take(id).await {
        handle.stop(how, why).await.ok();
        let last = handle.state().borrow().clone();
        watch::record(app, id, &last).await;
        texts::catch_up(app, id).await;
    }
    remove_sandboxes(app, id).await?;
    let Some(row) = app.store.sessions().get(id).await.map_err(store_error)? else {
        return Ok(());
    };
    if matches!(row.state, SessionState::Starting | SessionState::Running) {
        let patch = SessionPatch {
            state: Some(SessionState::Stopped),
            ..Default::default()
        };
        change(app, id, patch).await?;
    }
    Ok(())
}

/// Changes a session's row, and tells everyone.
async fn change(app: &App, id: &SessionId, patch: SessionPatch) -> ApiResult<SessionView> {
    let row = app
        .store
        .sessions()
        .update(id, patch)
        .await
        .map_err(store_error)?;
    let session = view(app, &row).await?;
    app.events.publish(ServerEvent::Session {
        session: Box::new(session.clone()),
    });
    Ok(session)
}

/// Removes what sandboxes a session has.
async fn remove_sandboxes(app: &App, id: &SessionId) -> ApiResult<()> {
    for sandbox in start::sandboxes_of(app, id) {
        app.engine.delete(&sandbox).await.map_err(engine_error)?;
    }
    Ok(())
}

/// Cancels the turn under way.
///
/// # Errors
/// 404; 409 when it does not run.
pub async fn cancel(app: &App, text: &str) -> ApiResult<SessionView> {
    let row = find_row(app, text).await?;
    let handle = app.sessions.get(&row.id).await.ok_or_else(|| {
        ApiError::new(
            ProblemCode::Conflict,
            "the session does not run: there is nothing to cancel",
        )
    })?;
    handle
        .cancel()
        .await
        .map_err(|e| ApiError::new(ProblemCode::Conflict, e.to_string()))?;
    view(app, &row).await
}

/// Removes a session with its folder.
///
/// # Errors
/// 404, a folder that cannot be removed.
pub async fn delete(app: &Arc<App>, text: &str) -> ApiResult<()> {
    let row = find_row(app, text).await?;
    end(app, &row.id, StopHow::Deleted, "removed by a client").await?;
    let folder = folder(app, &row.id);
    // The agent wrote below `agent/`; the engine's remover follows no link and opens closed folders.
    let removed = tokio::task::spawn_blocking(move || handler_engine::remove_folder(&folder)).await;
    match removed {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            return Err(ApiError::new(
                ProblemCode::BackendFailed,
                format!("the session's folder cannot be removed: {error}"),
            ));
        }
        Err(_) => {
            return Err(ApiError::new(
                ProblemCode::Internal,
                "the removal ended early",
            ));
        }
    }
    app.store
        .sessions()
        .delete(&row.id)
        .await
        .map_err(store_error)?;
    app.events.publish(ServerEvent::SessionRemoved {
        id: row.id.to_string(),
    });
    Ok(())
}

/// What a session's agent may reach besides its model, as it is kept.
pub(super) fn network_of_row(row: &SessionRow) -> ApiResult<NetworkPolicy> {
    Ok(SessionDoc::read(row)?.network)
}

/// The session whose sandbox this is.
pub(super) fn session_of(view: &SandboxView) -> Option<SessionId> {
    view.labels.get(start::SESSION_LABEL)?.parse().ok()
}

/// Changes what the agent may reach besides its model: live, and for later starts.
///
/// # Errors
/// 404; 409 for `none` while it runs, and for what the policy does not allow.
pub(super) async fn edit_network(app: &Arc<App>, text: &str, edit: Edit) -> ApiResult<SessionView> {
    let row = find_row(app, text).await?;
    let turn = app.sessions.turn(&row.id).await;
    let _turn = turn.lock().await;
    // Read again: who came before may have changed it.
    let row = find_row(app, row.id.as_str()).await?;
    let mut document = SessionDoc::read(&row)?;
    let before = document.network.clone();
    document.network = edit.apply(&before)?;
    let mut is_told = false;
    for sandbox in start::sandboxes_of(app, &row.id) {
        let policy = start::network_of(app, &row, &document)?;
        let view = app.engine.get(&sandbox).map_err(engine_error)?;
        network::set(app, &view, &view.network, policy).await?;
        is_told = true;
    }
    let patch = SessionPatch {
        document: Some(document.to_json()),
        ..Default::default()
    };
    let view = change(app, &row.id, patch).await?;
    if !is_told {
        audit::changed_session(app, &row.id, &before, &document.network).await;
    }
    Ok(view)
}

/// What a session's sandbox asked for.
///
/// # Errors
/// 404; 409 while it has no sandbox.
pub async fn learned(app: &App, text: &str) -> ApiResult<LearnView> {
    let row = find_row(app, text).await?;
    let sandbox = start::sandboxes_of(app, &row.id).pop();
    let view = sandbox.and_then(|id| app.engine.get(&id).ok());
    let view = view.ok_or_else(|| {
        let detail = "the session has no sandbox now, and what one asked for is not kept longer; `handler audit` knows it";
        ApiError::new(ProblemCode::Conflict, detail)
    })?;
    Ok(learn::learned(app, view))
}
