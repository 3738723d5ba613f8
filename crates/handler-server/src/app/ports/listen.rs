//! One forward: a listener on the host, and each of its connections carried to the port inside.

use super::dial::dial;
use crate::state::App;
use handler_base::tasks::spawn_named;
use handler_types::SandboxId;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How long until a port that was taken is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Bytes in flight in each direction of a connection.
const BLOCK: usize = 64 * 1024;

/// A forward as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Forward {
    pub(super) sandbox: SandboxId,
    pub(super) port: u16,
    pub(super) bind: IpAddr,
    pub(super) host_port: u16,
}

/// Why a forward does not listen, when it does not.
pub(super) type Trouble = Arc<Mutex<Option<String>>>;

pub(super) fn note(trouble: &Trouble, text: Option<String>) {
    *trouble.lock().unwrap_or_else(PoisonError::into_inner) = text;
}

/// Listens, or says why not.
pub(super) async fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::new(address, port)).await
}

/// Serves a forward until `stop` is cancelled or the daemon ends. Without a listener one is made, again and again
/// until it succeeds.
pub(super) async fn serve(
    app: Arc<App>,
    forward: Forward,
    listener: Option<TcpListener>,
    trouble: Trouble,
    stop: CancellationToken,
) {
    let serving = async {
        let listener = match listener {
            Some(listener) => listener,
            None => until_bound(&forward, &trouble).await,
        };
        loop {
            match listener.accept().await {
                Ok((client, _)) => connection(&app, &forward, client, &stop),
                Err(error) => {
                    // Out of descriptors, most likely; it passes.
                    tracing::warn!(%error, port = forward.host_port, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = app.shutdown.cancelled() => stop.cancel(),
        () = serving => {}
    }
}

async fn until_bound(forward: &Forward, trouble: &Trouble) -> TcpListener {
    loop {
        match bind(forward.bind, forward.host_port).await {
            Ok(listener) => {
                note(trouble, None);
                return listener;
            }
            Err(error) => note(trouble, Some(format!("cannot listen: {error}"))),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Carries one connection in a task of its own.
fn connection(app: &Arc<App>, forward: &Forward, mut client: TcpStream, stop: &CancellationToken) {
    let (app, stop) = (app.clone(), stop.clone());
    let (id, port) = (forward.sandbox.clone(), forward.port);
    spawn_named("forwarded connection", async move {
        client.set_nodelay(true).ok();
        let carried = async {
            let mut inside = match dial(&app, &id, port).await {
                Ok(inside) => inside,
                Err(error) => {
                    tracing::debug!(sandbox = %id, port, reason = error.0.detail, "no connection");
                    // A client is told by a reset, as by a port that is closed.
                    client.set_zero_linger().ok();
                    return;
                }
            };
            let copied =
                copy_bidirectional_with_sizes(&mut client, &mut inside, BLOCK, BLOCK).await;
            if let Err(error) = copied {
                tracing::debug!(sandbox = %id, port, %error, "a forwarded connection broke");
                client.set_zero_linger().ok();
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = carried => {}
        }
    });
}
