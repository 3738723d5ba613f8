//! After `101`: bytes are copied both ways, unchanged, until both ends are done or the rules say no.

use crate::accept::{Session, may_stay};
use crate::body::ResponseBody;
use crate::headers::strip_hop;
use crate::upstream::Upstream;
use bytes::Bytes;
use http::Response;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;

/// Joins both ends once they have changed the protocol.
pub(crate) fn join(
    session: &Arc<Session>,
    client: OnUpgrade,
    server: OnUpgrade,
    upstream: Upstream,
) {
    let session = session.clone();
    let sandbox = session.sandbox.clone();
    sandbox.spawn("egress upgrade", async move {
        let target = upstream.target().clone();
        let address = upstream.address;
        let (Ok(client), Ok(server)) = tokio::join!(client, server) else {
            tracing::debug!(%target, "one end left while the protocol changed");
            return;
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        let forbidden = session
            .sandbox
            .until_forbidden(|rules| may_stay(rules, &target, address));
        tokio::select! {
            moved = tokio::io::copy_bidirectional(&mut client, &mut server) => {
                tracing::debug!(%target, ?moved, "upgraded connection ended");
            }
            () = forbidden => tracing::info!(%target, "upgraded connection closed by new rules"),
        }
        // The driver has handed its stream over; it ends with this.
        drop(upstream);
    });
}

/// The `101` for the client.
pub(crate) fn answer(response: Response<Incoming>) -> Response<ResponseBody> {
    let (mut parts, _) = response.into_parts();
    let protocol = parts.headers.get(UPGRADE).cloned();
    strip_hop(&mut parts.headers);
    let upgrade = HeaderValue::from_static("upgrade");
    parts.headers.insert(CONNECTION, upgrade);
    if let Some(protocol) = protocol {
        parts.headers.insert(UPGRADE, protocol);
    }
    Response::from_parts(parts, Either::Left(Full::new(Bytes::new())))
}
