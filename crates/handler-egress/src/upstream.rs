//! An HTTP connection to a destination, with or without TLS, kept for the next request of the same client.

use crate::accept::{LARGEST_BUFFER, LONGEST_HEAD, MOST_HEADERS};
use crate::body::RequestBody;
use crate::dial::Dialled;
use crate::sandbox::Shared;
use crate::target::{Target, TargetHost};
use crate::trust::TrustError;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// How long TLS with the destination may take.
const TLS_LIMIT: Duration = Duration::from_secs(15);

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

/// An HTTP connection to a destination.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// How it is spoken to.
    pub(crate) scheme: Scheme,
    /// Where it leads.
    pub(crate) address: Option<SocketAddr>,
    sender: SendRequest<RequestBody>,
    target: Target,
    generation: u64,
    /// Ends with this value.
    _driver: Driver,
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

    /// Waits until it takes a request; `false` if it has ended.
    pub(crate) async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends one request.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        self.sender.try_send_request(request).await
    }
}

/// Begins HTTP on a connection.
pub(crate) async fn open(
    shared: &Shared,
    dialled: Dialled,
    target: &Target,
    scheme: Scheme,
    generation: u64,
) -> Result<Upstream, OpenError> {
    let Dialled { stream, address } = dialled;
    let (sender, driver) = match scheme {
        Scheme::Plain => begin(stream).await?,
        Scheme::Tls => {
            let connector = TlsConnector::from(shared.trust.client().await?);
            let secured = connector.connect(server_name(target)?, stream);
            let secured = tokio::time::timeout(TLS_LIMIT, secured)
                .await
                .map_err(|_| OpenError::Slow)?
                .map_err(OpenError::Tls)?;
            begin(secured).await?
        }
    };
    Ok(Upstream {
        scheme,
        address,
        sender,
        target: target.clone(),
        generation,
        _driver: driver,
    })
}

fn server_name(target: &Target) -> Result<ServerName<'static>, OpenError> {
    match &target.host {
        TargetHost::Ip(ip) => Ok(ServerName::IpAddress((*ip).into())),
        TargetHost::Name(name) => ServerName::try_from(name.clone()).map_err(|_| OpenError::Name),
    }
}

async fn begin<S>(stream: S) -> Result<(SendRequest<RequestBody>, Driver), OpenError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = Builder::new()
        .preserve_header_case(true)
        .max_header_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST_BUFFER)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = handler_base::tasks::spawn_named("egress upstream", async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection outward ended");
        }
    });
    Ok((sender, Driver(driver)))
}
