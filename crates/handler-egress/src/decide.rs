//! Whether a destination may be reached: pure, and independent of the length of the allow-list.
//!
//! Invariant: what is not understood is refused. The addresses behind a name are judged later, by
//! `resolve`; both must agree before a byte goes out.

use crate::address::{AddressClass, classify};
use crate::index::AllowIndex;
use crate::target::{Target, TargetHost};
use handler_types::egress::EgressDecision;
use handler_types::network::{Enforcement, HOST_ALIAS, NAMES_HOST, NetworkPolicy};
use std::net::IpAddr;

/// Why something was refused; the text is part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No entry allows it.
    Unlisted,
    /// The sandbox has no network.
    PolicyNone,
    /// An address that must not be reached.
    Address,
    /// An address nobody may reach: link-local, metadata, multicast.
    Never,
    /// A name of the filter's own, which leads nowhere.
    Reserved,
    /// The name has no address.
    Resolve,
    /// The destination cannot be read.
    Name,
    /// The request line does not fit this proxy.
    Target,
    /// `Host` is not the host of the tunnel.
    Host,
    /// The TLS server name is not the host of the tunnel.
    Sni,
    /// Not HTTP.
    Malformed,
    /// The content coding cannot be undone.
    Coding,
}

impl Reason {
    /// As written in events and refusals.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unlisted => "unlisted",
            Self::PolicyNone => "policy none",
            Self::Address | Self::Never => "address",
            Self::Reserved => "reserved",
            Self::Resolve => "resolve",
            Self::Name => "name",
            Self::Target => "target",
            Self::Host => "host",
            Self::Sni => "sni",
            Self::Malformed => "malformed",
            Self::Coding => "coding",
        }
    }

    /// The event that tells it.
    pub(crate) fn decision(self) -> EgressDecision {
        match self {
            Self::Host | Self::Sni => EgressDecision::Mismatch,
            _ => EgressDecision::Denied,
        }
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may pass.
    Allowed,
    /// It may pass, and is reported as not listed.
    Unlisted,
    /// It may not pass.
    Denied(Reason),
}

/// A network policy, indexed.
#[derive(Debug)]
pub(crate) enum Policy {
    /// Nothing.
    None,
    /// What is listed.
    Filtered {
        /// The list.
        allow: AllowIndex,
        /// What happens to the rest.
        enforcement: Enforcement,
    },
    /// Everything public.
    Open,
}

impl Policy {
    /// Indexes a policy.
    pub(crate) fn new(policy: &NetworkPolicy) -> Self {
        match policy {
            NetworkPolicy::None => Self::None,
            NetworkPolicy::Open => Self::Open,
            NetworkPolicy::Filtered { allow, enforcement } => Self::Filtered {
                allow: AllowIndex::new(allow),
                enforcement: *enforcement,
            },
        }
    }

    /// The entry that allows the destination, if one does.
    pub(crate) fn rule(&self, target: &Target) -> Option<String> {
        match self {
            Self::Filtered { allow, .. } => allow.rule(target),
            Self::None | Self::Open => None,
        }
    }

    /// Whether an entry is exactly this address and port: the one way to reach a private one.
    pub(crate) fn names_ip(&self, ip: IpAddr, port: u16) -> bool {
        matches!(self, Self::Filtered { allow, .. } if allow.names_ip(ip, port))
    }
}

/// Whether the name stands for the machine the filter runs on.
pub(crate) fn is_alias(target: &Target) -> bool {
    target.name() == Some(HOST_ALIAS)
}

/// Decides about one destination.
pub(crate) fn judge(policy: &Policy, target: &Target) -> Verdict {
    if matches!(policy, Policy::None) {
        return Verdict::Denied(Reason::PolicyNone);
    }
    if let TargetHost::Ip(ip) = target.host
        && classify(ip) == AddressClass::Never
    {
        // No entry helps; saying "unlisted" would invite to add one.
        return Verdict::Denied(Reason::Never);
    }
    if let Some(name) = target.name() {
        if let Some(reason) = never_reached(name) {
            return Verdict::Denied(reason);
        }
        if is_alias(target) {
            return judge_alias(policy, Some(target.port));
        }
    }
    judge_listed(policy, |allow| allow.lists(target))
}

/// Decides whether a name may be looked up: whether it could be reached at some port.
pub(crate) fn judge_name(policy: &Policy, name: &str) -> Verdict {
    if matches!(policy, Policy::None) {
        return Verdict::Denied(Reason::PolicyNone);
    }
    match never_reached(name) {
        Some(reason) => Verdict::Denied(reason),
        None if name == HOST_ALIAS => judge_alias(policy, None),
        None => judge_listed(policy, |allow| allow.lists_name(name)),
    }
}

/// Why a name leads nowhere whatever is listed.
fn never_reached(name: &str) -> Option<Reason> {
    match name {
        NAMES_HOST => Some(Reason::Reserved),
        "localhost" => Some(Reason::Address),
        _ => name.ends_with(".localhost").then_some(Reason::Address),
    }
}

fn judge_listed(policy: &Policy, listed: impl Fn(&AllowIndex) -> bool) -> Verdict {
    match policy {
        Policy::None => Verdict::Denied(Reason::PolicyNone),
        Policy::Open => Verdict::Allowed,
        Policy::Filtered { allow, .. } if listed(allow) => Verdict::Allowed,
        Policy::Filtered { enforcement, .. } => match enforcement {
            Enforcement::Enforce => Verdict::Denied(Reason::Unlisted),
            Enforcement::LogOnly => Verdict::Unlisted,
        },
    }
}

/// Services of the machine itself are reached only when listed, whatever the mode; without a port, some service is.
fn judge_alias(policy: &Policy, port: Option<u16>) -> Verdict {
    match policy {
        Policy::Filtered { allow, .. } if allow.lists_alias(port) => Verdict::Allowed,
        Policy::Filtered {
            enforcement: Enforcement::Enforce,
            ..
        } => Verdict::Denied(Reason::Unlisted),
        _ => Verdict::Denied(Reason::Address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_nobody_may_reach_is_not_called_unlisted() {
        let policies = [
            filtered(&["169.254.169.254:80"], Enforcement::Enforce),
            filtered(&[], Enforcement::Enforce),
            filtered(&[], Enforcement::LogOnly),
            Policy::Open,
        ];
        for policy in policies {
            let target = Target {
                host: TargetHost::Ip([169, 254, 169, 254].into()),
                port: 80,
            };
            assert_eq!(judge(&policy, &target), Verdict::Denied(Reason::Never));
        }
    }

    fn filtered(entries: &[&str], enforcement: Enforcement) -> Policy {
        Policy::new(&NetworkPolicy::Filtered {
            allow: entries
                .iter()
                .map(|text| text.parse().expect(text))
                .collect(),
            enforcement,
        })
    }

    fn target(text: &str) -> Target {
        Target::parse(text, None).expect(text)
    }

    const ENTRIES: &[&str] = &[
        "example.com:443",
        "*.wild.org:443",
        "192.168.1.20:11434",
        "[2001:db8::1]:443",
        "host.containers.internal:3000",
    ];

    #[test]
    fn enforcing_allows_what_is_listed_and_nothing_else() {
        let policy = filtered(ENTRIES, Enforcement::Enforce);
        let unlisted = Verdict::Denied(Reason::Unlisted);
        for (text, wanted) in [
            ("example.com:443", Verdict::Allowed),
            ("EXAMPLE.com:443", Verdict::Allowed),
            ("example.com:80", unlisted),
            ("www.example.com:443", unlisted),
            ("notexample.com:443", unlisted),
            ("a.wild.org:443", Verdict::Allowed),
            ("a.b.wild.org:443", Verdict::Allowed),
            ("wild.org:443", unlisted),
            ("evilwild.org:443", unlisted),
            ("a.wild.org:444", unlisted),
            ("192.168.1.20:11434", Verdict::Allowed),
            ("192.168.1.21:11434", unlisted),
            ("[2001:db8:0:0::1]:443", Verdict::Allowed),
            ("[::ffff:192.168.1.20]:11434", unlisted),
            ("host.containers.internal:3000", Verdict::Allowed),
            ("host.containers.internal:3001", unlisted),
            ("localhost:443", Verdict::Denied(Reason::Address)),
            ("a.localhost:443", Verdict::Denied(Reason::Address)),
        ] {
            assert_eq!(judge(&policy, &target(text)), wanted, "{text}");
        }
    }

    #[test]
    fn a_name_may_be_looked_up_if_it_can_be_reached_at_some_port_of_the_list() {
        let mut policies: Vec<Policy> = [Enforcement::Enforce, Enforcement::LogOnly]
            .map(|enforcement| filtered(ENTRIES, enforcement))
            .into();
        policies.extend([Policy::Open, Policy::None]);
        for (name, wanted) in [
            ("example.com", [true, true, true, false]),
            ("www.example.com", [false, true, true, false]),
            ("a.b.wild.org", [true, true, true, false]),
            ("wild.org", [false, true, true, false]),
            ("evilwild.org", [false, true, true, false]),
            (HOST_ALIAS, [true, true, false, false]),
            (NAMES_HOST, [false; 4]),
            ("localhost", [false; 4]),
            ("a.localhost", [false; 4]),
        ] {
            for (policy, wanted) in policies.iter().zip(wanted) {
                let named = !matches!(judge_name(policy, name), Verdict::Denied(_));
                assert_eq!(named, wanted, "{name} {policy:?}");
                let reached = [443, 3000, 1].iter().any(|port| {
                    let target = target(&format!("{name}:{port}"));
                    !matches!(judge(policy, &target), Verdict::Denied(_))
                });
                assert_eq!(reached, wanted, "{name} {policy:?}");
            }
        }
    }

    #[test]
    fn the_filter_s_own_name_is_not_reached_although_it_is_listed() {
        let entries = ["names.handler.internal:80", "*.handler.internal:80"];
        for policy in [
            filtered(&entries, Enforcement::Enforce),
            filtered(&entries, Enforcement::LogOnly),
            Policy::Open,
        ] {
            for text in ["names.handler.internal:80", "NAMES.Handler.internal:80"] {
                let verdict = judge(&policy, &target(text));
                assert_eq!(verdict, Verdict::Denied(Reason::Reserved), "{policy:?}");
            }
        }
    }

    #[test]
    fn the_entry_that_decides_is_named() {
        let policy = filtered(ENTRIES, Enforcement::Enforce);
        for (text, wanted) in [
            ("EXAMPLE.com:443", Some("example.com:443")),
            ("a.b.wild.org:443", Some("*.wild.org:443")),
            ("192.168.1.20:11434", Some("192.168.1.20:11434")),
            ("[2001:db8:0:0::1]:443", Some("[2001:db8::1]:443")),
            ("wild.org:443", None),
            ("a.wild.org:444", None),
        ] {
            assert_eq!(policy.rule(&target(text)).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn log_only_lets_the_rest_through_as_unlisted_but_not_this_machine() {
        let policy = filtered(ENTRIES, Enforcement::LogOnly);
        for (text, wanted) in [
            ("example.com:443", Verdict::Allowed),
            ("other.com:443", Verdict::Unlisted),
            ("host.containers.internal:3000", Verdict::Allowed),
            (
                "host.containers.internal:22",
                Verdict::Denied(Reason::Address),
            ),
            ("localhost:3000", Verdict::Denied(Reason::Address)),
        ] {
            assert_eq!(judge(&policy, &target(text)), wanted, "{text}");
        }
    }

    #[test]
    fn open_allows_every_name_but_this_machine_and_none_refuses_all() {
        for (text, wanted) in [
            ("other.com:1", Verdict::Allowed),
            (
                "host.containers.internal:3000",
                Verdict::Denied(Reason::Address),
            ),
            ("localhost:3000", Verdict::Denied(Reason::Address)),
        ] {
            assert_eq!(judge(&Policy::Open, &target(text)), wanted, "{text}");
            assert_eq!(
                judge(&Policy::None, &target(text)),
                Verdict::Denied(Reason::PolicyNone)
            );
        }
    }
}
