//! `CONNECT`: judged by its target, answered 200 only when the other end stands. Then it is looked into if a secret is
//! given to that host or its client speaks HTTP without TLS, and else copied blindly behind its first words.

use crate::accept::{Session, may_stay};
use crate::body::ResponseBody;
use crate::decide::{Reason, Verdict, judge};
use crate::dial::{Dialled, dial};
use crate::flow::{BY_POLICY, Flow};
use crate::gate::{Fate, Judge, farewell};
use crate::hosts::Named;
use crate::naming::{Naming, compare, is_looked_at, is_served};
use crate::opening::Opened;
use crate::plain::{self, Plain};
use crate::refuse::Refusal;
use crate::rewind::Rewind;
use crate::settings::Rules;
use crate::target::Target;
use crate::traffic::Counted;
use crate::upstream::Slot;
use crate::{intercept, tunnel};
use bytes::Bytes;
use handler_types::egress::EgressDecision;
use http::{Request, Response, Version};
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::sync::{Arc, OnceLock};
use tokio::net::UnixStream;

/// Answers a `CONNECT`.
pub(crate) async fn answer(
    session: &Arc<Session>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    let text = request
        .uri()
        .authority()
        .map(|authority| authority.as_str().to_owned())
        .unwrap_or_default();
    if !request.body().is_end_stream() {
        // Part of the tunnel for one reader, in front of it for another.
        return Err(Refusal::bad_target(&text, "CONNECT has no body"));
    }
    if request.uri().scheme().is_some() {
        return Err(Refusal::bad_target(&text, "CONNECT takes HOST:PORT"));
    }
    let target = Target::parse(&text, None).map_err(|error| Refusal::unreadable(&text, error))?;
    let rules = session.sandbox.rules();
    let decision = match judge(&rules.policy, &target) {
        Verdict::Denied(reason) => return Err(Refusal::denied(&target, reason)),
        Verdict::Allowed => EgressDecision::Allowed,
        Verdict::Unlisted => EgressDecision::Unlisted,
    };
    session.set_current(&target, None);
    let dialled = dial(&session.sandbox, &rules, &target).await;
    let dialled = dialled.map_err(|error| {
        let refusal = Refusal::dial(&target, &error);
        if refusal.denied.is_none() {
            session.begin(&rules, decision, &target, Arc::default());
        }
        refusal
    })?;
    session.begin(&rules, decision, &target, Arc::default());
    let flow = session.take_flow();
    let upgrade = hyper::upgrade::on(request);
    let after = session.clone();
    session.sandbox.spawn("egress tunnel", async move {
        match upgrade.await {
            Ok(upgraded) => run(&after, upgraded, dialled, target, &rules, flow).await,
            Err(error) => tracing::debug!(%error, "the client left before its tunnel stood"),
        }
    });
    Ok(Response::new(Either::Left(Full::new(Bytes::new()))))
}

async fn run(
    session: &Arc<Session>,
    upgraded: Upgraded,
    dialled: Dialled,
    target: Target,
    rules: &Rules,
    flow: Option<Arc<Flow>>,
) {
    let Some(flow) = flow else { return };
    let Ok(parts) = upgraded.downcast::<TokioIo<Counted<UnixStream>>>() else {
        tracing::error!("a tunnel is not on the connection it was asked on");
        return;
    };
    let client = parts.io.into_inner();
    flow.traffic().sent(parts.read_buf.len());
    if rules.injects_to(&target) {
        let client = client.also(flow.traffic().clone());
        let client = Rewind::new(parts.read_buf, client);
        session.keep_flow(flow);
        // Boxed, as all that most tunnels never become: the room would be taken from the beginning.
        Box::pin(intercept::run(
            session,
            client,
            dialled,
            target,
            rules.generation,
        ))
        .await;
        return;
    }
    // A copy: the few bytes, if any, would keep the whole buffer of the connection's heads.
    let early = Bytes::copy_from_slice(&parts.read_buf);
    drop(parts.read_buf);
    let mut ends = (client.into_inner(), dialled);
    let http = run_blind(session, &mut ends, early, &target, &flow).await;
    let Some((bytes, version)) = http else { return };
    // It was counted up to here by the tunnel.
    let client = Counted::new(ends.0, session.sandbox.traffic.clone());
    let client = Rewind::new(bytes.into(), client.also(flow.traffic().clone()));
    session.keep_flow(flow);
    let plain = Plain {
        target,
        named: Named::by_policy(),
        version,
    };
    let upstream = Slot::Dialled(ends.1, rules.generation);
    Box::pin(plain::serve(session, plain, client, upstream)).await;
}

/// Copies both ways until the tunnel ends; gives the client's first bytes if they are HTTP, and nothing was copied.
async fn run_blind(
    session: &Session,
    (client, dialled): &mut (UnixStream, Dialled),
    early: Bytes,
    target: &Target,
    flow: &Flow,
) -> Option<(Vec<u8>, Version)> {
    let sandbox = &session.sandbox;
    let address = dialled.address;
    let said = OnceLock::new();
    let judge = |opened| judge_opening(session, target, said.get_or_init(|| opened));
    let judge: Option<Judge<'_>> = match is_looked_at(&sandbox.rules()) {
        true => Some(&judge),
        false => None,
    };
    // A host that is given a secret from now on must be reached by a new tunnel, one that is looked into.
    let forbidden = sandbox.until_forbidden(|rules| {
        let named = said.get().map(|said| compare(&rules.policy, target, said));
        may_stay(rules, target, address)
            && !rules.injects_to(target)
            && !matches!(named, Some(Naming::Refused(_)))
    });
    let counters = [&*sandbox.traffic, &**flow.traffic()];
    let shares = &sandbox.shares;
    let ended = tokio::select! {
        ended = tunnel::copy(client, &mut dialled.stream, early, counters, judge, shares) => ended,
        () = forbidden => {
            flow.closed(BY_POLICY);
            tracing::info!(sandbox = %sandbox.id, %target, "tunnel closed by new rules");
            return None;
        }
    };
    tracing::debug!(sandbox = %sandbox.id, %target, moved = ?ended.moved, refused = ?ended.refused, "copied");
    if let Some(reason) = ended.refused {
        flow.closed(reason.as_str());
        refuse(session, client, target, reason, ended.moved.back == 0);
    }
    ended.http
}

/// Whether first bytes may pass under the rules at this moment.
fn judge_opening(session: &Session, target: &Target, opened: &Opened) -> Result<Fate, Reason> {
    let rules = session.sandbox.rules();
    let naming = compare(&rules.policy, target, opened);
    if let Naming::Refused(reason) = naming {
        return Err(reason);
    }
    if is_served(&rules.policy, opened) {
        // Judged again there, and reported.
        return Ok(Fate::Served(match opened {
            Opened::Http2 => Version::HTTP_2,
            _ => Version::HTTP_11,
        }));
    }
    if let Naming::Tolerated(reason) = naming {
        let (decision, host) = (EgressDecision::Unlisted, target.to_string());
        let reason = Some(reason.as_str());
        session.sandbox.report(&rules, decision, host, None, reason);
    }
    Ok(Fate::Copied)
}

/// Reports it, and tells the client if nothing else has been told to it.
fn refuse(session: &Session, client: &UnixStream, target: &Target, reason: Reason, silent: bool) {
    let rules = session.sandbox.rules();
    let (decision, host) = (reason.decision(), target.to_string());
    session
        .sandbox
        .report(&rules, decision, host, None, Some(reason.as_str()));
    if silent && let Err(error) = client.try_write(&farewell(target, reason)) {
        tracing::debug!(%error, "the client is not told why its tunnel ends");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The room that a function's work takes from its beginning to its end, bytes.
    fn room<A, B, C, D, E, F, W: Future>(_: impl Fn(A, B, C, D, E, F) -> W) -> usize {
        size_of::<W>()
    }

    #[test]
    fn a_tunnel_that_waits_takes_little_room() {
        let taken = room(run);
        assert!(taken <= 4 * 1024, "{taken} bytes");
    }
}
