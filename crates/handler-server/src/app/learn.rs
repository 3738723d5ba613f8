//! What each sandbox asked for, every destination once, in memory; the filter tells a new daemon what it still keeps.
//!
//! Invariant: bounded per sandbox. A sandbox that asks for ever more names pushes out its own oldest, and that is told.

use crate::http::problem::ApiResult;
use crate::state::App;
use handler_types::egress::{EgressDecision, EgressEvent};
use handler_types::learn::{LearnView, LearnedHost};
use handler_types::network::{AllowEntry, AllowHost, HOST_ALIAS, NetworkPolicy};
use handler_types::sandbox::SandboxView;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Destinations kept per sandbox.
const KEPT: usize = 1000;

/// What was asked for, by sandbox.
#[derive(Debug, Default)]
pub struct Learned(Mutex<HashMap<String, Asked>>);

#[derive(Debug, Default)]
struct Asked {
    hosts: HashMap<String, LearnedHost>,
    forgotten: u64,
}

impl Learned {
    /// Takes in a decision.
    pub fn add(&self, event: &EgressEvent) {
        if matches!(
            event.decision,
            EgressDecision::Ended | EgressDecision::Injected
        ) {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(event.sandbox.clone()).or_default().add(event);
    }

    /// Forgets a sandbox.
    pub fn forget(&self, sandbox: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(sandbox);
    }

    /// What a sandbox asked for, the last first, and how much was forgotten.
    fn of(&self, sandbox: &str) -> (Vec<LearnedHost>, u64) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(asked) = all.get(sandbox) else {
            return Default::default();
        };
        let mut hosts: Vec<LearnedHost> = asked.hosts.values().cloned().collect();
        hosts.sort_by(|a, b| (b.last_seen, &a.host).cmp(&(a.last_seen, &b.host)));
        (hosts, asked.forgotten)
    }
}

impl Asked {
    fn add(&mut self, event: &EgressEvent) {
        if let Some(host) = self.hosts.get_mut(&event.host) {
            host.decision = event.decision;
            host.reason.clone_from(&event.reason);
            host.count += 1;
            host.last_seen = event.t;
            return;
        }
        if self.hosts.len() >= KEPT {
            let oldest = self.hosts.values().min_by_key(|host| host.last_seen);
            if let Some(oldest) = oldest.map(|host| host.host.clone()) {
                self.hosts.remove(&oldest);
                self.forgotten += 1;
            }
        }
        let host = LearnedHost {
            host: event.host.clone(),
            decision: event.decision,
            reason: event.reason.clone(),
            count: 1,
            first_seen: event.t,
            last_seen: event.t,
            listed: false,
            entry: None,
        };
        self.hosts.insert(event.host.clone(), host);
    }
}

/// What a sandbox asked for, against its list of now.
///
/// # Errors
/// 404, 409 when several fit.
pub async fn of(app: &App, text: &str) -> ApiResult<LearnView> {
    let view = super::sandboxes::find(app, text).await?;
    Ok(learned(app, view))
}

/// As [`of`], of a sandbox that was found.
pub(super) fn learned(app: &App, view: SandboxView) -> LearnView {
    let (mut hosts, forgotten) = app.learned.of(view.id.as_str());
    leave_out_lookups(&mut hosts);
    for host in &mut hosts {
        complete(host, &view.network);
    }
    LearnView {
        session: super::sessions::session_of(&view),
        sandbox: view.id,
        network: view.network,
        hosts,
        forgotten,
    }
}

/// A name that was looked up and then asked for at a port is told once, with the port.
fn leave_out_lookups(hosts: &mut Vec<LearnedHost>) {
    let asked: HashSet<String> = hosts
        .iter()
        .filter_map(|host| host.host.rsplit_once(':'))
        .map(|(name, _)| name.to_owned())
        .collect();
    hosts.retain(|host| !asked.contains(&host.host));
}

/// Whether it is listed now, and what would list it.
fn complete(host: &mut LearnedHost, policy: &NetworkPolicy) {
    let NetworkPolicy::Filtered { allow, .. } = policy else {
        return;
    };
    if !host.host.contains(':') {
        complete_lookup(host, allow);
        return;
    }
    let Ok(entry) = host.host.parse::<AllowEntry>() else {
        return;
    };
    let name = match &entry.host {
        AllowHost::Exact(name) => name.clone(),
        AllowHost::Ip(ip) => ip.to_string(),
        AllowHost::Below(_) => return,
    };
    host.listed = allow.iter().any(|listed| listed.matches(&name, entry.port));
    if !host.listed && helps(&entry, host.reason.as_deref()) {
        host.entry = Some(entry);
    }
}

/// The same for a name that was only looked up. Its port is not known; most are for HTTPS.
fn complete_lookup(host: &mut LearnedHost, allow: &[AllowEntry]) {
    let Ok(entry) = format!("{}:443", host.host).parse::<AllowEntry>() else {
        return;
    };
    host.listed = allow
        .iter()
        .any(|listed| listed.matches(&host.host, listed.port));
    if !host.listed && helps(&entry, host.reason.as_deref()) {
        host.entry = Some(entry);
    }
}

/// Whether listing it would let it pass.
fn helps(entry: &AllowEntry, reason: Option<&str>) -> bool {
    match reason {
        None | Some("unlisted") => true,
        // A name that leads to a private address stays refused; the address itself, or this machine's, can be listed.
        Some("address") => match &entry.host {
            AllowHost::Exact(name) => name == HOST_ALIAS,
            AllowHost::Ip(ip) => !is_never(*ip),
            AllowHost::Below(_) => false,
        },
        Some(_) => false,
    }
}

/// Link-local (metadata too), multicast, unspecified: never reachable.
fn is_never(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            ip.is_link_local() || ip.is_multicast() || ip.is_unspecified() || ip.is_broadcast()
        }
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::network::Enforcement;

    fn event(t: i64, decision: EgressDecision, host: &str, reason: Option<&str>) -> EgressEvent {
        EgressEvent {
            seq: 1,
            t,
            sandbox: "sb".to_owned(),
            label: String::new(),
            session: None,
            decision,
            host: host.to_owned(),
            secret: None,
            reason: reason.map(str::to_owned),
            rule: None,
            end: None,
        }
    }

    #[test]
    fn each_destination_is_told_once_with_its_first_and_last_time() {
        let learned = Learned::default();
        let unlisted = Some("unlisted");
        learned.add(&event(1, EgressDecision::Denied, "a.example:443", unlisted));
        learned.add(&event(2, EgressDecision::Denied, "b.example:443", unlisted));
        learned.add(&event(3, EgressDecision::Allowed, "a.example:443", None));
        learned.add(&event(4, EgressDecision::Ended, "c.example:443", None));
        let (hosts, forgotten) = learned.of("sb");
        assert_eq!((hosts.len(), forgotten), (2, 0));
        let first = &hosts[0];
        assert_eq!((first.host.as_str(), first.count), ("a.example:443", 2));
        assert_eq!((first.first_seen, first.last_seen), (1, 3));
        assert_eq!(first.decision, EgressDecision::Allowed);
        learned.forget("sb");
        assert!(learned.of("sb").0.is_empty());
    }

    #[test]
    fn a_flood_of_names_pushes_out_the_oldest_and_says_so() {
        let learned = Learned::default();
        for t in 0..KEPT as i64 + 5 {
            let host = format!("h{t}.example:443");
            learned.add(&event(t, EgressDecision::Denied, &host, Some("unlisted")));
        }
        let (hosts, forgotten) = learned.of("sb");
        assert_eq!((hosts.len(), forgotten), (KEPT, 5));
        assert!(hosts.iter().all(|host| host.last_seen >= 5));
    }

    #[test]
    fn a_lookup_is_told_only_while_no_port_was_asked_for() {
        let learned = Learned::default();
        for host in ["a.example", "a.example:22", "b.example"] {
            learned.add(&event(1, EgressDecision::Denied, host, Some("unlisted")));
        }
        let mut hosts = learned.of("sb").0;
        leave_out_lookups(&mut hosts);
        let told: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
        assert_eq!(told, ["a.example:22", "b.example"]);
    }

    #[test]
    fn an_entry_is_offered_only_where_it_would_help() {
        let policy = NetworkPolicy::Filtered {
            allow: vec!["*.listed.example:443".parse().expect("entry")],
            enforcement: Enforcement::Enforce,
        };
        for (host, reason, listed, helps) in [
            ("new.example:443", Some("unlisted"), false, true),
            ("tolerated.example:443", None, false, true),
            ("a.listed.example:443", Some("unlisted"), true, false),
            ("inside.example:443", Some("address"), false, false),
            ("10.0.0.1:80", Some("address"), false, true),
            ("169.254.169.254:80", Some("address"), false, false),
            ("host.containers.internal:1", Some("address"), false, true),
            ("gone.example:443", Some("resolve"), false, false),
            ("-", Some("malformed"), false, false),
            ("new.example", Some("unlisted"), false, true),
            ("a.listed.example", Some("unlisted"), true, false),
            ("single", Some("unlisted"), false, false),
            ("names.handler.internal", Some("reserved"), false, false),
            ("a..b", Some("name"), false, false),
        ] {
            let learned = Learned::default();
            learned.add(&event(1, EgressDecision::Denied, host, reason));
            let mut found = learned.of("sb").0.remove(0);
            complete(&mut found, &policy);
            assert_eq!(
                (found.listed, found.entry.is_some()),
                (listed, helps),
                "{host}"
            );
        }
    }
}
