//! Servers of this machine that the filter is asked to reach; they remember what they received.

use crate::world::within;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) target: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: http::HeaderMap,
    /// Whether the body came to its proper end.
    pub(crate) whole: bool,
    pub(crate) version: http::Version,
}

impl Received {
    fn message(body: Vec<u8>) -> Self {
        Self {
            target: "message".to_owned(),
            headers: http::HeaderMap::new(),
            body,
            trailers: http::HeaderMap::new(),
            whole: true,
            version: http::Version::HTTP_11,
        }
    }
}

pub(crate) type Reply = Response<BoxBody<Bytes, Infallible>>;

pub(crate) struct Origin {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<AtomicUsize>,
}

impl Origin {
    /// Answers every request with what `reply` makes of it.
    pub(crate) async fn plain(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(vec![], reply).await
    }

    pub(crate) async fn tls(
        acceptor: TlsAcceptor,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(vec![acceptor], reply).await
    }

    /// With one acceptor for each connection in turn, and the last one for all that follow.
    pub(crate) async fn start(
        acceptors: Vec<TlsAcceptor>,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (seen, reply) = (received.clone(), Arc::new(reply));
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let turn = counted.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptors.get(turn).or(acceptors.last()).cloned();
                let (seen, reply) = (seen.clone(), reply.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => {
                            let mut first = [0; 3];
                            let read = stream.peek(&mut first).await.unwrap_or(0);
                            let http2 = &first[..read] == b"PRI";
                            serve(stream, seen, reply, http2).await;
                        }
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                                serve(stream, seen, reply, http2).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            port,
            received,
            connections,
        }
    }

    /// A server that somebody else runs on this port.
    pub(crate) fn elsewhere(port: u16) -> Self {
        Self {
            port,
            received: Arc::default(),
            connections: Arc::default(),
        }
    }

    /// Connections that came.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) async fn received_count(&self, count: usize) -> Vec<Received> {
        within("the origin receives", async {
            while self.received().len() < count {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
        self.received()
    }
}

async fn serve<S>(
    stream: S,
    seen: Arc<Mutex<Vec<Received>>>,
    reply: Arc<impl Fn(&Received) -> Reply + Send + Sync + 'static>,
    http2: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (seen, reply) = (seen.clone(), reply.clone());
        async move {
            let upgrade = hyper::upgrade::on(&mut request);
            let (parts, mut body) = request.into_parts();
            let mut received = Received {
                target: parts.uri.to_string(),
                headers: parts.headers,
                body: Vec::new(),
                trailers: http::HeaderMap::new(),
                whole: true,
                version: parts.version,
            };
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => match frame.into_data() {
                        Ok(data) => received.body.extend_from_slice(&data),
                        Err(frame) => received.trailers = frame.into_trailers().unwrap(),
                    },
                    Err(_) => {
                        received.whole = false;
                        break;
                    }
                }
            }
            let response = reply(&received);
            if response.status() == 101 {
                let frames = response.headers()["upgrade"] == "websocket";
                tokio::spawn(after_upgrade(upgrade, frames, seen.clone()));
            }
            seen.lock().unwrap().push(received);
            Ok::<_, Infallible>(response)
        }
    });
    if http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
        return;
    }
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

/// Echoes the messages of a WebSocket, which are remembered, or else any bytes.
async fn after_upgrade(upgrade: OnUpgrade, frames: bool, seen: Arc<Mutex<Vec<Received>>>) {
    let mut stream = TokioIo::new(upgrade.await.unwrap());
    if frames {
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            let data = match &message {
                Message::Close(Some(close)) => u16::from(close.code).to_be_bytes().to_vec(),
                message => message.clone().into_data().to_vec(),
            };
            seen.lock().unwrap().push(Received::message(data));
            if !message.is_close() && !message.is_ping() {
                let _ = socket.send(message).await;
            }
        }
        return;
    }
    let mut buf = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut buf).await {
        stream.write_all(&buf[..read]).await.unwrap();
    }
}

/// The answer that changes to this protocol.
pub(crate) fn switching(protocol: &str) -> Reply {
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", protocol)
        .body(Empty::new().boxed())
        .unwrap()
}

pub(crate) fn text(body: impl Into<Bytes>) -> Reply {
    Response::new(Full::new(body.into()).boxed())
}

pub(crate) fn echo(received: &Received) -> Reply {
    text(received.body.clone())
}

/// A body made of the pieces that the channel gives, each at once.
pub(crate) fn streamed(mut pieces: mpsc::Receiver<Bytes>) -> Reply {
    let frames = futures::stream::poll_fn(move |cx| {
        pieces
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    });
    Response::new(BodyExt::boxed(StreamBody::new(frames)))
}

/// A body with a trailer behind it.
pub(crate) fn trailed(body: &'static str, name: &'static str, value: &str) -> Reply {
    let mut trailers = http::HeaderMap::new();
    trailers.insert(name, value.parse().unwrap());
    let frames = [Frame::data(Bytes::from(body)), Frame::trailers(trailers)];
    let frames = futures::stream::iter(frames.map(Ok));
    let mut reply = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    reply.headers_mut().insert("trailer", name.parse().unwrap());
    reply
}

/// The same server, speaking other versions.
pub(crate) fn speaking(acceptor: &TlsAcceptor, alpn: &[&str]) -> TlsAcceptor {
    let mut config = acceptor.config().as_ref().clone();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// A certificate for `host` by an authority of its own: the acceptor and the authority's PEM.
pub(crate) fn certificate(host: &str) -> (TlsAcceptor, String) {
    certificate_for(host, &[])
}

/// The same for a server that speaks these versions.
pub(crate) fn certificate_for(host: &str, alpn: &[&str]) -> (TlsAcceptor, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![host.to_owned()])
        .unwrap()
        .signed_by(&leaf_key, &issuer)
        .unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), pem)
}
