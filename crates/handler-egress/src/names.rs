//! Whether a name may be looked up, for the resolver inside a sandbox:
//! `GET http://names.handler.internal/v1/names/<name>`.
//!
//! The answer is `204` or `404` and nothing else. No name is resolved here: nothing of the question leaves the machine, so
//! a lookup carries no bytes out, and addresses are checked when the name is dialled.

use crate::accept::Session;
use crate::body::ResponseBody;
use crate::decide::{Reason, Verdict, judge_name};
use crate::refuse::Refusal;
use crate::target::{Target, printable};
use bytes::Bytes;
use handler_types::egress::EgressDecision;
use handler_types::network::NAMES_HOST;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where names stand in the path.
const PREFIX: &str = "/v1/names/";
/// How long the same name is not reported again: resolvers ask twice for each address family, and again.
const QUIET: Duration = Duration::from_secs(60);
/// Refused names remembered per sandbox; further ones push out the oldest.
const REMEMBERED: usize = 1024;

/// Whether a request is for the filter itself.
pub(crate) fn is_asked(target: &Target) -> bool {
    target.port == 80 && target.name() == Some(NAMES_HOST)
}

/// Answers whether the name in the path may be looked up.
pub(crate) fn answer(
    session: &Session,
    request: &Request<Incoming>,
) -> Result<Response<ResponseBody>, Refusal> {
    let uri = request.uri();
    let asked = uri.path().strip_prefix(PREFIX);
    let asked = asked.filter(|_| uri.query().is_none() && request.method() == Method::GET);
    let Some(text) = asked else {
        let message = "names are asked for with GET /v1/names/NAME";
        return Err(Refusal {
            status: StatusCode::NOT_FOUND,
            ..Refusal::bad_target(NAMES_HOST, message)
        });
    };
    let rules = session.sandbox.rules();
    let (name, verdict) = match read(text) {
        Some(name) => (name.clone(), judge_name(&rules.policy, &name)),
        None => (printable(text), Verdict::Denied(Reason::Name)),
    };
    let Verdict::Denied(reason) = verdict else {
        return Ok(known());
    };
    let names = &session.sandbox.refused_names;
    if names.is_news(&name, rules.generation, Instant::now()) {
        let (denied, why) = (EgressDecision::Denied, Some(reason.as_str()));
        let sandbox = &session.sandbox;
        sandbox.report(&rules, denied, name.clone(), None, why);
    }
    Ok(Refusal::name(&name, reason).response())
}

/// A name in its one spelling; no address, no port.
fn read(text: &str) -> Option<String> {
    if text.contains(':') {
        return None;
    }
    let target = Target::parse(text, Some(80)).ok()?;
    target.name().map(str::to_owned)
}

fn known() -> Response<ResponseBody> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::new())));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

/// Names refused to a sandbox of late, so that each is reported once.
#[derive(Debug, Default)]
pub(crate) struct RefusedNames(Mutex<HashMap<String, Refused>>);

#[derive(Debug, Clone, Copy)]
struct Refused {
    told: Instant,
    generation: u64,
}

impl RefusedNames {
    /// Whether a refusal is to be reported: not, if the same rules refused the same name a short while ago.
    fn is_news(&self, name: &str, generation: u64, now: Instant) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |refused: &Refused| {
            refused.generation == generation && now.duration_since(refused.told) < QUIET
        };
        if names.get(name).is_some_and(recent) {
            return false;
        }
        if names.len() >= REMEMBERED {
            names.retain(|_, refused| recent(refused));
        }
        if names.len() >= REMEMBERED {
            let oldest = names.iter().min_by_key(|(_, refused)| refused.told);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                names.remove(&oldest);
            }
        }
        let refused = Refused {
            told: now,
            generation,
        };
        names.insert(name.to_owned(), refused);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_once_until_the_rules_or_the_minute_change() {
        let (names, now) = (RefusedNames::default(), Instant::now());
        assert!(names.is_news("a.example", 1, now));
        assert!(!names.is_news("a.example", 1, now + QUIET / 2));
        assert!(names.is_news("b.example", 1, now));
        assert!(names.is_news("a.example", 2, now + QUIET / 2));
        assert!(!names.is_news("a.example", 2, now + QUIET));
        assert!(names.is_news("a.example", 2, now + QUIET * 2));
    }

    #[test]
    fn a_flood_of_names_is_remembered_up_to_a_bound() {
        let (names, now) = (RefusedNames::default(), Instant::now());
        for at in 0..REMEMBERED * 2 {
            let later = now + Duration::from_micros(at as u64);
            assert!(names.is_news(&format!("h{at}.example"), 1, later));
        }
        assert_eq!(names.0.lock().expect("names").len(), REMEMBERED);
        let later = now + QUIET / 2;
        let last = format!("h{}.example", REMEMBERED * 2 - 1);
        assert!(!names.is_news(&last, 1, later));
        assert!(names.is_news("h0.example", 1, later));
    }

    #[test]
    fn only_a_name_in_its_one_spelling_is_one() {
        for (text, wanted) in [
            ("a.example", Some("a.example")),
            ("A.Example", Some("a.example")),
            ("_srv.a.example", Some("_srv.a.example")),
            ("", None),
            ("a.example.", None),
            ("a.example:443", None),
            ("a/b", None),
            ("a%2eexample", None),
            ("10.0.0.1", None),
            ("127.1", None),
            ("[::1]", None),
            ("u@a.example", None),
        ] {
            assert_eq!(read(text).as_deref(), wanted, "{text:?}");
        }
    }
}
