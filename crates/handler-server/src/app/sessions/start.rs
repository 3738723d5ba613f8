//! Starting a session's agent: at most one at a time, a new sandbox each time, undone when it fails.

use super::doc::SessionDoc;
use super::{change, first_prompt, folder, remove_sandboxes, store_error, watch};
use crate::app::agent::{
    AgentRequest, GuestAgent, HarnessPlace, ModelUse, PreparedAgent, make, owner, prepare,
};
use crate::app::sandboxes::engine_error;
use crate::app::{agents, audit, caches, harnesses};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_session::{SessionConfig, SessionCore, SessionHandle, StartKind};
use handler_store::Redactor;
use handler_store::rows::{SessionPatch, SessionRow};
use handler_types::harness::{HarnessDescriptor, PermissionMode};
use handler_types::network::NetworkPolicy;
use handler_types::session::{SessionState, StopHow};
use handler_types::{ProblemCode, SandboxId, SecretValue, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Label that ties a sandbox to its session.
pub(super) const SESSION_LABEL: &str = "handler.session";

/// Label that ties a sandbox to its session's agent; a connection's has another.
pub(crate) const AGENT_LABEL: &str = "handler.session-agent";

/// Sandboxes of a session.
pub(super) fn sandboxes_of(app: &App, id: &SessionId) -> Vec<SandboxId> {
    let is_its = |labels: &BTreeMap<String, String>| {
        labels
            .get(SESSION_LABEL)
            .is_some_and(|label| label == id.as_str())
    };
    app.engine
        .list()
        .into_iter()
        .filter(|v| is_its(&v.labels))
        .map(|v| v.id)
        .collect()
}

/// What to make for it, and how free its agent is now.
async fn prepared(
    app: &App,
    row: &SessionRow,
    doc: &SessionDoc,
) -> ApiResult<(PreparedAgent, PermissionMode)> {
    let descriptor = harnesses::descriptor(&row.harness)?;
    let state_dir = folder(app, &row.id).join("agent");
    let used = ModelUse::of(app, doc.through(row), &doc.model)?;
    let agent = row.agent.as_ref();
    let extras = agents::extras(app, agent, &doc.network, &doc.knowledge, &used).await?;
    let permissions = extras.permissions().unwrap_or(doc.permissions);
    let of_agent = row.agent.as_ref().map(|agent| {
        let states = app.settings.layout.agent_state_dir(agent);
        states.join(format!("{}@{}", row.harness, used.name()))
    });
    let place = place(app, descriptor, doc.backend.as_deref()).await?;
    let owner = owner(app, place.backend(), &row.scope);
    let caches = caches::for_session(app, row.agent.as_ref(), owner).await?;
    let mut labels = BTreeMap::from([(SESSION_LABEL.to_owned(), row.id.to_string())]);
    if let Some(agent) = &row.agent {
        labels.insert(AGENT_LABEL.to_owned(), agent.to_string());
    }
    let mut prepared = prepare(
        app,
        AgentRequest {
            descriptor,
            place,
            used,
            permissions,
            network: doc.network.clone(),
            scope: &row.scope,
            state_dir: &state_dir,
            shared_state: of_agent.as_deref(),
            labels,
            caches,
            terminal: None,
        },
    )
    .await?;
    extras.put_into(&mut prepared.spec)?;
    Ok((prepared, permissions))
}

/// Where a harness is: its image on the backend as it is now, or the installed prefix.
///
/// # Errors
/// 424 when it is not there, with what to do.
pub(crate) async fn place(
    app: &App,
    descriptor: &HarnessDescriptor,
    backend: Option<&str>,
) -> ApiResult<HarnessPlace> {
    match backend {
        None => Ok(HarnessPlace::Prefix(harnesses::installed(app, descriptor)?)),
        Some(backend) => Ok(HarnessPlace::Image {
            backend: backend.to_owned(),
            image: harnesses::image(app, backend, descriptor).await?,
        }),
    }
}

/// Whether it could start, as far as that can be told without making anything but its folder with the first
/// prompt in it. Gives what takes the session's secrets out of texts.
///
/// # Errors
/// What stands in the way; nothing is then left.
pub(super) async fn check(
    app: &App,
    row: &SessionRow,
    doc: &SessionDoc,
    prompt: Option<&str>,
) -> ApiResult<Redactor> {
    let folder = folder(app, &row.id);
    let prompt = prompt.filter(|prompt| !prompt.trim().is_empty());
    let made = handler_base::fs::create_private_dir(&folder)
        .and_then(|()| prompt.map_or(Ok(()), |prompt| first_prompt::keep(&folder, prompt)))
        .map_err(|e| ApiError::new(ProblemCode::NoSpace, format!("no session folder: {e}")));
    let result = match made {
        Ok(()) => prepared(app, row, doc).await,
        Err(error) => Err(error),
    };
    if result.is_err() {
        std::fs::remove_dir_all(&folder).ok();
    }
    Ok(Redactor::new(result?.0.redact))
}

/// The policy of a session's sandbox: what was said, and its model's hosts.
///
/// # Errors
/// As for a start.
pub(super) fn network_of(
    app: &App,
    row: &SessionRow,
    doc: &SessionDoc,
) -> ApiResult<NetworkPolicy> {
    let used = ModelUse::of(app, doc.through(row), &doc.model)?;
    let descriptor = harnesses::descriptor(&row.harness)?;
    let mut policy = doc.network.clone();
    if let NetworkPolicy::Filtered { allow, .. } = &mut policy {
        for host in used.hosts(descriptor) {
            if !allow.contains(&host) {
                allow.push(host);
            }
        }
    }
    Ok(policy)
}

/// Starts it in a task of its own; what goes wrong is written down.
pub(super) fn in_background(app: Arc<App>, id: SessionId) {
    handler_base::tasks::spawn_named("session start", async move {
        if let Err(error) = ensure_running(&app, &id).await {
            tracing::warn!(session = %id, error = %error.0.detail, "a session did not start");
        }
    });
}

/// The handle of a running session; a stopped one is started first. Starts at the same time are one.
///
/// # Errors
/// Why it cannot run; also written down with the session.
pub async fn ensure_running(app: &Arc<App>, id: &SessionId) -> ApiResult<SessionHandle> {
    let turn = app.sessions.turn(id).await;
    let _turn = turn.lock().await;
    if let Some(handle) = app.sessions.get(id).await {
        return Ok(handle);
    }
    let row = app
        .store
        .sessions()
        .get(id)
        .await
        .map_err(store_error)?
        .ok_or_else(|| {
            ApiError::new(ProblemCode::NotFound, format!("there is no session `{id}`"))
        })?;
    let mut doc = SessionDoc::read(&row)?;
    if row.state == SessionState::Failed {
        let why = doc
            .error
            .unwrap_or_else(|| "it never became usable".to_owned());
        return Err(ApiError::new(
            ProblemCode::Conflict,
            format!("session {id} failed: {why}"),
        ));
    }
    remove_sandboxes(app, id).await?;
    let outcome = begin(app, &row, &mut doc).await;
    match outcome {
        Ok(handle) => {
            app.sessions.put(id.clone(), handle.clone()).await;
            watch::follow(app.clone(), id.clone(), handle.clone());
            Ok(handle)
        }
        Err(error) => {
            remove_sandboxes(app, id).await.ok();
            write_failure(app, &row, doc, &error).await?;
            Err(error)
        }
    }
}

async fn write_failure(
    app: &App,
    row: &SessionRow,
    mut doc: SessionDoc,
    error: &ApiError,
) -> ApiResult<()> {
    doc.error = Some(error.0.detail.clone());
    doc.sandbox = None;
    // One that was usable before stays usable: its history is whole.
    let is_usable = doc.acp_session_id.is_some();
    let state = if is_usable {
        SessionState::Stopped
    } else {
        SessionState::Failed
    };
    let patch = SessionPatch {
        state: Some(state),
        document: Some(doc.to_json()),
        ..Default::default()
    };
    change(app, &row.id, patch).await.map(|_| ())
}

async fn save(app: &App, id: &SessionId, state: SessionState, doc: &SessionDoc) -> ApiResult<()> {
    let patch = SessionPatch {
        state: Some(state),
        document: Some(doc.to_json()),
        ..Default::default()
    };
    change(app, id, patch).await.map(|_| ())
}

async fn begin(app: &Arc<App>, row: &SessionRow, doc: &mut SessionDoc) -> ApiResult<SessionHandle> {
    // Nobody empties its caches before its sandbox is known to have them.
    let using = app.caches_turn.read().await;
    let (agent, permissions) = prepared(app, row, doc).await?;
    doc.permissions = permissions;
    super::files::record_start(app, row, &agent.spec).await;
    save(app, &row.id, SessionState::Starting, doc).await?;
    let sandbox = make(app, agent.spec, row.id.to_string(), agent.login.as_ref()).await?;
    drop(using);
    audit::made(app, &sandbox).await;
    doc.sandbox = Some(sandbox.id.clone());
    doc.error = None;
    save(app, &row.id, SessionState::Starting, doc).await?;
    let guest = app.engine.guest(&sandbox.id).map_err(engine_error)?;
    let io = GuestAgent::start(guest, agent.process).await?;
    let kind = match (&doc.acp_session_id, doc.had_turn) {
        (Some(acp_session_id), had_turn) => StartKind::Load {
            acp_session_id: acp_session_id.clone(),
            had_turn,
        },
        (None, _) => StartKind::New,
    };
    let config = config(app, row, doc, agent.defaults, agent.redact);
    let handle = SessionCore::start(config, Box::new(io), kind)
        .await
        .map_err(|e| ApiError::new(ProblemCode::BackendFailed, crate::http::problem::chain(&e)))?;
    if let Err(error) = handle.ready().await {
        handle
            .stop(StopHow::Error, "it did not become ready")
            .await
            .ok();
        return Err(ApiError::new(
            ProblemCode::BackendFailed,
            crate::http::problem::chain(&error),
        ));
    }
    doc.take(&handle.state().borrow().clone());
    // Known before the prompt is given: from here on an interrupted start is gone on with.
    save(app, &row.id, SessionState::Running, doc).await?;
    if let Err(why) = first_prompt::give(&handle, &folder(app, &row.id)).await {
        doc.error = Some(why);
        save(app, &row.id, SessionState::Running, doc).await?;
    }
    Ok(handle)
}

/// What the session's core is built from.
pub(super) fn config(
    app: &App,
    row: &SessionRow,
    doc: &SessionDoc,
    defaults: handler_types::harness::SessionDefaults,
    redact: Vec<SecretValue>,
) -> SessionConfig {
    let mut config = SessionConfig::new(row.id.as_str(), folder(app, &row.id), &row.scope);
    config.defaults = defaults;
    config.network = doc.network.clone();
    config.instructions.clone_from(&doc.instructions);
    config.turn_timeout = Duration::from_secs(doc.turn_timeout_secs);
    config.redactor = Redactor::new(redact);
    config
}
