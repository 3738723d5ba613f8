//! HTTP/1.1 to a local server over a Unix socket or loopback TCP: one connection a request.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Where a local server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// A loopback port, as `host:port`.
    Tcp(String),
}

/// Why a local request failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nothing listens there.
    #[error("cannot connect to {endpoint}")]
    Connect {
        /// Where.
        endpoint: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The exchange broke.
    #[error("the connection broke")]
    Exchange(#[from] hyper::Error),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// A byte stream, whatever carries it.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Endpoint {
    /// Opens a connection.
    ///
    /// # Errors
    /// [`HttpError::Connect`].
    pub async fn connect(&self) -> Result<Box<dyn Io>, HttpError> {
        let wrap = |source| HttpError::Connect {
            endpoint: self.to_string(),
            source,
        };
        match self {
            Self::Unix(path) => UnixStream::connect(path)
                .await
                .map(|s| Box::new(s) as Box<dyn Io>)
                .map_err(wrap),
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(wrap)?;
                stream.set_nodelay(true).ok();
                Ok(Box::new(stream))
            }
        }
    }

    /// The `Host` header that goes with it.
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Tcp(address) => address.clone(),
        }
    }

    /// Sends one request; the answer's body streams. `headers_within` bounds the wait for its head.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn send<B>(
        &self,
        request: Request<B>,
        headers_within: Option<Duration>,
    ) -> Result<Response<Incoming>, HttpError>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let io = self.connect().await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
        crate::tasks::spawn_named("http connection", async move {
            connection.with_upgrades().await.ok();
        });
        let answer = sender.send_request(request);
        match headers_within {
            Some(limit) => Ok(tokio::time::timeout(limit, answer)
                .await
                .map_err(|_| HttpError::Timeout(limit))??),
            None => Ok(answer.await?),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

/// A whole body from memory.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> Full<Bytes> {
    Full::new(bytes.into())
}
