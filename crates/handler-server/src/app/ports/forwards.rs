//! The forwards there are, kept over restarts of the daemon.
//!
//! Invariant: what is written down is what is served. Written before a new one is answered and before a removed one
//! stops listening; one whose sandbox is gone goes with it.

use super::listen::{self, Forward, Trouble, note};
use crate::app::sessions::store_error;
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_base::tasks::spawn_named;
use handler_store::db::StoreError;
use handler_types::port::{ForwardRequest, ForwardView};
use handler_types::{ProblemCode, SandboxId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Where they are written down.
const KEY: &str = "portForwards";
/// Most of one sandbox.
const MOST: usize = 64;
/// Ports below need a right that the daemon need not have.
const FIRST_FREE: u16 = 1024;

#[derive(Debug)]
struct Live {
    forward: Forward,
    trouble: Trouble,
    stop: CancellationToken,
}

impl Live {
    fn view(&self) -> ForwardView {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        ForwardView {
            bind: self.forward.bind.to_string(),
            host_port: self.forward.host_port,
            error: trouble.clone(),
        }
    }
}

/// All forwards, by sandbox and port inside.
#[derive(Debug, Default)]
pub(super) struct Forwards(Mutex<BTreeMap<(SandboxId, u16), Live>>);

impl Forwards {
    /// Those of one sandbox, by port inside.
    pub(super) async fn of(&self, id: &SandboxId) -> BTreeMap<u16, ForwardView> {
        let all = self.0.lock().await;
        all.values()
            .filter(|live| live.forward.sandbox == *id)
            .map(|live| (live.forward.port, live.view()))
            .collect()
    }

    /// Makes one. One that is there already and is as wished stays.
    pub(super) async fn add(
        &self,
        app: &Arc<App>,
        id: &SandboxId,
        request: &ForwardRequest,
    ) -> ApiResult<()> {
        let bind = address(app, request.bind.as_deref())?;
        let mut all = self.0.lock().await;
        if let Some(live) = all.get(&(id.clone(), request.port)) {
            return is_as_wished(&live.forward, request, bind);
        }
        if all.values().filter(|l| l.forward.sandbox == *id).count() >= MOST {
            let text = format!("the sandbox has {MOST} forwards; remove one first");
            return Err(ApiError::new(ProblemCode::TooMany, text));
        }
        let listener = listen(bind, request).await?;
        let address = listener.local_addr();
        let host_port = address
            .map_err(|e| ApiError::internal("listening", &e))?
            .port();
        let forward = Forward {
            sandbox: id.clone(),
            port: request.port,
            bind,
            host_port,
        };
        let live = start(app, forward, Some(listener));
        all.insert((id.clone(), request.port), live);
        if let Err(error) = save(app, &all).await {
            if let Some(live) = all.remove(&(id.clone(), request.port)) {
                live.stop.cancel();
            }
            return Err(store_error(error));
        }
        Ok(())
    }

    /// Removes one with its connections; says whether it was there.
    pub(super) async fn remove(&self, app: &App, id: &SandboxId, port: u16) -> ApiResult<bool> {
        let mut all = self.0.lock().await;
        let Some(live) = all.remove(&(id.clone(), port)) else {
            return Ok(false);
        };
        live.stop.cancel();
        save(app, &all).await.map_err(store_error)?;
        Ok(true)
    }

    /// Removes those of a sandbox that is gone.
    pub(super) async fn forget(&self, app: &App, id: &SandboxId) {
        let mut all = self.0.lock().await;
        let before = all.len();
        all.retain(|(of, _), live| {
            let stays = of != id;
            if !stays {
                live.stop.cancel();
            }
            stays
        });
        if all.len() < before
            && let Err(error) = save(app, &all).await
        {
            tracing::warn!(%error, "removed forwards are still written down");
        }
    }

    /// Serves again what was written down, for the sandboxes that are still there; these are returned.
    pub(super) async fn take_up(&self, app: &Arc<App>) -> Result<BTreeSet<SandboxId>, StoreError> {
        let Some(kept) = app.store.kv().get(KEY).await? else {
            return Ok(BTreeSet::new());
        };
        let kept: Vec<Forward> = serde_json::from_value(kept).unwrap_or_else(|error| {
            tracing::error!(%error, "the forwards written down cannot be read; none is served");
            Vec::new()
        });
        let mut all = self.0.lock().await;
        for forward in kept {
            if app.engine.get(&forward.sandbox).is_err() {
                continue;
            }
            let key = (forward.sandbox.clone(), forward.port);
            let bound = listen::bind(forward.bind, forward.host_port).await;
            let trouble = bound.as_ref().err().map(|e| format!("cannot listen: {e}"));
            let live = start(app, forward, bound.ok());
            note(&live.trouble, trouble);
            all.insert(key, live);
        }
        Ok(all.keys().map(|(id, _)| id.clone()).collect())
    }
}

fn start(app: &Arc<App>, forward: Forward, listener: Option<TcpListener>) -> Live {
    let live = Live {
        forward: forward.clone(),
        trouble: Trouble::default(),
        stop: CancellationToken::new(),
    };
    let serving = listen::serve(
        app.clone(),
        forward,
        listener,
        live.trouble.clone(),
        live.stop.clone(),
    );
    spawn_named("forward", serving);
    live
}

async fn save(app: &App, all: &BTreeMap<(SandboxId, u16), Live>) -> Result<(), StoreError> {
    let list: Vec<&Forward> = all.values().map(|live| &live.forward).collect();
    let value = serde_json::to_value(list)?;
    app.store.kv().set(KEY, &value).await
}

/// The address to listen on: loopback, or one that the settings allow.
fn address(app: &App, wished: Option<&str>) -> ApiResult<IpAddr> {
    let Some(wished) = wished else {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    };
    let address: IpAddr = wished.parse().map_err(|_| {
        let text = format!("bind: `{}` is no IP address", shorten(wished));
        ApiError::new(ProblemCode::Invalid, text)
    })?;
    if address.is_loopback() || app.settings.forward_bind.contains(&address) {
        return Ok(address);
    }
    let text = format!(
        "bind: {address} would let other machines in; start the daemon with HANDLER_FORWARD_BIND={address} to allow it"
    );
    Err(ApiError::new(ProblemCode::Forbidden, text))
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

fn is_as_wished(forward: &Forward, request: &ForwardRequest, bind: IpAddr) -> ApiResult<()> {
    let is_same_port = request
        .host_port
        .is_none_or(|port| port == 0 || port == forward.host_port);
    if is_same_port && bind == forward.bind {
        return Ok(());
    }
    let Forward {
        port,
        bind,
        host_port,
        ..
    } = forward;
    let text =
        format!("port {port} is forwarded from {bind}:{host_port} already; remove that first");
    Err(ApiError::new(ProblemCode::Conflict, text))
}

async fn listen(bind: IpAddr, request: &ForwardRequest) -> ApiResult<TcpListener> {
    let wished = match request.host_port {
        Some(port) => port,
        None if request.port < FIRST_FREE => 0,
        None => request.port,
    };
    match listen::bind(bind, wished).await {
        Ok(listener) => Ok(listener),
        Err(_) if request.host_port.is_none() => listen::bind(bind, 0)
            .await
            .map_err(|e| ApiError::internal("listening", &e)),
        Err(error) => {
            let text = format!("cannot listen on {bind}:{wished}: {error}; choose another port");
            Err(ApiError::new(ProblemCode::Conflict, text))
        }
    }
}
