//! SSH to a sandbox over a WebSocket.

use super::problem::{ApiError, ApiResult};
use super::tunnel;
use crate::app::ports::dial;
use crate::app::sandboxes::{engine_error, view_and_guest};
use crate::http::problem::chain;
use crate::state::App;
use axum::Json;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use handler_base::tasks::spawn_named;
use handler_engine::UseGuard;
use handler_ssh::{Dial, HostKey, Target};
use handler_types::port::SshHostKey;
use handler_types::{ProblemCode, SandboxId};
use std::io;
use std::sync::Arc;

type S = State<Arc<App>>;

/// Bytes that may wait in each direction between the WebSocket and the SSH server.
const BUFFER: usize = 256 * 1024;

/// An SSH connection to a sandbox over a WebSocket (`ssh.v1`), framed as `connect` is. The server asks for no
/// credentials of its own: who has the API's token is let in.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ssh", tag = "ports", params(("id" = String, Path)),
    responses((status = 101)))]
pub async fn ssh(
    State(app): S,
    Path(id): Path<String>,
    upgrade: WebSocketUpgrade,
) -> ApiResult<Response> {
    let (view, guest) = view_and_guest(&app, &id).await?;
    let in_use = app.engine.hold(&view.id).map_err(engine_error)?;
    let key = host_key(&app, &view.id).await?;
    let spec = app.engine.spec(&view.id).map_err(engine_error)?;
    let target = Target {
        guest,
        workdir: view.workdir.clone(),
        home: spec.home,
        dial: dialler(&app, &view.id),
    };
    Ok(
        tunnel::accept(upgrade, "ssh.v1").on_upgrade(move |socket| async move {
            serve(socket, &app, key, target, in_use).await;
        }),
    )
}

/// The public half of a sandbox's SSH host key, made when first asked for.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ssh/host-key", tag = "ports", params(("id" = String, Path)),
    responses((status = 200, body = SshHostKey)))]
pub async fn ssh_host_key(State(app): S, Path(id): Path<String>) -> ApiResult<Json<SshHostKey>> {
    let id = crate::app::sandboxes::find(&app, &id).await?.id;
    let public_key = host_key(&app, &id).await?.public_line();
    let alias = format!("{id}.handler");
    Ok(Json(SshHostKey { alias, public_key }))
}

async fn serve(socket: WebSocket, app: &App, key: HostKey, target: Target, in_use: UseGuard) {
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let shutdown = app.shutdown.clone();
    let stop = shutdown.child_token();
    let served = stop.clone();
    let serving = spawn_named("ssh", async move {
        let _in_use = in_use;
        if let Err(error) = handler_ssh::serve(theirs, key, target, served).await {
            tracing::debug!(error = chain(&error), "an SSH connection ended");
        }
    });
    tunnel::carry(socket, ours, shutdown).await;
    stop.cancel();
    serving.await.ok();
}

/// Ports inside are reached as by every other way.
fn dialler(app: &Arc<App>, id: &SandboxId) -> Dial {
    let (app, id) = (Arc::downgrade(app), id.clone());
    Arc::new(move |port| {
        let (app, id) = (app.upgrade(), id.clone());
        Box::pin(async move {
            let app = app.ok_or_else(|| io::Error::other("the daemon is stopping"))?;
            match dial(&app, &id, port).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn handler_ssh::Io>),
                Err(ApiError(problem)) => Err(io::Error::other(problem.detail)),
            }
        })
    })
}

async fn host_key(app: &App, id: &SandboxId) -> ApiResult<HostKey> {
    let folder = app.settings.layout.sandbox_dir(id);
    let made = tokio::task::spawn_blocking(move || HostKey::of_folder(&folder)).await;
    match made {
        Ok(Ok(key)) => Ok(key),
        Ok(Err(error)) => Err(ApiError::internal("the SSH host key", &error)),
        Err(_) => Err(ApiError::new(
            ProblemCode::Internal,
            "making the SSH host key failed",
        )),
    }
}
