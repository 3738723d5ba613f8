//! Allow-list entries, found by hash. Pure.
//!
//! Invariant: a question costs one look for each label of its name, however many entries there are.

use crate::target::{Target, TargetHost};
use handler_types::network::{AllowEntry, AllowHost, HOST_ALIAS};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Allow-list entries.
#[derive(Debug, Default)]
pub(crate) struct AllowIndex {
    exact: Names,
    below: Names,
    ips: HashSet<(IpAddr, u16)>,
}

impl AllowIndex {
    /// Indexes entries.
    pub(crate) fn new(entries: &[AllowEntry]) -> Self {
        let mut index = Self::default();
        for entry in entries {
            match &entry.host {
                AllowHost::Exact(name) => index.exact.insert(name, entry.port),
                AllowHost::Below(parent) => index.below.insert(parent, entry.port),
                AllowHost::Ip(ip) => {
                    index.ips.insert((*ip, entry.port));
                }
            }
        }
        index
    }

    /// Whether an entry allows the destination.
    pub(crate) fn lists(&self, target: &Target) -> bool {
        match &target.host {
            TargetHost::Ip(ip) => self.names_ip(*ip, target.port),
            TargetHost::Name(name) => {
                self.exact.hold(name, target.port) || self.parent(name, target.port).is_some()
            }
        }
    }

    /// The entry that allows the destination, as it is written.
    pub(crate) fn rule(&self, target: &Target) -> Option<String> {
        let name = match &target.host {
            TargetHost::Ip(ip) => {
                return self.names_ip(*ip, target.port).then(|| target.to_string());
            }
            TargetHost::Name(name) => name,
        };
        if self.exact.hold(name, target.port) {
            return Some(target.to_string());
        }
        let parent = self.parent(name, target.port)?;
        Some(format!("*.{parent}:{}", target.port))
    }

    /// Whether an entry is exactly this address and port.
    pub(crate) fn names_ip(&self, ip: IpAddr, port: u16) -> bool {
        self.ips.contains(&(ip, port))
    }

    /// The parent whose sub-domains are allowed, the longest if there are several.
    fn parent<'a>(&self, name: &'a str, port: u16) -> Option<&'a str> {
        if self.below.0.is_empty() {
            return None;
        }
        let mut parents = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        parents.find(|parent| self.below.hold(parent, port))
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.0.is_empty() && self.below.0.is_empty() && self.ips.is_empty()
    }

    /// Whether a service of the machine itself is listed; without a port, whether any is.
    pub(crate) fn lists_alias(&self, port: Option<u16>) -> bool {
        match port {
            Some(port) => self.exact.hold(HOST_ALIAS, port),
            None => self.exact.hold_any(HOST_ALIAS),
        }
    }

    /// Whether an entry lists the name, at whichever port.
    pub(crate) fn lists_name(&self, name: &str) -> bool {
        let mut parents = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        self.exact.hold_any(name)
            || (!self.below.0.is_empty() && parents.any(|parent| self.below.hold_any(parent)))
    }
}

/// Names and the ports that are listed for each.
#[derive(Debug, Default)]
struct Names(HashMap<String, HashSet<u16>>);

impl Names {
    fn insert(&mut self, name: &str, port: u16) {
        let ports = self.0.entry(name.to_ascii_lowercase()).or_default();
        ports.insert(port);
    }

    fn hold(&self, name: &str, port: u16) -> bool {
        #[cfg(test)]
        tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
        self.0.get(name).is_some_and(|ports| ports.contains(&port))
    }

    fn hold_any(&self, name: &str) -> bool {
        #[cfg(test)]
        tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
        self.0.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    thread_local! {
        /// How often a name was looked for.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    fn index(entries: &[String]) -> AllowIndex {
        let entries: Vec<AllowEntry> = entries
            .iter()
            .map(|entry| entry.parse().expect(entry))
            .collect();
        AllowIndex::new(&entries)
    }

    #[test]
    fn ten_thousand_entries_cost_as_many_looks_as_three() {
        let wildcards = |count: usize| -> Vec<String> {
            (0..count)
                .flat_map(|at| {
                    [
                        format!("h{at}.example:443"),
                        format!("*.w{at}.example:443"),
                        format!("many.example:{}", at % 60_000 + 1),
                        format!("10.{}.{}.1:443", at / 256 % 256, at % 256),
                    ]
                })
                .collect()
        };
        let looks = |index: &AllowIndex, text: &str| {
            LOOKS.with(|looks| looks.set(0));
            let listed = index.lists(&Target::parse(text, None).expect(text));
            (listed, LOOKS.with(Cell::get))
        };
        let (few, many) = (index(&wildcards(1)), index(&wildcards(10_000)));
        for (text, wanted) in [
            ("h0.example:443", (true, 1)),
            ("a.b.w0.example:443", (true, 3)),
            ("a.b.c.d.unlisted.example:443", (false, 6)),
            ("many.example:1", (true, 1)),
            ("10.0.0.1:443", (true, 0)),
        ] {
            assert_eq!(looks(&few, text), wanted, "{text}");
            assert_eq!(looks(&many, text), wanted, "{text}");
        }
        let looks = |index: &AllowIndex, name: &str| {
            LOOKS.with(|looks| looks.set(0));
            (index.lists_name(name), LOOKS.with(Cell::get))
        };
        for (name, wanted) in [
            ("h0.example", (true, 1)),
            ("a.b.w0.example", (true, 3)),
            ("a.b.c.d.unlisted.example", (false, 6)),
            ("many.example", (true, 1)),
        ] {
            assert_eq!(looks(&few, name), wanted, "{name}");
            assert_eq!(looks(&many, name), wanted, "{name}");
        }
    }

    fn label() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("a".to_owned()),
            Just("B".to_owned()),
            "[a-zA-Z0-9_]{1,4}"
        ]
    }

    fn name() -> impl Strategy<Value = String> {
        let labels = proptest::collection::vec(label(), 1..4);
        (labels, prop_oneof![Just("com"), Just("ORG")])
            .prop_map(|(labels, top)| format!("{}.{top}", labels.join(".")))
    }

    fn address() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(|ip| std::net::Ipv4Addr::from(ip).to_string()),
            (0u8..3).prop_map(|last| format!("10.0.0.{last}")),
            // As it is written back: `::0` would be `::`.
            (1u16..4).prop_map(|last| format!("[2001:db8::{last}]")),
        ]
    }

    fn entry() -> impl Strategy<Value = String> {
        let host = prop_oneof![
            name(),
            name().prop_map(|name| format!("*.{name}")),
            address()
        ];
        (host, 1u16..4).prop_map(|(host, port)| format!("{host}:{port}"))
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_the_entries_and_names_one_that_allows(
            entries in proptest::collection::vec(entry(), 0..12),
            host in prop_oneof![name(), address()],
            port in 1u16..4,
        ) {
            let index = index(&entries);
            let target = Target::parse(&format!("{host}:{port}"), None).expect("target");
            let listed = entries.iter().any(|entry| {
                let entry: AllowEntry = entry.parse().expect("entry");
                entry.matches(&target.host_text(), port)
            });
            prop_assert_eq!(index.lists(&target), listed);
            let rule = index.rule(&target);
            prop_assert_eq!(rule.is_some(), listed);
            if let Some(rule) = rule {
                let own: AllowEntry = rule.parse().expect("a rule is an entry");
                prop_assert!(own.matches(&target.host_text(), port));
                prop_assert!(entries.iter().any(|entry| entry.parse().as_ref() == Ok(&own)));
            }
        }
    }
}
