//! `CONNECT`: judged by its target, answered 200 only when the other end stands, then copied blindly,
//! or looked into if a secret is given to that host.

use crate::accept::{Session, may_stay};
use crate::body::ResponseBody;
use crate::decide::{Verdict, judge};
use crate::dial::{Dialled, dial};
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
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
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
            session.report(&rules, decision, &target);
        }
        refusal
    })?;
    session.report(&rules, decision, &target);
    let upgrade = hyper::upgrade::on(request);
    let after = session.clone();
    session.sandbox.spawn("egress tunnel", async move {
        match upgrade.await {
            Ok(upgraded) => run(&after, upgraded, dialled, target, &rules).await,
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
) {
    let Ok(parts) = upgraded.downcast::<TokioIo<Counted<UnixStream>>>() else {
        tracing::error!("a tunnel is not on the connection it was asked on");
        return;
    };
    let client = parts.io.into_inner();
    if rules.injects_to(&target) {
        let client = Rewind::new(parts.read_buf, client);
        intercept::run(session, client, dialled, target, rules.generation).await;
        return;
    }
    // A host that is given a secret from now on must be reached by a new tunnel, one that is looked into.
    let address = dialled.address;
    let forbidden = session
        .sandbox
        .until_forbidden(|rules| may_stay(rules, &target, address) && !rules.injects_to(&target));
    tokio::select! {
        moved = tunnel::copy(client.into_inner(), dialled.stream, &parts.read_buf, &session.sandbox.traffic) => {
            tracing::debug!(sandbox = %session.sandbox.id, %target, ?moved, "tunnel ended");
        }
        () = forbidden => {
            tracing::info!(sandbox = %session.sandbox.id, %target, "tunnel closed by new rules");
        }
    }
}
