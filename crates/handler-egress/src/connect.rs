//! `CONNECT`: judged by its target, answered 200 only when the other end stands, then copied blindly
//! behind its first words, or looked into if a secret is given to that host.

use crate::accept::{Session, may_stay};
use crate::body::ResponseBody;
use crate::decide::{Reason, Verdict, judge};
use crate::dial::{Dialled, dial};
use crate::flow::{BY_POLICY, Flow};
use crate::gate::{Judge, farewell};
use crate::naming::{Naming, compare, is_compared};
use crate::opening::Opened;
use crate::refuse::Refusal;
use crate::rewind::Rewind;
use crate::settings::Rules;
use crate::target::Target;
use crate::traffic::Counted;
use crate::{intercept, tunnel};
use bytes::Bytes;
use handler_types::egress::EgressDecision;
use http::{Request, Response};
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
    let dialled = dial(&session.sandbox.shared, &rules, &target).await;
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
        intercept::run(session, client, dialled, target, rules.generation).await;
        return;
    }
    run_blind(
        session,
        client.into_inner(),
        &parts.read_buf,
        dialled,
        &target,
        &flow,
    )
    .await;
}

async fn run_blind(
    session: &Session,
    mut client: UnixStream,
    early: &[u8],
    dialled: Dialled,
    target: &Target,
    flow: &Flow,
) {
    let sandbox = &session.sandbox;
    let address = dialled.address;
    let said = OnceLock::new();
    let judge = |opened| judge_opening(session, target, said.get_or_init(|| opened));
    let judge: Option<Judge<'_>> = match is_compared(&sandbox.rules().policy) {
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
    let limits = &sandbox.shared.limits;
    tokio::select! {
        ended = tunnel::copy(&mut client, dialled.stream, early, counters, judge, limits) => {
            tracing::debug!(sandbox = %sandbox.id, %target, ?ended, "tunnel ended");
            if let Some(reason) = ended.refused {
                flow.closed(reason.as_str());
                refuse(session, &client, target, reason, ended.moved.back == 0);
            }
        }
        () = forbidden => {
            flow.closed(BY_POLICY);
            tracing::info!(sandbox = %sandbox.id, %target, "tunnel closed by new rules");
        }
    }
}

/// Whether first bytes may pass under the rules at this moment.
fn judge_opening(session: &Session, target: &Target, opened: &Opened) -> Result<(), Reason> {
    let rules = session.sandbox.rules();
    match compare(&rules.policy, target, opened) {
        Naming::Fits => Ok(()),
        Naming::Refused(reason) => Err(reason),
        Naming::Tolerated(reason) => {
            let (decision, host) = (EgressDecision::Unlisted, target.to_string());
            let reason = Some(reason.as_str());
            session.sandbox.report(&rules, decision, host, None, reason);
            Ok(())
        }
    }
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
