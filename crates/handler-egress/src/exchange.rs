//! One request and its response, judged, swapped, streamed. The same for forwarded requests and for those
//! inside intercepted tunnels.

use crate::accept::Session;
use crate::body::{RequestBody, ResponseBody};
use crate::decide::{Verdict, judge};
use crate::headers::strip_hop;
use crate::login;
use crate::mask::mask;
use crate::obtain::{fresh, obtain};
use crate::prepare::prepare;
use crate::refuse::Refusal;
use crate::report::RequestReport;
use crate::scan::Needles;
use crate::settings::Rules;
use crate::target::Target;
use crate::upgrade::{self, NotAsked};
use crate::upstream::{Scheme, Upstream};
use handler_types::egress::EgressDecision;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;

/// Sends a request to its destination and gives the response. With `report` the decision about the
/// destination becomes an event (inside a tunnel it has been one already).
pub(crate) async fn exchange(
    session: &Arc<Session>,
    mut request: Request<Incoming>,
    target: &Target,
    scheme: Scheme,
    report: bool,
) -> Result<Response<ResponseBody>, Refusal> {
    login::settled(&session.sandbox, target).await?;
    let rules = session.sandbox.rules();
    let decision = match judge(&rules.policy, target) {
        Verdict::Denied(reason) => return Err(Refusal::denied(target, reason)),
        Verdict::Allowed => EgressDecision::Allowed,
        Verdict::Unlisted => EgressDecision::Unlisted,
    };
    session.set_current(target, None);
    let client = upgrade::allowed(request.headers(), &rules, target)
        .map(|_| hyper::upgrade::on(&mut request));
    let watch = Arc::new(RequestReport::new(
        session.sandbox.clone(),
        rules.clone(),
        target.clone(),
    ));
    let (request, given) = prepare(request, &session.sandbox, &rules, target, scheme, &watch)?;
    let upstream = obtain(session, &rules, target, scheme).await;
    if report && !matches!(&upstream, Err(refusal) if refusal.denied.is_some()) {
        session.begin(&rules, decision, target, watch.traffic().clone());
    }
    watch.given(&given);
    let (upstream, reused) = upstream?;
    let outward = Outward {
        session: session.clone(),
        rules: rules.clone(),
        target: target.clone(),
        watch: watch.clone(),
        client,
    };
    if !login::renews_at(&rules, target) {
        return outward.finish(upstream, reused, request).await;
    }
    let work = outward.finish(upstream, reused, request);
    let done = login::to_the_end(watch, work).await;
    done.unwrap_or_else(|| Err(Refusal::unreachable(target, "the exchange broke off")))
}

/// A request on its way, with all that its answer is looked at by.
struct Outward {
    session: Arc<Session>,
    rules: Arc<Rules>,
    target: Target,
    watch: Arc<RequestReport>,
    /// The client's end, if it may change the protocol.
    client: Option<OnUpgrade>,
}

impl Outward {
    /// Sends it and gives the response as the sandbox may see it.
    async fn finish(
        self,
        upstream: Upstream,
        reused: bool,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let (session, rules, target, watch) =
            (&self.session, &self.rules, &self.target, &self.watch);
        let (mut response, upstream) =
            send(session, rules, upstream, reused, request, target, watch).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = self.client else {
                return Err(Refusal::unreachable(
                    target,
                    "it changed the protocol unasked",
                ));
            };
            let scheme = upstream.scheme;
            let looked = upgrade::looked_into(response.headers(), rules, target, scheme, watch)
                .map_err(|NotAsked| {
                    Refusal::unreachable(target, "it changed the protocol to one not asked for")
                })?;
            let server = hyper::upgrade::on(&mut response);
            upgrade::join(session, client, server, upstream, looked);
            let needles = Needles::for_response(rules.clone(), target);
            return Ok(upgrade::answer(response, &needles));
        }
        // Before the fields of this hop go: a transfer coding is one to be understood, too.
        let needles = Needles::for_response(rules.clone(), target);
        let response = mask(response, needles, target, &session.sandbox)?;
        session.keep(upstream);
        let mut response = login::answer(session, response, rules, target, watch).await?;
        strip_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }
}

/// Sends; a request that a kept connection did not take any more is sent once more on a new one.
async fn send(
    session: &Session,
    rules: &Rules,
    mut upstream: Upstream,
    reused: bool,
    request: Request<RequestBody>,
    target: &Target,
    watch: &RequestReport,
) -> Result<(Response<Incoming>, Upstream), Refusal> {
    let scheme = upstream.scheme;
    let mut error = match upstream.send(request).await {
        Ok(response) => return Ok((response, upstream)),
        Err(error) => error,
    };
    if let Some(request) = error.take_message().filter(|_| reused) {
        upstream = fresh(session, rules, target, scheme).await?;
        error = match upstream.send(request).await {
            Ok(response) => return Ok((response, upstream)),
            Err(error) => error,
        };
    }
    if let Some(secret) = watch.leak() {
        return Err(Refusal::leak(target, secret));
    }
    if watch.is_undecodable() {
        return Err(Refusal::undecodable(target));
    }
    tracing::debug!(%error, %target, "no response");
    Err(Refusal::unreachable(
        target,
        "the connection ended before a response came",
    ))
}
