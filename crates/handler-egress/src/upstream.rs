//! An HTTP connection to a destination, with or without TLS, kept for the next request of the same client:
//! HTTP/1.1 for one request at a time, HTTP/2 for many.

use crate::accept::{LARGEST_BUFFER, LONGEST_HEAD, MOST_HEADERS};
use crate::body::RequestBody;
use crate::dial::Dialled;
use crate::sandbox::Shared;
use crate::shape::{NoHost, for_http1, for_http2};
use crate::target::{Target, TargetHost};
use crate::trust::{HTTP2, TrustError};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::ServerName;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// How long TLS with the destination may take.
const TLS_LIMIT: Duration = Duration::from_secs(15);

/// Bytes that may be under way to us from a server on one stream of HTTP/2, and on all of a connection: as
/// many as come in a round trip of 50 ms at 20 MB/s.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 2 * STREAM_WINDOW;
/// Bytes that wait to be sent on one stream of HTTP/2.
pub(crate) const STREAM_BUFFER: usize = 16 * 1024;
/// A connection of HTTP/2 that does not answer for so long is dead.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(60);

/// How the destination is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// `http`
    Plain,
    /// `https`
    Tls,
}

/// Why a connection cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The server's certificate or its TLS.
    #[error("its TLS cannot be trusted or used: {0}")]
    Tls(io::Error),
    /// It takes too long.
    #[error("its TLS took too long")]
    Slow,
    /// Nobody to believe.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The name fits no certificate.
    #[error("its name cannot be in a certificate")]
    Name,
    /// HTTP could not begin.
    #[error("HTTP could not begin")]
    Http(#[from] hyper::Error),
}

/// What a session keeps towards the outside.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Nothing.
    Empty,
    /// Bytes only, made for a tunnel under the rules of this generation.
    Dialled(Dialled, u64),
    /// HTTP.
    Open(Upstream),
}

impl Slot {
    /// Where it leads, if that is known.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Empty => None,
            Self::Dialled(dialled, _) => dialled.address,
            Self::Open(upstream) => upstream.address,
        }
    }
}

/// An HTTP connection to a destination.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// How it is spoken to.
    pub(crate) scheme: Scheme,
    /// Where it leads.
    pub(crate) address: Option<SocketAddr>,
    sender: Sender,
    target: Target,
    generation: u64,
    /// Ends with the last value that shares it.
    _driver: Arc<Driver>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Upstream {
    /// Whether it can carry a request to `target` under the rules of `generation`.
    pub(crate) fn fits(&self, target: &Target, scheme: Scheme, generation: u64) -> bool {
        self.target == *target && self.scheme == scheme && self.generation == generation
    }

    /// Where it leads.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The same connection once more, if it carries many requests.
    pub(crate) fn share(&self) -> Option<Self> {
        let Sender::Http2(sender) = &self.sender else {
            return None;
        };
        Some(Self {
            scheme: self.scheme,
            address: self.address,
            sender: Sender::Http2(sender.clone()),
            target: self.target.clone(),
            generation: self.generation,
            _driver: self._driver.clone(),
        })
    }

    /// Whether it carries many requests at a time.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Waits until it takes a request; `false` if it has ended.
    pub(crate) async fn is_ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Whether it takes a request at once.
    pub(crate) fn is_free(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        }
    }

    /// Whether it has ended.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends one request, in the form that is spoken here.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let sent = match &mut self.sender {
            Sender::Http1(sender) => {
                for_http1(&mut request)?;
                sender.try_send_request(request).await
            }
            Sender::Http2(sender) => {
                for_http2(&mut request, self.scheme)?;
                sender.try_send_request(request).await
            }
        };
        Ok(sent?)
    }
}

/// Why there is no response. Shows nothing of the request.
pub(crate) enum SendError {
    /// It cannot be written in the version that is spoken.
    Unwritable,
    /// The connection ended; holds the request if nothing of it was sent.
    Ended(Box<TrySendError<Request<RequestBody>>>),
}

impl SendError {
    /// The request, if nothing of it was sent.
    pub(crate) fn take_message(&mut self) -> Option<Request<RequestBody>> {
        match self {
            Self::Unwritable => None,
            Self::Ended(error) => error.take_message(),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwritable => NoHost.fmt(f),
            Self::Ended(error) => error.error().fmt(f),
        }
    }
}

impl From<NoHost> for SendError {
    fn from(_: NoHost) -> Self {
        Self::Unwritable
    }
}

impl From<TrySendError<Request<RequestBody>>> for SendError {
    fn from(error: TrySendError<Request<RequestBody>>) -> Self {
        Self::Ended(Box::new(error))
    }
}

/// Begins HTTP on a connection: version 1.1, or `either` as the server prefers. Without TLS nobody can say: `either` is 2
/// there, for clients that know it.
pub(crate) async fn open(
    shared: &Shared,
    dialled: Dialled,
    target: &Target,
    scheme: Scheme,
    generation: u64,
    either: bool,
) -> Result<Upstream, OpenError> {
    let Dialled { stream, address } = dialled;
    let (sender, driver) = match scheme {
        Scheme::Plain if either => begin_http2(stream).await?,
        Scheme::Plain => begin_http1(stream).await?,
        Scheme::Tls => {
            let connector = TlsConnector::from(shared.trust.client(either).await?);
            let secured = connector.connect(server_name(target)?, stream);
            let secured = tokio::time::timeout(TLS_LIMIT, secured)
                .await
                .map_err(|_| OpenError::Slow)?
                .map_err(OpenError::Tls)?;
            if secured.get_ref().1.alpn_protocol() == Some(HTTP2) {
                begin_http2(secured).await?
            } else {
                begin_http1(secured).await?
            }
        }
    };
    Ok(Upstream {
        scheme,
        address,
        sender,
        target: target.clone(),
        generation,
        _driver: Arc::new(driver),
    })
}

fn server_name(target: &Target) -> Result<ServerName<'static>, OpenError> {
    match &target.host {
        TargetHost::Ip(ip) => Ok(ServerName::IpAddress((*ip).into())),
        TargetHost::Name(name) => ServerName::try_from(name.clone()).map_err(|_| OpenError::Name),
    }
}

async fn begin_http1<S>(stream: S) -> Result<(Sender, Driver), OpenError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .preserve_header_case(true)
        .max_header_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST_BUFFER)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = drive(connection.with_upgrades());
    Ok((Sender::Http1(sender), driver))
}

async fn begin_http2<S>(stream: S) -> Result<(Sender, Driver), OpenError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let longest = u32::try_from(LONGEST_HEAD).unwrap_or(u32::MAX);
    let (sender, connection) = http2::Builder::new(Spawner)
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(longest)
        .max_send_buf_size(STREAM_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .handshake(TokioIo::new(stream))
        .await?;
    Ok((Sender::Http2(sender), drive(connection)))
}

fn drive(connection: impl Future<Output = hyper::Result<()>> + Send + 'static) -> Driver {
    let driver = handler_base::tasks::spawn_named("egress upstream", async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection outward ended");
        }
    });
    Driver(driver)
}

/// Starts the tasks that carry bodies of HTTP/2; they end with their connection.
#[derive(Debug, Clone, Copy)]
struct Spawner;

impl<F> Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        drop(handler_base::tasks::spawn_named("egress stream", task));
    }
}
