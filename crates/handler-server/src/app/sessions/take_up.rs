//! After a restart of the daemon: sessions whose agent still runs go on where they were; the others are
//! marked stopped; sandboxes that belong to nobody go.

use super::doc::SessionDoc;
use super::start::{self, SESSION_LABEL, config};
use super::{first_prompt, folder, store_error, texts, watch};
use crate::app::agent::GuestAgent;
use crate::app::agent::ModelUse;
use crate::app::launches;
use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_session::{Buried, SessionCore, SessionHandle, StartKind};
use handler_store::Redactor;
use handler_store::rows::{SessionPatch, SessionRow};
use handler_types::ProblemCode;
use handler_types::SecretValue;
use handler_types::harness::SessionDefaults;
use handler_types::sandbox::Lifetime;
use handler_types::session::{SessionState, StopHow};
use std::collections::HashSet;
use std::sync::Arc;

/// Lets go of all sessions without ending them: their agents go on and are found by the next daemon.
pub async fn leave(app: &App) {
    let live: Vec<SessionHandle> = app
        .sessions
        .live
        .lock()
        .await
        .drain()
        .map(|(_, h)| h)
        .collect();
    for handle in live {
        handle.release().await;
    }
}

/// Takes up what an earlier daemon left.
pub async fn take_up(app: &Arc<App>) {
    let rows = match app.store.sessions().all().await {
        Ok(rows) => rows,
        Err(error) => {
            tracing::error!(%error, "sessions cannot be read");
            return;
        }
    };
    let ids = rows.iter().map(|row| row.id.clone()).collect();
    texts::catch_up_all(app, ids);
    let mut known = HashSet::new();
    for row in rows {
        known.insert(row.id.to_string());
        if !matches!(row.state, SessionState::Starting | SessionState::Running) {
            continue;
        }
        match adopt(app, &row).await {
            Ok(true) => tracing::info!(session = %row.id, "a session goes on"),
            Ok(false) => put_away(app, &row).await,
            Err(error) => {
                tracing::warn!(session = %row.id, error = %error.0.detail, "a session is lost");
                put_away(app, &row).await;
            }
        }
    }
    remove_ownerless(app, &known).await;
}

/// Goes on with a session whose agent runs; false when it does not.
async fn adopt(app: &Arc<App>, row: &SessionRow) -> ApiResult<bool> {
    let mut doc = SessionDoc::read(row)?;
    let Some(sandbox) = doc.sandbox.clone() else {
        return Ok(false);
    };
    let Ok(guest) = app.engine.guest(&sandbox) else {
        return Ok(false);
    };
    let Some(io) = GuestAgent::find(guest).await? else {
        return Ok(false);
    };
    if doc.acp_session_id.is_none() {
        // It was still being started: it is started anew, with its prompt.
        return Ok(false);
    }
    // Modes and options are set already: an adopted agent is only gone on with.
    let config = config(
        app,
        row,
        &doc,
        SessionDefaults::default(),
        redact(app, row).await,
    );
    let handle = SessionCore::start(config, Box::new(io), StartKind::Adopt)
        .await
        .map_err(|e| ApiError::new(ProblemCode::BackendFailed, chain(&e)))?;
    handle
        .ready()
        .await
        .map_err(|e| ApiError::new(ProblemCode::BackendFailed, chain(&e)))?;
    if let Err(why) = first_prompt::give(&handle, &folder(app, &row.id)).await {
        doc.error = Some(why);
        let patch = SessionPatch {
            document: Some(doc.to_json()),
            ..Default::default()
        };
        app.store
            .sessions()
            .update(&row.id, patch)
            .await
            .map_err(store_error)?;
    }
    app.sessions.put(row.id.clone(), handle.clone()).await;
    watch::follow(app.clone(), row.id.clone(), handle);
    Ok(true)
}

/// Values to keep out of the log. A key that cannot be had any more cannot leak either.
async fn redact(app: &App, row: &SessionRow) -> Vec<SecretValue> {
    let Ok(doc) = SessionDoc::read(row) else {
        return Vec::new();
    };
    let Ok(used) = ModelUse::of(app, doc.through(row), &doc.model) else {
        return Vec::new();
    };
    match handler_harness::descriptor(&row.harness) {
        Some(descriptor) => used.values(app, descriptor).await,
        None => Vec::new(),
    }
}

/// Marks a session whose agent is gone; one that was never ready is started anew.
async fn put_away(app: &Arc<App>, row: &SessionRow) {
    let was_ready = SessionDoc::read(row).is_ok_and(|doc| doc.acp_session_id.is_some());
    if !was_ready {
        start::in_background(app.clone(), row.id.clone());
        return;
    }
    let redactor = Redactor::new(redact(app, row).await);
    let folder = folder(app, &row.id);
    let why = "its sandbox ended while the daemon was away";
    let mut patch = SessionPatch {
        state: Some(SessionState::Stopped),
        ..Default::default()
    };
    match SessionCore::bury(&folder, redactor, StopHow::Error, why).await {
        Ok(buried) => patch.document = told_by_the_log(row, &buried, why),
        Err(error) => {
            tracing::error!(session = %row.id, error = %chain(&error), "its log could not be closed");
        }
    }
    if let Err(error) = app.store.sessions().update(&row.id, patch).await {
        tracing::error!(session = %row.id, %error, "it could not be marked stopped");
    }
}

/// The row's document with what happened after it was written last.
fn told_by_the_log(row: &SessionRow, buried: &Buried, why: &str) -> Option<serde_json::Value> {
    let mut doc = SessionDoc::read(row).ok()?;
    doc.last_seq = buried.last_seq;
    doc.had_turn |= buried.had_turn;
    doc.last_stop_reason.clone_from(&buried.last_stop_reason);
    doc.error = Some(why.to_owned());
    Some(doc.to_json())
}

/// Removes sandboxes that live only as long as something that is gone: installations, dead sessions.
async fn remove_ownerless(app: &App, sessions: &HashSet<String>) {
    for view in app.engine.list() {
        // A terminal goes on without a daemon; `launches` looks after it.
        if view.lifetime != Lifetime::Session || launches::is_terminal(&view) {
            continue;
        }
        let session = view
            .labels
            .get(SESSION_LABEL)
            .filter(|id| sessions.contains(*id));
        let is_live = match session.and_then(|id| id.parse().ok()) {
            Some(id) => app.sessions.get(&id).await.is_some(),
            None => false,
        };
        if !is_live && let Err(error) = app.engine.delete(&view.id).await {
            tracing::warn!(sandbox = %view.id, %error, "an ownerless sandbox could not be removed");
        }
    }
}
