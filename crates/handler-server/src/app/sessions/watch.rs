//! Following a live session: its facts into the row and onto the event stream; stopped when it is idle or
//! its agent ended; its sandbox goes with it.

use super::doc::SessionDoc;
use super::{end, texts, view};
use crate::state::App;
use handler_session::{SessionFacts, SessionHandle};
use handler_store::rows::SessionPatch;
use handler_types::SessionId;
use handler_types::event::ServerEvent;
use handler_types::session::{SessionState, StopHow};
use std::sync::Arc;
use std::time::Duration;

/// How often idleness is looked at.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Follows until it stops.
pub(super) fn follow(app: Arc<App>, id: SessionId, handle: SessionHandle) {
    let mut facts = handle.state();
    let mut was_busy = false;
    handler_base::tasks::spawn_named("session watch", async move {
        loop {
            tokio::select! {
                () = app.shutdown.cancelled() => return,
                changed = facts.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(IDLE_CHECK) => {
                    let now = facts.borrow().clone();
                    if is_idle_too_long(&app, &id, &now).await {
                        stop(&app, &id, StopHow::Idle, "nobody used it").await;
                        return;
                    }
                    continue;
                }
            }
            let now = facts.borrow_and_update().clone();
            record(&app, &id, &now).await;
            if was_busy && !now.busy {
                texts::catch_up(&app, &id).await;
            }
            was_busy = now.busy;
            match now.state {
                SessionState::Stopped | SessionState::Failed => break,
                SessionState::Running if now.error.is_some() && !now.busy => {
                    stop(&app, &id, StopHow::Error, "its agent does not answer").await;
                    return;
                }
                _ => {}
            }
        }
        stop(&app, &id, StopHow::Exited, "its agent ended").await;
    });
}

async fn stop(app: &Arc<App>, id: &SessionId, how: StopHow, why: &str) {
    if let Err(error) = end(app, id, how, why).await {
        tracing::warn!(session = %id, error = %error.0.detail, "a session could not be ended");
    }
}

async fn is_idle_too_long(app: &App, id: &SessionId, facts: &SessionFacts) -> bool {
    let Some(since) = facts.idle_since_ms else {
        return false;
    };
    let idle = handler_base::clock::now_ms().saturating_sub(since);
    // The row is read only when the shortest sensible limit has passed.
    if idle < 1000 {
        return false;
    }
    let own = match app.store.sessions().get(id).await {
        Ok(Some(row)) => SessionDoc::read(&row)
            .ok()
            .and_then(|doc| doc.idle_timeout_secs),
        _ => return false,
    };
    let limit = own.map_or(app.settings.idle_timeout, Duration::from_secs);
    u128::try_from(idle).is_ok_and(|idle| idle >= limit.as_millis())
}

/// Writes down what the owner says.
pub(super) async fn record(app: &App, id: &SessionId, facts: &SessionFacts) {
    let result = async {
        let Some(row) = app.store.sessions().get(id).await? else {
            return Ok(());
        };
        let Ok(mut doc) = SessionDoc::read(&row) else {
            return Ok(());
        };
        let before = doc.title.clone();
        let is_changed = doc.take(facts) || row.state != facts.state;
        if doc.title != before && doc.own_title.is_none() {
            texts::set_title(app, id, doc.title.as_deref()).await;
        }
        let row = if is_changed {
            let patch = SessionPatch {
                state: Some(facts.state),
                document: Some(doc.to_json()),
                ..Default::default()
            };
            app.store.sessions().update(id, patch).await?
        } else {
            row
        };
        if let Ok(session) = view(app, &row).await {
            app.events.publish(ServerEvent::Session {
                session: Box::new(session),
            });
        }
        Ok::<(), handler_store::StoreError>(())
    }
    .await;
    if let Err(error) = result {
        tracing::error!(session = %id, %error, "a session's facts could not be written down");
    }
}
