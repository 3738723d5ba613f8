//! Connections to apps, kept a while for the next request.

use crate::app::ports::{Dialled, dial};
use crate::http::problem::ApiError;
use crate::state::App;
use axum::body::Body;
use axum::http::Uri;
use futures::future::BoxFuture;
use handler_types::{Problem, SandboxId};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long a connection waits for the next request. Short: while it waits the sandbox counts as used.
const IDLE: Duration = Duration::from_secs(5);
/// Connections that wait, per preview.
const MOST_IDLE: usize = 16;

/// The connections of all previews.
#[derive(Default)]
pub struct Connections(OnceLock<Client<Connector, Body>>);

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Connections {
    pub(super) fn client(&self, app: &Arc<App>) -> &Client<Connector, Body> {
        self.0.get_or_init(|| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(MOST_IDLE)
                .http1_preserve_header_case(true)
                .set_host(false)
                .build(Connector(Arc::downgrade(app)))
        })
    }
}

/// Connects by the address of a preview: `http://<sandbox id>:<port>/`.
#[derive(Clone)]
pub(super) struct Connector(Weak<App>);

/// Why there is no connection; found again in the client's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotConnected(pub(super) Problem);

impl tower::Service<Uri> for Connector {
    type Response = Inside;
    type Error = NotConnected;
    type Future = BoxFuture<'static, Result<Inside, NotConnected>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NotConnected>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let app = self.0.upgrade();
        Box::pin(async move {
            let gone = || ApiError::new(handler_types::ProblemCode::Unavailable, "it is ending");
            let connected = async {
                let app = app.ok_or_else(gone)?;
                let host = uri.host().unwrap_or_default();
                let id: SandboxId = host.parse().map_err(|_| gone())?;
                dial(&app, &id, uri.port_u16().unwrap_or_default()).await
            };
            match connected.await {
                Ok(dialled) => Ok(Inside(TokioIo::new(dialled))),
                Err(ApiError(problem)) => Err(NotConnected(problem)),
            }
        })
    }
}

/// A connection to an app, as the client wants it.
pub(super) struct Inside(TokioIo<Dialled>);

impl Connection for Inside {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Inside {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl hyper::rt::Write for Inside {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
