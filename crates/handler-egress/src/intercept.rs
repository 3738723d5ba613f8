//! Tunnels to a secret's host: opened with a certificate of the sandbox's own authority, every request in
//! them looked at. The host of the tunnel, the TLS server name and `Host` must be one and the same.

use crate::accept::{HEAD_LIMIT, Inside, Session, serve};
use crate::body::ResponseBody;
use crate::decide::Reason;
use crate::dial::Dialled;
use crate::exchange::exchange;
use crate::gate::UNRECOGNIZED_NAME;
use crate::refuse::Refusal;
use crate::rewind::Rewind;
use crate::target::{Target, TargetHost};
use crate::traffic::Counted;
use crate::upstream::Scheme;
use http::header::HOST;
use http::{Method, Request, Response};
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
    let first = tokio::time::timeout(HEAD_LIMIT, client.peek()).await;
    let Ok(Ok(Some(first))) = first else {
        tracing::debug!(%target, "nothing came through the tunnel");
        return;
    };
    if first != TLS_HANDSHAKE {
        let scheme = Scheme::Plain;
        let inner = session.inner(Inside { target, scheme }, dialled, generation);
        serve(inner, client).await;
        return;
    }
    let opened = tokio::time::timeout(HEAD_LIMIT, open_tls(session, client, &target)).await;
    if let Ok(Some(client)) = opened {
        let scheme = Scheme::Tls;
        let inner = session.inner(Inside { target, scheme }, dialled, generation);
        serve(inner, client).await;
    }
}

async fn open_tls(
    session: &Session,
    client: Rewind<Counted<UnixStream>>,
    target: &Target,
) -> Option<TlsStream<Rewind<Counted<UnixStream>>>> {
    let started = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), client).await;
    let mut started = started
        .inspect_err(|error| tracing::debug!(%error, %target, "no TLS greeting"))
        .ok()?;
    if !names_target(started.client_hello().server_name(), target) {
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
    let config = session
        .sandbox
        .authority
        .server_config(target)
        .inspect_err(|error| tracing::error!(%error, "no leaf certificate"))
        .ok()?;
    started
        .into_stream(config)
        .await
        .inspect_err(|error| tracing::debug!(%error, %target, "the client broke off TLS"))
        .ok()
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
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    let target = &inside.target;
    if request.method() == Method::CONNECT {
        let text = target.to_string();
        return Err(Refusal::bad_target(&text, "no tunnel within a tunnel"));
    }
    check_host(&request, target)?;
    exchange(session, request, target, inside.scheme, false).await
}

/// `Host`, and the authority of an absolute request target, must be the tunnel's host.
fn check_host(request: &Request<Incoming>, target: &Target) -> Result<(), Refusal> {
    let is_target =
        |text: &str| Target::parse(text, Some(target.port)).is_ok_and(|given| given == *target);
    let mut hosts = request.headers().get_all(HOST).iter();
    let one = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(is_target),
        _ => false,
    };
    let absolute = request
        .uri()
        .authority()
        .is_none_or(|authority| is_target(authority.as_str()));
    if one && absolute {
        Ok(())
    } else {
        Err(Refusal::denied(target, Reason::Host))
    }
}
