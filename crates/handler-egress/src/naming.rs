//! Whether what a client says first in a blind tunnel names the host that the tunnel was asked for. Pure.
//!
//! An allow-list entry lets a sandbox reach a host, not whatever else answers at that host's address.
//! Decided on purpose:
//! - For a name the server name and `Host` must be that name. TLS without a server name passes: the
//!   address was resolved here for the tunnel's host, and nothing else is asked for.
//! - For an address they may be that address, or a name that the policy allows on this port as well.
//! - Encrypted Client Hello passes; the outer name is what is compared.
//! - Where the policy restricts no names (`open`), nothing is compared; where it only reports
//!   (`log-only`), a difference is reported and passes.

use crate::decide::{Policy, Reason, Verdict, judge};
use crate::opening::Opened;
use crate::target::Target;
use handler_types::network::Enforcement;

/// What comes of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The tunnel's host, or nobody.
    Fits,
    /// Somebody else, which is reported only.
    Tolerated(Reason),
    /// Somebody else.
    Refused(Reason),
}

/// Whether first bytes are looked at under this policy.
pub(crate) fn is_compared(policy: &Policy) -> bool {
    matches!(policy, Policy::Filtered { .. })
}

/// Compares what was said with the tunnel's target.
pub(crate) fn compare(policy: &Policy, target: &Target, opened: &Opened) -> Naming {
    let fits = |host: &str| may_name(policy, target, host);
    let reason = match opened {
        Opened::Malformed => return Naming::Refused(Reason::Malformed),
        Opened::Opaque => return Naming::Fits,
        Opened::Tls(name) if name.as_deref().is_none_or(fits) => return Naming::Fits,
        Opened::Tls(_) => Reason::Sni,
        Opened::Http(hosts) if hosts.iter().all(|host| fits(host)) => return Naming::Fits,
        Opened::Http(_) => Reason::Host,
    };
    match policy {
        Policy::Open => Naming::Fits,
        Policy::Filtered {
            enforcement: Enforcement::LogOnly,
            ..
        } => Naming::Tolerated(reason),
        _ => Naming::Refused(reason),
    }
}

fn may_name(policy: &Policy, target: &Target, host: &str) -> bool {
    let Ok(given) = Target::parse(host, Some(target.port)) else {
        return false;
    };
    let listed = target.name().is_none()
        && given.port == target.port
        && given.name().is_some()
        && judge(policy, &given) == Verdict::Allowed;
    given == *target || listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use Naming::{Fits, Refused, Tolerated};
    use handler_types::network::NetworkPolicy;

    fn policy(enforcement: Enforcement) -> Policy {
        let entries = ["a.com:443", "b.com:443", "10.0.0.1:443"];
        Policy::new(&NetworkPolicy::Filtered {
            allow: entries
                .iter()
                .map(|entry| entry.parse().expect(entry))
                .collect(),
            enforcement,
        })
    }

    fn tls(name: &str) -> Opened {
        Opened::Tls((!name.is_empty()).then(|| name.to_owned()))
    }

    fn http(hosts: &[&str]) -> Opened {
        Opened::Http(hosts.iter().map(|host| (*host).to_owned()).collect())
    }

    #[test]
    fn a_tunnel_s_first_words_must_name_its_host() {
        let policy = policy(Enforcement::Enforce);
        for (target, opened, wanted) in [
            ("a.com:443", tls("a.com"), Fits),
            ("a.com:443", tls(""), Fits),
            ("a.com:443", tls("b.com"), Refused(Reason::Sni)),
            ("a.com:443", tls("x.a.com"), Refused(Reason::Sni)),
            ("a.com:443", tls("a.com."), Refused(Reason::Sni)),
            ("a.com:443", tls("10.0.0.1"), Refused(Reason::Sni)),
            ("10.0.0.1:443", tls(""), Fits),
            ("10.0.0.1:443", tls("10.0.0.1"), Fits),
            ("10.0.0.1:443", tls("a.com"), Fits),
            ("10.0.0.1:443", tls("c.com"), Refused(Reason::Sni)),
            ("10.0.0.1:443", tls("10.0.0.2"), Refused(Reason::Sni)),
            ("10.0.0.1:444", tls("a.com"), Refused(Reason::Sni)),
            ("a.com:443", http(&["A.com"]), Fits),
            ("a.com:443", http(&["a.com:443"]), Fits),
            ("a.com:443", http(&[]), Fits),
            ("a.com:443", http(&["a.com:80"]), Refused(Reason::Host)),
            ("a.com:443", http(&[""]), Refused(Reason::Host)),
            (
                "a.com:443",
                http(&["a.com", "b.com"]),
                Refused(Reason::Host),
            ),
            (
                "a.com:443",
                http(&["a.com", "a.com@b.com"]),
                Refused(Reason::Host),
            ),
            ("10.0.0.1:443", http(&["b.com"]), Fits),
            ("a.com:443", Opened::Opaque, Fits),
            ("a.com:443", Opened::Malformed, Refused(Reason::Malformed)),
        ] {
            let target = Target::parse(target, None).expect(target);
            assert_eq!(
                compare(&policy, &target, &opened),
                wanted,
                "{target} {opened:?}"
            );
        }
    }

    #[test]
    fn what_only_reports_tolerates_and_what_restricts_no_names_does_not_ask() {
        let target = Target::parse("a.com:443", None).expect("target");
        let log_only = policy(Enforcement::LogOnly);
        let seen = compare(&log_only, &target, &tls("b.com"));
        assert_eq!(seen, Tolerated(Reason::Sni));
        assert!(is_compared(&log_only) && !is_compared(&Policy::Open));
    }
}
