//! A request as it goes out: fields of the client's hop gone, its head swapped, its body swapped as it streams.

use crate::body::{RequestBody, Rewritten};
use crate::coding::{UnknownCoding, ask_plain, coding_of};
use crate::content::form_of;
use crate::decide::Reason;
use crate::headers::strip_hop;
use crate::inject::{HeadError, path_of, rewrite_head};
use crate::refuse::Refusal;
use crate::report::RequestReport;
use crate::sandbox::Sandbox;
use crate::scan::{Needles, Scanner};
use crate::settings::Rules;
use crate::target::Target;
use crate::upgrade;
use crate::upstream::Scheme;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderValue, IF_RANGE, RANGE, UPGRADE,
};
use http::{Request, Uri};
use hyper::body::{Body as _, Incoming};
use std::sync::Arc;

/// The request as it goes out, and the secrets given in its head.
pub(crate) fn prepare(
    request: Request<Incoming>,
    sandbox: &Sandbox,
    rules: &Arc<Rules>,
    target: &Target,
    scheme: Scheme,
    watch: &Arc<RequestReport>,
) -> Result<(Request<RequestBody>, Vec<usize>), Refusal> {
    let (mut parts, body) = request.into_parts();
    let protocol = upgrade::allowed(&parts.headers, rules, target);
    // Before the fields of this hop go: a transfer coding is one to be understood, too.
    let coding = coding_of(&parts.headers);
    clear_hop(&mut parts.headers, rules, target, protocol.is_some());
    let clear = scheme == Scheme::Plain;
    let needles = Needles::for_request(rules.clone(), target, clear);
    let path = path_of(&parts.uri);
    let (path, given) = rewrite_head(&mut parts.headers, &path, &needles)
        .map_err(|error| refuse_head(error, target, watch))?;
    parts.uri = Uri::from(path);
    if let Some(protocol) = protocol {
        let upgrade = HeaderValue::from_static("upgrade");
        parts.headers.insert(CONNECTION, upgrade);
        parts.headers.insert(UPGRADE, protocol);
    }
    let needles = needles.in_form(form_of(&parts.headers));
    let unread = !needles.is_empty() && !body.is_end_stream();
    let mut body = Rewritten::new(body, Scanner::new(needles), Some(watch.clone()));
    match coding {
        Ok(Some(coding)) if unread => {
            let room = sandbox.room_for(coding);
            body.decode(
                coding,
                true,
                room.map_err(|busy| Refusal::busy(target, busy))?,
            );
        }
        Err(UnknownCoding) if unread => return Err(Refusal::denied(target, Reason::Coding)),
        Ok(_) | Err(UnknownCoding) => {}
    }
    if body.size_hint().exact().is_none() {
        // What was promised may not be what comes out.
        parts.headers.remove(CONTENT_LENGTH);
    }
    Ok((Request::from_parts(parts, body), given))
}

/// Takes out what concerns the client's hop only, and what would have answers come unreadable.
fn clear_hop(headers: &mut HeaderMap, rules: &Rules, target: &Target, upgrades: bool) {
    strip_hop(headers);
    // We have said "continue" ourselves.
    headers.remove(EXPECT);
    if upgrades && !rules.secrets.is_empty() {
        upgrade::refuse_extensions(headers);
    }
    if rules.injects_to(target) {
        ask_plain(headers);
        // A part of a value is not a value, and would not be masked.
        headers.remove(RANGE);
        headers.remove(IF_RANGE);
    }
}

fn refuse_head(error: HeadError, target: &Target, watch: &RequestReport) -> Refusal {
    match error {
        HeadError::Target => Refusal::bad_target(
            &target.to_string(),
            "with its secret in it the request line is not valid",
        ),
        HeadError::Leak(secret, place) => {
            watch.leaked(secret, place);
            Refusal::leak(target, watch.leak().unwrap_or_default())
        }
    }
}
