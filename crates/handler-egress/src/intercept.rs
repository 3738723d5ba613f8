//! Tunnels to a secret's host: opened with a certificate of the sandbox's own authority, every request in
//! them looked at. The host of the tunnel, the TLS server name and `Host` must be one and the same.

use crate::accept::{Inside, Session, serve};
use crate::body::ResponseBody;
use crate::decide::Reason;
use crate::dial::Dialled;
use crate::exchange::exchange;
use crate::gate::UNRECOGNIZED_NAME;
use crate::hosts::{self, Named};
use crate::opening::PREFACE;
use crate::plain::{self, Plain};
use crate::refuse::Refusal;
use crate::rewind::Rewind;
use crate::share::Part;
use crate::streams;
use crate::target::{Target, TargetHost};
use crate::traffic::Counted;
use crate::trust::HTTP2;
use crate::upstream::{Scheme, Slot, open};
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Serves HTTP, with or without TLS, in the tunnel.
pub(crate) async fn run(
    session: &Session,
    mut client: Rewind<Counted<UnixStream>>,
    dialled: Dialled,
    target: Target,
    generation: u64,
) {
    let limit = session.sandbox.shared.limits.head;
    let first = tokio::time::timeout(limit, client.peek()).await;
    let Ok(Ok(Some(first))) = first else {
        tracing::debug!(%target, "nothing came through the tunnel");
        return;
    };
    let upstream = Slot::Dialled(dialled, generation);
    if first != TLS_HANDSHAKE {
        let preface = tokio::time::timeout(limit, client.begins_with(PREFACE)).await;
        let version = match preface {
            Ok(Ok(true)) => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        let plain = Plain {
            target,
            named: Named::Exactly,
            version,
        };
        plain::serve(session, plain, client, upstream).await;
        return;
    }
    let Ok(part) = session.sandbox.shares.handshakes.take().await else {
        tracing::debug!(%target, "too many TLS handshakes are under way");
        return;
    };
    let opened = tokio::time::timeout(limit, open_tls(session, client, &target, upstream));
    let opened = opened.await;
    drop(part);
    if let Ok(Some(opened)) = opened {
        opened.serve(session, target).await;
    }
}

/// A tunnel whose client speaks TLS with us.
struct Opened {
    client: TlsStream<Rewind<Counted<UnixStream>>>,
    upstream: Slot,
    /// Set if HTTP/2 was offered.
    streams: Option<Part>,
}

impl Opened {
    async fn serve(self, session: &Session, target: Target) {
        let inside = Inside {
            target,
            scheme: Scheme::Tls,
            named: Named::Exactly,
        };
        let is_http2 = self.client.get_ref().1.alpn_protocol() == Some(HTTP2);
        match (self.streams.filter(|_| is_http2), self.upstream) {
            (Some(streams), upstream) => {
                let upstream = match upstream {
                    Slot::Open(upstream) => Some(upstream),
                    _ => None,
                };
                let inner = session.inner_shared(inside, upstream, streams);
                streams::serve(inner, self.client).await;
            }
            // Made for many requests, but the client wants one at a time.
            (None, Slot::Open(upstream)) if upstream.is_http2() => {
                serve(session.inner(inside, Slot::Empty), self.client).await;
            }
            (None, upstream) => serve(session.inner(inside, upstream), self.client).await,
        }
    }
}

async fn open_tls(
    session: &Session,
    client: Rewind<Counted<UnixStream>>,
    target: &Target,
    mut upstream: Slot,
) -> Option<Opened> {
    let started = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client).await;
    let mut started = started
        .inspect_err(|error| tracing::debug!(%error, %target, "no TLS greeting"))
        .ok()?;
    let hello = started.client_hello();
    if !names_target(hello.server_name(), target) {
        let rules = session.sandbox.rules();
        session.sandbox.report(
            &rules,
            Reason::Sni.decision(),
            target.to_string(),
            None,
            Some(Reason::Sni.as_str()),
        );
        let _ = started.io.write_all(&UNRECOGNIZED_NAME).await;
        let _ = started.io.shutdown().await;
        return None;
    }
    let wants_http2 = hello
        .alpn()
        .is_some_and(|mut names| names.any(|name| name == HTTP2));
    let mut streams = None;
    if wants_http2 && let Ok(room) = session.sandbox.shares.streaming.try_take(1) {
        let either;
        (upstream, either) = ask_version(session, target, upstream).await;
        streams = Some(room).filter(|_| either);
    }
    let config = session
        .sandbox
        .authority
        .server_config(target, streams.is_some())
        .inspect_err(|error| tracing::error!(%error, "no leaf certificate"))
        .ok()?;
    let client = started
        .into_stream(config)
        .await
        .inspect_err(|error| tracing::debug!(%error, %target, "the client broke off TLS"))
        .ok()?;
    Some(Opened {
        client,
        upstream,
        streams,
    })
}

/// Opens the connection outward, to offer the client what the server speaks. If there is none, the
/// client is offered all, so that it can be told why.
async fn ask_version(session: &Session, target: &Target, upstream: Slot) -> (Slot, bool) {
    let Slot::Dialled(dialled, generation) = upstream else {
        return (upstream, false);
    };
    let shared = &session.sandbox.shared;
    match open(shared, dialled, target, Scheme::Tls, generation, true).await {
        Ok(upstream) => {
            let is_http2 = upstream.is_http2();
            (Slot::Open(upstream), is_http2)
        }
        Err(error) => {
            tracing::debug!(%error, %target, "the version is not known");
            (Slot::Empty, true)
        }
    }
}

/// A server name must be there for a name, and must not be there for an address.
fn names_target(server_name: Option<&str>, target: &Target) -> bool {
    match (&target.host, server_name) {
        (TargetHost::Name(name), Some(given)) => given.eq_ignore_ascii_case(name),
        (TargetHost::Ip(_), None) => true,
        _ => false,
    }
}

/// Answers a request inside the tunnel.
pub(crate) async fn answer(
    session: &Arc<Session>,
    inside: &Inside,
    mut request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    let target = &inside.target;
    if request.method() == Method::CONNECT {
        let text = target.to_string();
        return Err(Refusal::bad_target(&text, "no tunnel within a tunnel"));
    }
    hosts::check(session, inside, &mut request)?;
    exchange(session, request, target, inside.scheme, false).await
}
