//! After `101`: bytes are copied both ways, unchanged, until both ends are done or the rules say no.

use crate::accept::{Session, may_stay};
use crate::body::ResponseBody;
use crate::flow::BY_POLICY;
use crate::headers::strip_hop;
use crate::traffic::Counted;
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
        let mut client = Counted::new(TokioIo::new(client), counted);
        let mut server = TokioIo::new(server);
        let forbidden = session
            .sandbox
            .until_forbidden(|rules| may_stay(rules, &target, address));
        tokio::select! {
            moved = tokio::io::copy_bidirectional(&mut client, &mut server) => {
                tracing::debug!(%target, ?moved, "upgraded connection ended");
            }
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
