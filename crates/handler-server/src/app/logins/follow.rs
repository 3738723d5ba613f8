//! What sandboxes' requests renew: sealed first, then given to the filter, then told as kept.

use super::renew::{random, renew};
use crate::state::App;
use handler_engine::EngineError;
use handler_engine::egress::{EgressLink, Renewal};
use handler_store::logins::Login;
use handler_types::SandboxId;
use handler_types::egress::LoginRenewal;
use std::sync::Arc;
use std::time::Duration;

/// Pause before one that could not be kept is taken again.
const AGAIN: Duration = Duration::from_secs(1);

/// Forgets what no sandbox has any more, and keeps what the filter tells from now on.
pub async fn follow(app: &Arc<App>, egress: &EgressLink) {
    sweep(app).await;
    let mut renewals = egress.renewals();
    let app = app.clone();
    handler_base::tasks::spawn_named("logins kept", async move {
        while let Some(Renewal { renewal, kept }) = renewals.recv().await {
            let outcome = keep(&app, &renewal).await;
            if let Err(error) = &outcome {
                let login = &renewal.renews.login;
                tracing::error!(
                    login,
                    error,
                    "a renewed login cannot be kept; it is tried again"
                );
                tokio::time::sleep(AGAIN).await;
            }
            // The connection to the filter may be gone; it tells it again.
            kept.send(outcome.is_ok()).ok();
        }
    });
}

/// Keeps one. Doing it again changes nothing.
async fn keep(app: &Arc<App>, renewal: &LoginRenewal) -> Result<(), String> {
    let name = renewal.renews.login.as_str();
    let sandbox: Option<SandboxId> = renewal.sandbox.parse().ok();
    let spec = sandbox.as_ref().and_then(|id| app.engine.spec(id).ok());
    let own = spec.and_then(|spec| spec.logins.into_iter().find(|one| one.login == name));
    let own = own.map(|binding| binding.grant);
    let now_ms = handler_base::clock::now_ms();
    let work = |known: Option<Login>| {
        let mut login = known.ok_or("it was removed")?;
        renew(&mut login, own.as_deref(), renewal, now_ms, random)
            .map_err(|_| "it has no stand-in")?;
        Ok::<_, &'static str>((login, ()))
    };
    let changed = app.logins.store.change(name, work).await;
    match changed.map_err(|e| crate::http::problem::chain(&e))? {
        Ok(()) => tracing::info!(
            login = name,
            sandbox = renewal.sandbox,
            "a login was renewed"
        ),
        // It cannot be kept later either. Without a stand-in the filter lets no token through.
        Err(why) => tracing::error!(login = name, why, "a renewed login is not kept"),
    }
    tell(app, name, sandbox).await
}

/// Gives the filter the new stand-ins: at once for the sandbox that asked, soon for the others.
async fn tell(app: &Arc<App>, login: &str, asked: Option<SandboxId>) -> Result<(), String> {
    for (id, _) in app.engine.with_login(login) {
        if Some(&id) == asked.as_ref() {
            continue;
        }
        let app = app.clone();
        handler_base::tasks::spawn_named("login told", async move {
            if let Err(error) = app.engine.renew_filter(&id).await {
                tracing::warn!(sandbox = %id, %error, "a renewed login is not given to a sandbox yet");
            }
        });
    }
    let Some(id) = asked else { return Ok(()) };
    match app.engine.renew_filter(&id).await {
        Ok(()) | Err(EngineError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Forgets the stand-ins of sandboxes that are gone.
pub async fn sweep(app: &App) {
    let there = || {
        let mut there = app.logins.making().clone();
        there.extend(app.engine.login_grants());
        there
    };
    if let Err(error) = app.logins.store.keep_grants(there).await {
        tracing::warn!(%error, "stand-ins of logins cannot be swept");
    }
}
