//! One request and its response, judged, swapped, streamed. The same for forwarded requests and for those
//! inside intercepted tunnels.

use crate::accept::Session;
use crate::body::{RequestBody, ResponseBody, Rewritten};
use crate::coding::{UnknownCoding, ask_plain, coding_of};
use crate::content::form_of;
use crate::decide::{Reason, Verdict, judge};
use crate::headers::strip_hop;
use crate::inject::{HeadError, path_of, rewrite_head};
use crate::mask::mask;
use crate::obtain::{fresh, obtain};
use crate::refuse::Refusal;
use crate::report::RequestReport;
use crate::scan::{Needles, Scanner};
use crate::settings::Rules;
use crate::target::Target;
use crate::upgrade::{self, NotAsked};
use crate::upstream::{Scheme, Upstream};
use handler_types::egress::EgressDecision;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
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
    let (request, given) = prepare(request, &rules, target, scheme, &watch)?;
    let upstream = obtain(session, &rules, target, scheme).await;
    if report && !matches!(&upstream, Err(refusal) if refusal.denied.is_some()) {
        session.begin(&rules, decision, target, watch.traffic().clone());
    }
    watch.given(&given);
    let (upstream, reused) = upstream?;
    let (mut response, upstream) =
        send(session, &rules, upstream, reused, request, target, &watch).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else {
            return Err(Refusal::unreachable(
                target,
                "it changed the protocol unasked",
            ));
        };
        let looked = upgrade::looked_into(response.headers(), &rules, target, scheme, &watch)
            .map_err(|NotAsked| {
                Refusal::unreachable(target, "it changed the protocol to one not asked for")
            })?;
        let server = hyper::upgrade::on(&mut response);
        upgrade::join(session, client, server, upstream, looked);
        let needles = Needles::for_response(rules, target);
        return Ok(upgrade::answer(response, &needles));
    }
    // Before the fields of this hop go: a transfer coding is one to be understood, too.
    let masked = mask(response, Needles::for_response(rules, target));
    let mut response = masked.map_err(|UnknownCoding| Refusal::coded_answer(target))?;
    session.keep(upstream);
    strip_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response)
}

/// The request as it goes out, and the secrets given in its head.
fn prepare(
    request: Request<Incoming>,
    rules: &Arc<Rules>,
    target: &Target,
    scheme: Scheme,
    watch: &Arc<RequestReport>,
) -> Result<(Request<RequestBody>, Vec<usize>), Refusal> {
    let (mut parts, body) = request.into_parts();
    let upgrade = upgrade::allowed(&parts.headers, rules, target);
    let coding = coding_of(&parts.headers);
    strip_hop(&mut parts.headers);
    // We have said "continue" ourselves.
    parts.headers.remove(EXPECT);
    if upgrade.is_some() && !rules.secrets.is_empty() {
        upgrade::refuse_extensions(&mut parts.headers);
    }
    if rules.injects_to(target) {
        ask_plain(&mut parts.headers);
    }
    let clear = scheme == Scheme::Plain;
    let needles = Needles::for_request(rules.clone(), target, clear);
    let path = path_of(&parts.uri);
    let (path, given) =
        rewrite_head(&mut parts.headers, &path, &needles).map_err(|error| match error {
            HeadError::Target => Refusal::bad_target(
                &target.to_string(),
                "with its secret in it the request line is not valid",
            ),
            HeadError::Leak(secret, place) => {
                watch.leaked(secret, place);
                Refusal::leak(target, watch.leak().unwrap_or_default())
            }
        })?;
    parts.uri = Uri::from(path);
    if let Some(protocol) = upgrade {
        let upgrade = HeaderValue::from_static("upgrade");
        parts.headers.insert(CONNECTION, upgrade);
        parts.headers.insert(UPGRADE, protocol);
    }
    let needles = needles.in_form(form_of(&parts.headers));
    let unread = !needles.is_empty() && !body.is_end_stream();
    let mut body = Rewritten::new(body, Scanner::new(needles), Some(watch.clone()));
    match coding {
        Ok(Some(coding)) => {
            body.decode(coding, true);
        }
        Err(UnknownCoding) if unread => return Err(Refusal::denied(target, Reason::Coding)),
        Ok(None) | Err(UnknownCoding) => {}
    }
    if body.size_hint().exact().is_none() {
        // What was promised may not be what comes out.
        parts.headers.remove(CONTENT_LENGTH);
    }
    Ok((Request::from_parts(parts, body), given))
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
