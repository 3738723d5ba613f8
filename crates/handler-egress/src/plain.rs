//! HTTP without TLS inside a tunnel, in either version: served request by request, over the connection that was made for
//! the tunnel.

use crate::accept::{self, Inside, Session};
use crate::hosts::Named;
use crate::rewind::Rewind;
use crate::streams;
use crate::target::Target;
use crate::traffic::Counted;
use crate::upstream::{Scheme, Slot, open};
use http::Version;
use tokio::net::UnixStream;

/// What such a tunnel is.
#[derive(Debug)]
pub(crate) struct Plain {
    /// Where it leads.
    pub(crate) target: Target,
    /// What its requests may name.
    pub(crate) named: Named,
    /// What the client speaks.
    pub(crate) version: Version,
}

/// Serves it until it ends or is no longer allowed.
pub(crate) async fn serve(
    session: &Session,
    plain: Plain,
    client: Rewind<Counted<UnixStream>>,
    upstream: Slot,
) {
    let inside = Inside {
        target: plain.target,
        scheme: Scheme::Plain,
        named: plain.named,
    };
    if plain.version != Version::HTTP_2 {
        accept::serve(session.inner(inside, upstream), client).await;
        return;
    }
    let Ok(room) = session.sandbox.shares.streaming.try_take(1) else {
        tracing::info!(sandbox = %session.sandbox.id, "too many connections of HTTP/2");
        return;
    };
    // Nobody can ask the server what it speaks: the client knows, or it would not have begun so.
    let upstream = match upstream {
        Slot::Open(upstream) => Some(upstream),
        Slot::Dialled(dialled, generation) => {
            let (shared, scheme) = (&session.sandbox.shared, Scheme::Plain);
            let opened = open(shared, dialled, &inside.target, scheme, generation, true).await;
            opened
                .inspect_err(|error| tracing::debug!(%error, "made anew when asked for"))
                .ok()
        }
        Slot::Empty => None,
    };
    streams::serve(session.inner_shared(inside, upstream, room), client).await;
}
