//! Ports inside sandboxes: what listens, what is forwarded to the host, and how connections are made to them.
//!
//! Every connection to a port, whatever it comes through (forward, preview, tunnel, SSH), is made by [`dial`]: it
//! wakes the sandbox, counts as its use, and is bounded per sandbox.

mod dial;
mod forwards;
mod limits;
mod listen;
mod watch;

pub use dial::{Dialled, dial};

use crate::app::sandboxes::{engine_error, find, guest_error};
use crate::app::sessions::store_error;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_types::port::{ForwardRequest, PortView};
use handler_types::sandbox::{SandboxState, SandboxView};
use handler_types::{ProblemCode, SandboxId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the daemon knows of ports.
#[derive(Debug, Default)]
pub struct Ports {
    gates: limits::Gates,
    forwards: forwards::Forwards,
    watches: watch::Watches,
}

/// The host name of a preview, without the daemon's port.
#[must_use]
pub fn preview_host(id: &SandboxId, port: u16) -> String {
    format!("{port}-{id}.localhost")
}

/// The address of a preview.
#[must_use]
pub fn preview_url(app: &App, id: &SandboxId, port: u16) -> String {
    format!("http://{}:{}/", preview_host(id, port), app.port())
}

/// The ports of a sandbox, open or forwarded; changes are told on the stream of events for a while.
///
/// # Errors
/// 404, or a guest that does not answer.
pub async fn list(app: &Arc<App>, text: &str) -> ApiResult<Vec<PortView>> {
    let view = find(app, text).await?;
    let ports = views(app, &view).await?;
    watch::looked(app, &view.id, ports.clone());
    Ok(ports)
}

async fn views(app: &App, view: &SandboxView) -> ApiResult<Vec<PortView>> {
    let id = &view.id;
    let mut ports = BTreeMap::new();
    // What rests is not woken to be looked at.
    if view.state == SandboxState::Running {
        let guest = app.engine.guest(id).map_err(engine_error)?;
        for open in guest.ports().await.map_err(guest_error)? {
            let is_better = |known: &PortView| known.address.as_deref() == Some("127.0.0.1");
            if ports.get(&open.port).is_some_and(is_better) {
                continue;
            }
            let port = PortView {
                open: true,
                address: Some(open.address),
                pid: open.pid,
                program: open.program,
                ..closed(app, id, open.port)
            };
            ports.insert(open.port, port);
        }
    }
    for (port, forward) in app.ports.forwards.of(id).await {
        let view = ports.entry(port).or_insert_with(|| closed(app, id, port));
        view.forward = Some(forward);
    }
    Ok(ports.into_values().collect())
}

fn closed(app: &App, id: &SandboxId, port: u16) -> PortView {
    PortView {
        port,
        open: false,
        address: None,
        pid: None,
        program: None,
        forward: None,
        url: preview_url(app, id, port),
    }
}

/// Forwards a port to the host; the forward is there again after a restart of the daemon.
///
/// # Errors
/// 400 a bad port or address, 403 an address that is not allowed, 404, 409 a port that is taken, 429 too many.
pub async fn forward(app: &Arc<App>, text: &str, request: &ForwardRequest) -> ApiResult<PortView> {
    check(request.port)?;
    let view = find(app, text).await?;
    app.ports.forwards.add(app, &view.id, request).await?;
    // A guest that does not answer is no reason to say the forward were not made.
    let ports = views(app, &view).await.unwrap_or_default();
    let made = ports.iter().find(|p| p.port == request.port).cloned();
    let made = match made {
        Some(made) => made,
        None => PortView {
            forward: app.ports.forwards.of(&view.id).await.remove(&request.port),
            ..closed(app, &view.id, request.port)
        },
    };
    watch::looked(app, &view.id, ports.clone());
    watch::publish(app, &view.id, ports);
    Ok(made)
}

/// Takes a forward away, with its connections.
///
/// # Errors
/// 404 when there is none.
pub async fn unforward(app: &Arc<App>, text: &str, port: u16) -> ApiResult<()> {
    let view = find(app, text).await?;
    if !app.ports.forwards.remove(app, &view.id, port).await? {
        let text = format!("port {port} is not forwarded");
        return Err(ApiError::new(ProblemCode::NotFound, text));
    }
    if let Ok(ports) = views(app, &view).await {
        watch::publish(app, &view.id, ports);
    }
    Ok(())
}

/// A usable port number.
///
/// # Errors
/// 400 for 0.
pub fn check(port: u16) -> ApiResult<()> {
    if port == 0 {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "port: a number from 1 to 65535",
        ));
    }
    Ok(())
}

/// At the daemon's start: serves again what was forwarded.
///
/// # Errors
/// When the rows cannot be read.
pub async fn take_up(app: &Arc<App>) -> ApiResult<()> {
    let sandboxes = app.ports.forwards.take_up(app).await;
    for id in sandboxes.map_err(store_error)? {
        watch::looked(app, &id, Vec::new());
    }
    Ok(())
}

/// A sandbox is gone: so are its forwards.
pub async fn forget(app: &App, id: &SandboxId) {
    app.ports.forwards.forget(app, id).await;
}
