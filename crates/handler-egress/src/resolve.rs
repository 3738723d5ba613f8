//! From a destination to the addresses that may be dialled: a name is resolved once, every address
//! is checked, and only checked addresses are given on. Nothing resolves the name a second time.

use crate::address::{AddressClass, classify};
use crate::decide::{Policy, is_alias};
use crate::share::{Busy, Share};
use crate::target::{Target, TargetHost};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::sync::oneshot;

const RESOLVE_LIMIT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;

/// Addresses that may be dialled.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// In the order to try them; never empty.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether one of them is reachable only because an entry names it: never through a proxy.
    pub(crate) local: bool,
}

/// Why there is nothing to dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResolveError {
    /// Every address is one that must not be reached.
    Address,
    /// The name has no address.
    Unknown,
    /// The sandbox has too many names looked up at a time.
    Busy(Busy),
}

/// Resolves names.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    /// Names answered without asking.
    pub(crate) hosts: BTreeMap<String, Vec<IpAddr>>,
}

impl Resolver {
    /// The addresses of a destination that its policy lets be dialled.
    pub(crate) async fn candidates(
        &self,
        policy: &Policy,
        target: &Target,
        look_ups: &Share,
    ) -> Result<Candidates, ResolveError> {
        if is_alias(target) {
            return Ok(loopback(target.port));
        }
        let found = match &target.host {
            TargetHost::Ip(ip) => vec![*ip],
            TargetHost::Name(name) => self.look_up(name, look_ups).await?,
        };
        if found.is_empty() {
            return Err(ResolveError::Unknown);
        }
        let mut candidates = Candidates {
            addresses: Vec::new(),
            local: false,
        };
        for ip in found {
            let Some(class) = admitted(policy, ip, target.port) else {
                continue;
            };
            let address = SocketAddr::new(ip, target.port);
            if !candidates.addresses.contains(&address)
                && candidates.addresses.len() < MOST_ADDRESSES
            {
                candidates.local |= class != AddressClass::Public;
                candidates.addresses.push(address);
            }
        }
        if candidates.addresses.is_empty() {
            return Err(ResolveError::Address);
        }
        Ok(candidates)
    }

    async fn look_up(&self, name: &str, look_ups: &Share) -> Result<Vec<IpAddr>, ResolveError> {
        if let Some(addresses) = self.hosts.get(name) {
            return Ok(addresses.clone());
        }
        let part = look_ups.take().await.map_err(ResolveError::Busy)?;
        let name = name.to_owned();
        // The system's resolver goes on in a thread when nobody waits for it any more: its part is given back
        // when the thread is.
        let (tell, told) = oneshot::channel();
        drop(handler_base::tasks::spawn_named(
            "egress look-up",
            async move {
                let found = tokio::net::lookup_host((name, 0)).await;
                drop(part);
                let found = found.map(|found| found.map(|one| one.ip()).collect());
                // Whoever asked may have left.
                tell.send(found.unwrap_or_default()).ok();
            },
        ));
        let asked = tokio::time::timeout(RESOLVE_LIMIT, told).await;
        Ok(asked.ok().and_then(Result::ok).unwrap_or_default())
    }
}

fn loopback(port: u16) -> Candidates {
    Candidates {
        addresses: vec![
            (IpAddr::V4(Ipv4Addr::LOCALHOST), port).into(),
            (IpAddr::V6(Ipv6Addr::LOCALHOST), port).into(),
        ],
        local: true,
    }
}

/// The class of an address if this policy lets it be dialled.
fn admitted(policy: &Policy, ip: IpAddr, port: u16) -> Option<AddressClass> {
    let mut class = classify(ip);
    if class == AddressClass::Public && is_own(ip) {
        class = AddressClass::Private;
    }
    match class {
        AddressClass::Public => Some(class),
        AddressClass::Private => policy.names_ip(ip, port).then_some(class),
        AddressClass::Never => None,
    }
}

/// Whether a connection to `address`, made for `target`, may still exist under this policy.
pub(crate) fn still_admitted(policy: &Policy, target: &Target, address: SocketAddr) -> bool {
    (is_alias(target) && address.ip().is_loopback())
        || admitted(policy, address.ip(), address.port()).is_some()
}

/// Whether an address is one of this machine's, on any interface, at this moment.
///
/// The kernel is asked which source it would use to reach it: for an own address, that address
/// itself. Nothing is sent.
fn is_own(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0))
        .and_then(|socket| {
            socket.connect((ip, 9))?;
            socket.local_addr()
        })
        .is_ok_and(|source| source.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::network::{Enforcement, NetworkPolicy};

    fn filtered(entries: &[&str]) -> Policy {
        Policy::new(&NetworkPolicy::Filtered {
            allow: entries
                .iter()
                .map(|text| text.parse().expect(text))
                .collect(),
            enforcement: Enforcement::LogOnly,
        })
    }

    fn resolver(name: &str, addresses: &[&str]) -> Resolver {
        let addresses = addresses
            .iter()
            .map(|text| text.parse().expect(text))
            .collect();
        Resolver {
            hosts: BTreeMap::from([(name.to_owned(), addresses)]),
        }
    }

    async fn ask(
        resolver: &Resolver,
        policy: &Policy,
        text: &str,
    ) -> Result<Vec<String>, ResolveError> {
        let target = Target::parse(text, None).expect(text);
        let look_ups = Share::new("look-ups", 1, Duration::ZERO);
        let found = resolver.candidates(policy, &target, &look_ups).await?;
        Ok(found.addresses.iter().map(ToString::to_string).collect())
    }

    #[tokio::test]
    async fn only_addresses_that_may_be_reached_are_given_on() {
        let names = resolver(
            "a.example",
            &["10.0.0.1", "93.184.215.14", "169.254.169.254"],
        );
        let found = ask(&names, &filtered(&[]), "a.example:80").await;
        assert_eq!(found, Ok(vec!["93.184.215.14:80".to_owned()]));
        let found = ask(&names, &filtered(&["10.0.0.1:80"]), "a.example:80").await;
        assert_eq!(
            found,
            Ok(vec![
                "10.0.0.1:80".to_owned(),
                "93.184.215.14:80".to_owned()
            ])
        );
        let found = ask(&names, &filtered(&["10.0.0.1:81"]), "a.example:80").await;
        assert_eq!(found, Ok(vec!["93.184.215.14:80".to_owned()]));
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_refused_in_every_mode() {
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "fd00::1",
            "0.0.0.0",
        ] {
            let names = resolver("rebind.example", &[address]);
            for policy in [filtered(&["rebind.example:80"]), Policy::Open] {
                let found = ask(&names, &policy, "rebind.example:80").await;
                assert_eq!(found, Err(ResolveError::Address), "{address}");
            }
        }
    }

    #[tokio::test]
    async fn metadata_stays_unreachable_even_when_an_entry_names_it() {
        let policy = filtered(&["169.254.169.254:80", "[fe80::1]:80", "127.0.0.1:80"]);
        let none = Resolver::default();
        for text in [
            "169.254.169.254:80",
            "[fe80::1]:80",
            "[::ffff:169.254.169.254]:80",
        ] {
            assert_eq!(
                ask(&none, &policy, text).await,
                Err(ResolveError::Address),
                "{text}"
            );
        }
        assert!(ask(&none, &policy, "127.0.0.1:80").await.is_ok());
    }

    #[tokio::test]
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    async fn the_machine_s_own_addresses_count_as_private() {
        let probe = UdpSocket::bind("0.0.0.0:0").expect("socket");
        let Ok(own) = probe
            .connect("192.0.2.1:9")
            .and_then(|()| probe.local_addr())
        else {
            println!("SKIP the_machine_s_own_addresses_count_as_private: no route outside");
            return;
        };
        assert!(is_own(own.ip()));
        assert!(is_own("127.0.0.1".parse().expect("address")));
        assert!(!is_own("192.0.2.1".parse().expect("address")));
    }
}
