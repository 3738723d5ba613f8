//! Which hosts the requests inside a tunnel may name: the tunnel's only where a secret is given to it, else whatever
//! its first bytes may name (see `naming`). Each request is judged by itself.

use crate::accept::{Inside, Session};
use crate::decide::Reason;
use crate::naming::{Naming, compare};
use crate::opening::Opened;
use crate::refuse::Refusal;
use crate::settings::Rules;
use crate::target::Target;
use crate::upstream::Scheme;
use handler_types::egress::EgressDecision;
use http::header::{HOST, HeaderValue};
use http::{Request, StatusCode, Version};
use std::sync::{Mutex, PoisonError};

/// Names remembered that a tunnel's requests have said.
const REMEMBERED: usize = 16;

/// What is compared in a tunnel.
#[derive(Debug)]
pub(crate) enum Named {
    /// The tunnel's host and no other: it is given a secret.
    Exactly,
    /// What the policy lets a client name; what was named is kept, to be judged again under new rules.
    ByPolicy(Mutex<Vec<String>>),
}

impl Named {
    /// Nothing was named yet.
    pub(crate) fn by_policy() -> Self {
        Self::ByPolicy(Mutex::default())
    }

    /// Whether a tunnel that has come so far may go on under these rules.
    pub(crate) fn may_stay(&self, rules: &Rules, target: &Target) -> bool {
        let Self::ByPolicy(said) = self else {
            return true;
        };
        let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A host that is given a secret from now on must be reached by a new tunnel, one that is looked into.
        let named = compare(&rules.policy, target, &Opened::Http(said));
        !rules.injects_to(target) && !matches!(named, Naming::Refused(_))
    }
}

/// Checks what a request names, and leaves one `Host` in it that says it.
pub(crate) fn check<B>(
    session: &Session,
    inside: &Inside,
    request: &mut Request<B>,
) -> Result<(), Refusal> {
    match &inside.named {
        Named::Exactly if request.version() == Version::HTTP_2 => check_authority(request, inside),
        Named::Exactly => check_host(request, &inside.target),
        Named::ByPolicy(said) => check_by_policy(session, inside, said, request),
    }
}

fn mismatch<B>(request: &Request<B>, target: &Target) -> Refusal {
    let refusal = Refusal::denied(target, Reason::Host);
    match request.version() {
        Version::HTTP_2 => Refusal {
            status: StatusCode::MISDIRECTED_REQUEST,
            ..refusal
        },
        _ => refusal,
    }
}

/// `:authority` must be the tunnel's host, also if the certificate of another tunnel's fits it; a client
/// that tries is told that it is on the wrong connection. `Host` may only repeat it.
fn check_authority<B>(request: &mut Request<B>, inside: &Inside) -> Result<(), Refusal> {
    let target = &inside.target;
    let is_target =
        |text: &str| Target::parse(text, Some(target.port)).is_ok_and(|given| given == *target);
    let repeated = |host: &HeaderValue| host.to_str().is_ok_and(is_target);
    let scheme = match inside.scheme {
        Scheme::Plain => "http",
        Scheme::Tls => "https",
    };
    let uri = request.uri();
    let authority = uri
        .authority()
        .filter(|authority| is_target(authority.as_str()))
        .filter(|_| uri.scheme_str() == Some(scheme))
        .filter(|_| request.headers().get_all(HOST).iter().all(repeated))
        .and_then(|authority| HeaderValue::try_from(authority.as_str()).ok());
    let authority = authority.ok_or_else(|| mismatch(request, target))?;
    request.headers_mut().insert(HOST, authority);
    Ok(())
}

/// `Host`, and the authority of an absolute request target, must be the tunnel's host.
fn check_host<B>(request: &Request<B>, target: &Target) -> Result<(), Refusal> {
    let is_target =
        |text: &str| Target::parse(text, Some(target.port)).is_ok_and(|given| given == *target);
    let mut hosts = request.headers().get_all(HOST).iter();
    let one = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(is_target),
        _ => false,
    };
    let absolute = request
        .uri()
        .authority()
        .is_none_or(|authority| is_target(authority.as_str()));
    if one && absolute {
        Ok(())
    } else {
        Err(mismatch(request, target))
    }
}

fn check_by_policy<B>(
    session: &Session,
    inside: &Inside,
    said: &Mutex<Vec<String>>,
    request: &mut Request<B>,
) -> Result<(), Refusal> {
    let target = &inside.target;
    let names = names(request).ok_or_else(|| mismatch(request, target))?;
    let rules = session.sandbox.rules();
    let tolerated = match compare(&rules.policy, target, &Opened::Http(names.clone())) {
        Naming::Fits => None,
        Naming::Tolerated(reason) => Some(reason),
        Naming::Refused(_) => return Err(mismatch(request, target)),
    };
    // The authority counts where there is one; who names nobody means the tunnel's host.
    let host = names.last().cloned().unwrap_or_else(|| target.to_string());
    let host = HeaderValue::try_from(host).map_err(|_| mismatch(request, target))?;
    request.headers_mut().insert(HOST, host);
    let news = remember(said, names);
    if let Some(reason) = tolerated.filter(|_| news) {
        let (decision, host) = (EgressDecision::Unlisted, target.to_string());
        let reason = Some(reason.as_str());
        session.sandbox.report(&rules, decision, host, None, reason);
    }
    Ok(())
}

/// Every host a request names, the authority last; `None` if it cannot be read in one way only.
fn names<B>(request: &Request<B>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for host in request.headers().get_all(HOST) {
        names.push(host.to_str().ok()?.to_owned());
    }
    let authority = request.uri().authority();
    let fits = match (request.version(), names.len()) {
        (Version::HTTP_2, 0 | 1) => authority.is_some(),
        (Version::HTTP_10, 0) | (_, 1) => true,
        _ => false,
    };
    if let Some(authority) = authority {
        // Whatever the policy, user information is none of a host.
        Target::parse(authority.as_str(), Some(80)).ok()?;
        names.push(authority.as_str().to_owned());
    }
    fits.then_some(names)
}

/// Whether a name was not known before.
fn remember(said: &Mutex<Vec<String>>, names: Vec<String>) -> bool {
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    let before = said.len();
    for name in names {
        if !said.contains(&name) {
            said.push(name);
        }
    }
    let news = said.len() > before;
    let more = said.len().saturating_sub(REMEMBERED);
    said.drain(..more);
    news
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, uri: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).expect("request")
    }

    #[test]
    fn a_request_names_hosts_in_one_way_only() {
        let (old, one, two) = (Version::HTTP_10, Version::HTTP_11, Version::HTTP_2);
        for (version, uri, hosts, wanted) in [
            (one, "/", &["a.com"][..], Some(&["a.com"][..])),
            (one, "/", &[], None),
            (one, "/", &["a.com", "a.com"], None),
            (old, "/", &[], Some(&[])),
            (old, "/", &["a.com"], Some(&["a.com"])),
            (one, "http://b.com/", &["a.com"], Some(&["a.com", "b.com"])),
            (one, "http://b.com/", &[], None),
            (one, "http://u@b.com/", &["b.com"], None),
            (two, "http://b.com/", &[], Some(&["b.com"])),
            (two, "http://b.com/", &["a.com"], Some(&["a.com", "b.com"])),
            (two, "http://b.com/", &["b.com", "b.com"], None),
            (two, "/", &["b.com"], None),
        ] {
            let found = names(&request(version, uri, hosts));
            let wanted = wanted.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            assert_eq!(found, wanted, "{version:?} {uri} {hosts:?}");
        }
    }

    #[test]
    fn what_was_named_is_remembered_up_to_a_bound() {
        let said = Mutex::default();
        assert!(remember(&said, vec!["a.com".to_owned()]));
        assert!(!remember(&said, vec!["a.com".to_owned()]));
        for at in 0..REMEMBERED * 2 {
            assert!(remember(&said, vec![format!("h{at}.com")]));
        }
        assert_eq!(said.lock().expect("names").len(), REMEMBERED);
    }
}
