//! A client's connection of HTTP/2 inside an intercepted tunnel. Each stream is a request like any other;
//! what a connection may cost is bounded here.

use crate::accept::{LONGEST_HEAD, Session, answer};
use crate::body::ResponseBody;
use crate::flow::Tracked;
use crate::upstream::{PING_EVERY, STREAM_BUFFER};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error as _;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// Requests at a time on one connection.
const MOST_STREAMS: u32 = 100;
/// Bytes that may be under way from the client on one stream, and on all of a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Requests that a client may ask and break off, one after the other, without hearing one answer.
const MOST_BROKEN_OFF: usize = 1000;
/// Streams that were broken off and wait to be looked at, before the connection is closed.
const MOST_PENDING_RESETS: usize = 64;
/// How long a connection that is told to end may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Serves HTTP/2 on a connection until it ends or is no longer allowed.
///
/// Boxed for the same reason as [`crate::accept::serve`].
pub(crate) fn serve<I>(session: Arc<Session>, io: I) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(serve_streams(session, io))
}

async fn serve_streams<I>(session: Arc<Session>, io: I)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let idle = session.sandbox.shared.limits.idle_streams;
    let use_ = Arc::new(watch::Sender::new(Use::default()));
    let service = service_fn(|request| {
        let (session, mut turn) = (session.clone(), Turn::new(use_.clone()));
        async move {
            let response = answer(&session, request).await;
            turn.answered = true;
            Ok::<_, Infallible>(response.map(|inner| Accounted { inner, _turn: turn }))
        }
    });
    let connection = builder(&session).serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let forbidden = session.until_forbidden();
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        () = forbidden => return tracing::debug!(sandbox = %session.sandbox.id, "closed by new rules"),
        () = flooded(&use_) => return session.report_malformed(),
        () = unused(&use_, idle) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            let closing = tokio::time::timeout(CLOSE_LIMIT, connection).await;
            closing.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        if is_misuse(&error) {
            session.report_malformed();
        }
        tracing::debug!(%error, sandbox = %session.sandbox.id, "connection ended");
    }
}

/// Whether a connection ended because of what came over it, and not because it broke or fell silent.
fn is_misuse(error: &hyper::Error) -> bool {
    let mut cause = error.source();
    let mut broke = false;
    while let Some(now) = cause {
        broke |= now.is::<std::io::Error>();
        cause = now.source();
    }
    !(broke || error.is_timeout() || error.is_closed() || error.is_canceled())
}

fn builder(session: &Session) -> http2::Builder<Spawner> {
    let longest = u32::try_from(LONGEST_HEAD).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(Spawner(session.sandbox.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(longest)
        .max_send_buf_size(STREAM_BUFFER)
        .max_pending_accept_reset_streams(MOST_PENDING_RESETS)
        .max_local_error_reset_streams(MOST_PENDING_RESETS)
        .keep_alive_interval(PING_EVERY);
    builder
}

/// What a connection is used for.
#[derive(Debug, Default, Clone, Copy)]
struct Use {
    /// Requests under way.
    active: usize,
    /// Requests broken off since the last answer.
    broken_off: usize,
}

async fn unused(use_: &watch::Sender<Use>, limit: Duration) {
    let mut changes = use_.subscribe();
    loop {
        let still = changes.wait_for(|now| now.active == 0).await.is_err();
        let used = async { changes.wait_for(|now| now.active > 0).await.is_err() };
        if still || tokio::time::timeout(limit, used).await.is_err() {
            return;
        }
    }
}

async fn flooded(use_: &watch::Sender<Use>) {
    let mut changes = use_.subscribe();
    let _ = changes
        .wait_for(|now| now.broken_off > MOST_BROKEN_OFF)
        .await;
}

/// One request under way.
struct Turn {
    use_: Arc<watch::Sender<Use>>,
    answered: bool,
}

impl Turn {
    fn new(use_: Arc<watch::Sender<Use>>) -> Self {
        use_.send_modify(|now| now.active += 1);
        Self {
            use_,
            answered: false,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let answered = self.answered;
        self.use_.send_modify(|now| {
            now.active -= 1;
            now.broken_off = if answered { 0 } else { now.broken_off + 1 };
        });
    }
}

/// A response's body; its request is under way as long as it streams.
struct Accounted {
    inner: Tracked<ResponseBody>,
    _turn: Turn,
}

impl Body for Accounted {
    type Data = Bytes;
    type Error = <Tracked<ResponseBody> as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Starts the tasks that answer streams; they end with the sandbox.
#[derive(Clone)]
struct Spawner(Arc<crate::sandbox::Sandbox>);

impl<F> Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn("egress stream", task);
    }
}
