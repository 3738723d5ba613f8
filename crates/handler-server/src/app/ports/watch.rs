//! Tells on the stream of events when the ports of a sandbox change.
//!
//! The guest is asked again and again, so only while somebody looked at the ports lately or one is forwarded. Asking
//! is no use of the sandbox and wakes nothing.

use super::views;
use crate::state::App;
use handler_base::tasks::spawn_named;
use handler_types::SandboxId;
use handler_types::event::ServerEvent;
use handler_types::port::PortView;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// From one look to the next.
const STEP: Duration = Duration::from_secs(2);
/// How long somebody who looked is believed to go on looking.
const LOOKED: Duration = Duration::from_secs(60);

/// When ports were looked at last, of the sandboxes that are watched.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<HashMap<SandboxId, Instant>>);

impl Watches {
    /// Notes a look; says whether a watch is to be started.
    fn look(&self, id: &SandboxId) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(id.clone(), Instant::now()).is_none()
    }

    /// Ends the watch, unless somebody looked lately.
    fn end_if_quiet(&self, id: &SandboxId, is_forwarded: bool) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_quiet = all.get(id).is_none_or(|at| at.elapsed() > LOOKED);
        if is_quiet && !is_forwarded {
            all.remove(id);
            return true;
        }
        false
    }

    fn end(&self, id: &SandboxId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(id);
    }
}

/// Somebody looked at the ports of a sandbox, which are `seen` now: changes are told from now on.
pub(super) fn looked(app: &Arc<App>, id: &SandboxId, seen: Vec<PortView>) {
    if !app.ports.watches.look(id) {
        return;
    }
    let (app, id) = (app.clone(), id.clone());
    spawn_named("ports", async move {
        watch(&app, &id, seen).await;
    });
}

async fn watch(app: &Arc<App>, id: &SandboxId, mut seen: Vec<PortView>) {
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(STEP) => {}
        }
        let Ok(view) = app.engine.get(id) else {
            app.ports.watches.end(id);
            return app.ports.forwards.forget(app, id).await;
        };
        // A guest that does not answer is asked again; what was seen stays.
        if let Ok(now) = views(app, &view).await
            && now != seen
        {
            seen.clone_from(&now);
            publish(app, id, now);
        }
        let is_forwarded = seen.iter().any(|port| port.forward.is_some());
        if app.ports.watches.end_if_quiet(id, is_forwarded) {
            return;
        }
    }
}

/// Tells everybody who listens.
pub(super) fn publish(app: &App, id: &SandboxId, ports: Vec<PortView>) {
    let id = id.to_string();
    app.events.publish(ServerEvent::Ports { id, ports });
}
