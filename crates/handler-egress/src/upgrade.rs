//! After `101`: the frames of a WebSocket are swapped both ways where secrets are; other bytes are copied
//! unchanged; until both ends are done or the rules say no.

use crate::accept::{Session, may_stay};
use crate::body::ResponseBody;
use crate::carry;
use crate::decide::Reason;
use crate::flow::BY_POLICY;
use crate::headers::{strip_hop, wanted_upgrade};
use crate::report::RequestReport;
use crate::scan::Needles;
use crate::settings::Rules;
use crate::target::Target;
use crate::traffic::Counted;
use crate::upstream::{Scheme, Upstream};
use crate::websocket::{Broken, Frames, Sender};
use bytes::Bytes;
use handler_types::egress::EgressDecision;
use http::Response;
use http::header::{CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_EXTENSIONS, UPGRADE};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// The protocol a request may change to. Where a secret is given only WebSocket is understood.
pub(crate) fn allowed(headers: &HeaderMap, rules: &Rules, target: &Target) -> Option<HeaderValue> {
    wanted_upgrade(headers)
        .filter(|protocol| is_websocket(Some(protocol)) || !rules.injects_to(target))
}

fn is_websocket(protocol: Option<&HeaderValue>) -> bool {
    protocol.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Takes the offer of extensions out: with one, payloads would be compressed.
pub(crate) fn refuse_extensions(headers: &mut HeaderMap) {
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
}

/// What is swapped in the frames of a WebSocket.
#[derive(Debug)]
pub(crate) struct Looked {
    outward: Frames,
    inward: Frames,
    rules: Arc<Rules>,
    watch: Arc<RequestReport>,
}

/// Why a change of protocol cannot be looked into.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotAsked;

/// How the connection behind this answer is looked into; not at all where no secret is concerned.
pub(crate) fn looked_into(
    answer: &HeaderMap,
    rules: &Arc<Rules>,
    target: &Target,
    scheme: Scheme,
    watch: &Arc<RequestReport>,
) -> Result<Option<Looked>, NotAsked> {
    let clear = scheme == Scheme::Plain;
    let outward = Needles::for_request(rules.clone(), target, clear);
    let inward = Needles::for_response(rules.clone(), target);
    let websocket = is_websocket(answer.get(UPGRADE));
    if !websocket && rules.injects_to(target) {
        return Err(NotAsked);
    }
    if !websocket || (outward.is_empty() && inward.is_empty()) {
        return Ok(None);
    }
    if answer.contains_key(SEC_WEBSOCKET_EXTENSIONS) {
        return Err(NotAsked);
    }
    Ok(Some(Looked {
        outward: Frames::new(Sender::Client, outward),
        inward: Frames::new(Sender::Server, inward),
        rules: rules.clone(),
        watch: watch.clone(),
    }))
}

/// Joins both ends once they have changed the protocol.
pub(crate) fn join(
    session: &Arc<Session>,
    client: OnUpgrade,
    server: OnUpgrade,
    upstream: Upstream,
    looked: Option<Looked>,
) {
    let session = session.clone();
    let flow = session.flow();
    let sandbox = session.sandbox.clone();
    sandbox.spawn("egress upgrade", async move {
        let target = upstream.target().clone();
        let address = upstream.address;
        let (Ok(client), Ok(server)) = tokio::join!(client, server) else {
            tracing::debug!(%target, "one end left while the protocol changed");
            return;
        };
        // Inside a tunnel its connection counts already.
        let counted = flow.as_ref().filter(|_| session.inside.is_none());
        let counted = counted.map_or_else(Arc::default, |flow| flow.traffic().clone());
        let client = Counted::new(TokioIo::new(client), counted);
        let server = TokioIo::new(server);
        let under = looked.as_ref().map(|looked| looked.rules.clone());
        let forbidden = session.sandbox.until_forbidden(|rules| {
            let same = |under: &Arc<Rules>| under.gives_alike(rules, &target);
            may_stay(rules, &target, address) && under.as_ref().is_none_or(same)
        });
        tokio::select! {
            () = carry(&session, &target, client, server, looked) => {}
            () = forbidden => {
                if let Some(flow) = &flow {
                    flow.closed(BY_POLICY);
                }
                tracing::info!(%target, "upgraded connection closed by new rules");
            }
        }
        // The driver has handed its stream over; it ends with this.
        drop(upstream);
    });
}

async fn carry<C, S>(
    session: &Session,
    target: &Target,
    mut client: C,
    mut server: S,
    looked: Option<Looked>,
) where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(looked) = looked else {
        let moved = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        tracing::debug!(%target, ?moved, "upgraded connection ended");
        return;
    };
    let watch = looked.watch.clone();
    let Some(broken) = carry::frames(client, server, looked.outward, looked.inward, &watch).await
    else {
        tracing::debug!(%target, "WebSocket ended");
        return;
    };
    tracing::info!(%target, ?broken, "WebSocket broken off");
    match broken {
        Broken::Leak(secret) => watch.leaked(secret, "websocket"),
        Broken::Malformed => {
            let rules = session.sandbox.rules();
            let (host, reason) = (target.to_string(), Reason::Malformed.as_str());
            let denied = EgressDecision::Denied;
            session
                .sandbox
                .report(&rules, denied, host, None, Some(reason));
        }
    }
}

/// The `101` for the client, masked.
pub(crate) fn answer(response: Response<Incoming>, needles: &Needles) -> Response<ResponseBody> {
    let (mut parts, _) = response.into_parts();
    crate::mask::mask_head(&mut parts, needles);
    let protocol = parts.headers.get(UPGRADE).cloned();
    strip_hop(&mut parts.headers);
    let upgrade = HeaderValue::from_static("upgrade");
    parts.headers.insert(CONNECTION, upgrade);
    if let Some(protocol) = protocol {
        parts.headers.insert(UPGRADE, protocol);
    }
    Response::from_parts(parts, Either::Left(Full::new(Bytes::new())))
}
