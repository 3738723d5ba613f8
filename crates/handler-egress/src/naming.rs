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
//!
//! HTTP without TLS is not copied blindly: each request is judged by itself, its `Host` in the same manner. A tunnel
//! within the tunnel is none where the policy is enforced, or whatever stood behind a refused one would be a request.

use crate::decide::{Policy, Reason, Verdict, judge};
use crate::opening::Opened;
use crate::settings::Rules;
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

/// Whether first bytes are looked at under these rules: to compare names, or to find phantoms.
pub(crate) fn is_looked_at(rules: &Rules) -> bool {
    matches!(rules.policy, Policy::Filtered { .. }) || !rules.secrets.is_empty()
}

/// Whether what follows is served request by request.
pub(crate) fn is_served(policy: &Policy, opened: &Opened) -> bool {
    let enforced = matches!(
        policy,
        Policy::Filtered {
            enforcement: Enforcement::Enforce,
            ..
        }
    );
    match opened {
        Opened::Http(_) | Opened::Http2 => true,
        Opened::Connect(_) => enforced,
        Opened::Opaque | Opened::Tls(_) | Opened::Malformed => false,
    }
}

/// Compares what was said with the tunnel's target.
pub(crate) fn compare(policy: &Policy, target: &Target, opened: &Opened) -> Naming {
    let fits = |host: &str| may_name(policy, target, host);
    let reason = match opened {
        Opened::Malformed if !matches!(policy, Policy::Open) => {
            return Naming::Refused(Reason::Malformed);
        }
        Opened::Opaque | Opened::Http2 | Opened::Malformed => return Naming::Fits,
        Opened::Tls(name) if name.as_deref().is_none_or(fits) => return Naming::Fits,
        Opened::Tls(_) => Reason::Sni,
        Opened::Http(hosts) | Opened::Connect(hosts) if hosts.iter().all(|host| fits(host)) => {
            return Naming::Fits;
        }
        Opened::Http(_) | Opened::Connect(_) => Reason::Host,
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
            ("a.com:443", Opened::Http2, Fits),
            (
                "a.com:443",
                Opened::Connect(vec!["a.com".to_owned(), "b.com:443".to_owned()]),
                Refused(Reason::Host),
            ),
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
        assert_eq!(compare(&Policy::Open, &target, &tls("b.com")), Fits);
        assert_eq!(compare(&Policy::Open, &target, &Opened::Malformed), Fits);
        let rules = |policy| Rules {
            policy,
            ..Rules::nothing(1)
        };
        assert!(is_looked_at(&rules(log_only)) && !is_looked_at(&rules(Policy::Open)));
    }

    #[test]
    fn http_is_served_and_a_tunnel_within_a_tunnel_is_not_copied_where_names_are_enforced() {
        let connect = Opened::Connect(vec!["a.com:443".to_owned()]);
        let (enforce, log_only) = (policy(Enforcement::Enforce), policy(Enforcement::LogOnly));
        for policy in [&enforce, &log_only, &Policy::Open] {
            assert!(is_served(policy, &http(&["a.com"])) && is_served(policy, &Opened::Http2));
            for opened in [tls("a.com"), Opened::Opaque, Opened::Malformed] {
                assert!(!is_served(policy, &opened), "{opened:?}");
            }
            let only_enforced = std::ptr::eq(policy, &raw const enforce);
            assert_eq!(is_served(policy, &connect), only_enforced);
        }
    }
}
