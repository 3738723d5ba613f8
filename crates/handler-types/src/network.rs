//! What a sandbox may reach: the network policy and the allow-list entry.
//!
//! An entry is always `HOST:PORT` with the port written out (contract A.3). `*.example.com:443`
//! means sub-domains only. IPv6 literals stand in brackets: `[2001:db8::1]:443`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The name under which a sandbox reaches the loopback of the machine that runs it.
pub const HOST_ALIAS: &str = "host.containers.internal";

/// The name under which the egress filter itself answers a sandbox that asks whether a name may be looked up:
/// `GET http://names.handler.internal/v1/names/<name>` over the sandbox's proxy socket gives `204`, or `404` with an
/// [`EgressRefusal`](crate::egress::EgressRefusal). Never dialled, whatever a list says.
pub const NAMES_HOST: &str = "names.handler.internal";

/// What a sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "mode", rename_all = "camelCase", deny_unknown_fields)]
pub enum NetworkPolicy {
    /// Loopback only.
    None,
    /// Only listed destinations, through the egress filter.
    Filtered {
        /// Allow-list entries, `HOST:PORT`.
        #[serde(default)]
        #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
        allow: Vec<AllowEntry>,
        /// Whether an unlisted destination is refused or only reported.
        #[serde(default)]
        enforcement: Enforcement,
    },
    /// Any public destination.
    Open,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self::Filtered {
            allow: Vec::new(),
            enforcement: Enforcement::Enforce,
        }
    }
}

impl NetworkPolicy {
    /// Whether the sandbox gets a link to the egress filter.
    #[must_use]
    pub fn needs_egress(&self) -> bool {
        !matches!(self, Self::None)
    }
}

/// What happens to an unlisted destination of a filtered sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// It is refused.
    #[default]
    Enforce,
    /// It is let through and reported as `unlisted` ("learn hosts").
    LogOnly,
}

/// Whether programs that ignore proxy variables are caught too: their packets go to the egress filter as streams,
/// and names it lists are found. Without it they find no way out at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Transparent {
    /// Where it costs nothing: native sandboxes, when this host has `/dev/net/tun`.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always, in containers too: a sandbox that cannot have it is refused.
    Required,
}

/// Whether a running sandbox catches programs that ignore proxy variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransparentView {
    /// Whether it does.
    pub on: bool,
    /// Why not, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The host part of an allow-list entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AllowHost {
    /// One name, lower case.
    Exact(String),
    /// All names below this one (`*.` in front), not the name itself; lower case, without `*.`.
    Below(String),
    /// One address.
    Ip(IpAddr),
}

/// One destination a sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AllowEntry {
    /// The host.
    pub host: AllowHost,
    /// The port, 1–65535.
    pub port: u16,
}

/// Why a text is not an allow-list entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowEntryError {
    /// The port is missing.
    #[error("`{0}` has no port: write HOST:PORT, for example `{0}:443`")]
    NoPort(String),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}`: the port must be a number from 1 to 65535")]
    BadPort(String),
    /// The host is not a name, `*.`name or address.
    #[error(
        "`{0}`: the host must be a full domain name, `*.` and a domain name, or an IP address (IPv6 in brackets; international names as xn--…)"
    )]
    BadHost(String),
}

impl AllowEntry {
    /// Whether this entry allows `host` (a name or an address, any case, without brackets) on `port`.
    #[must_use]
    pub fn matches(&self, host: &str, port: u16) -> bool {
        if self.port != port {
            return false;
        }
        match &self.host {
            AllowHost::Exact(name) => name.eq_ignore_ascii_case(host),
            AllowHost::Below(parent) => {
                host.len() > parent.len() + 1
                    && !host.starts_with('.')
                    && host.is_char_boundary(host.len() - parent.len())
                    && host[host.len() - parent.len()..].eq_ignore_ascii_case(parent)
                    && host.as_bytes()[host.len() - parent.len() - 1] == b'.'
            }
            AllowHost::Ip(ip) => host.parse::<IpAddr>().is_ok_and(|given| given == *ip),
        }
    }
}

fn is_name(text: &str) -> bool {
    let labels: Vec<&str> = text.split('.').collect();
    labels.len() >= 2
        && text.len() <= 253
        && labels.iter().all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
        && labels
            .last()
            .is_some_and(|top| top.len() >= 2 && !is_number(top))
}

/// Whether resolvers take a last label for part of an IPv4 address.
fn is_number(label: &str) -> bool {
    let hexadecimal = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"));
    label.bytes().all(|b| b.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

impl FromStr for AllowEntry {
    type Err = AllowEntryError;

    fn from_str(text: &str) -> Result<Self, AllowEntryError> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest
                .split_once("]:")
                .ok_or_else(|| AllowEntryError::NoPort(text.to_owned()))?,
            None => text
                .rsplit_once(':')
                .filter(|(host, _)| !host.contains(':'))
                .ok_or_else(|| AllowEntryError::NoPort(text.to_owned()))?,
        };
        let port = port
            .parse::<u16>()
            .ok()
            .filter(|p| *p > 0 && !port.starts_with('+'))
            .ok_or_else(|| AllowEntryError::BadPort(text.to_owned()))?;
        let bad_host = || AllowEntryError::BadHost(text.to_owned());
        let host = if text.starts_with('[') {
            // Brackets are for IPv6 addresses.
            let ip: Ipv6Addr = host.parse().map_err(|_| bad_host())?;
            AllowHost::Ip(ip.into())
        } else if let Ok(ip) = host.parse::<Ipv4Addr>() {
            AllowHost::Ip(ip.into())
        } else if let Some(parent) = host.strip_prefix("*.") {
            if !is_name(parent) {
                return Err(bad_host());
            }
            AllowHost::Below(parent.to_ascii_lowercase())
        } else if is_name(host) {
            AllowHost::Exact(host.to_ascii_lowercase())
        } else {
            return Err(bad_host());
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            AllowHost::Exact(name) => write!(f, "{name}:{}", self.port),
            AllowHost::Below(parent) => write!(f, "*.{parent}:{}", self.port),
            AllowHost::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
            AllowHost::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
        }
    }
}

impl Serialize for AllowEntry {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AllowEntry {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_refused_or_an_entry_that_reads_the_same_again(
            text in prop_oneof![".*", "(\\*\\.)?[a-zA-Z0-9.:%@\\[\\]x_-]{0,30}(:[0-9]{1,5})?"],
        ) {
            if let Ok(entry) = text.parse::<AllowEntry>() {
                let written = entry.to_string();
                prop_assert_eq!(written.parse::<AllowEntry>(), Ok(entry.clone()));
                match &entry.host {
                    AllowHost::Exact(name) => prop_assert!(entry.matches(name, entry.port)),
                    AllowHost::Below(parent) => {
                        let below = format!("x.{parent}");
                        prop_assert!(entry.matches(&below, entry.port));
                        prop_assert!(!entry.matches(parent, entry.port));
                    }
                    AllowHost::Ip(ip) => {
                        prop_assert!(entry.matches(&ip.to_string(), entry.port));
                    }
                }
            }
        }
    }

    #[test]
    fn entries_are_read_and_written_back() {
        for text in [
            "example.com:443",
            "*.example.com:443",
            "192.168.1.20:11434",
            "[2001:db8::1]:443",
        ] {
            assert_eq!(text.parse::<AllowEntry>().expect(text).to_string(), text);
        }
        assert_eq!(
            "API.Example.COM:80"
                .parse::<AllowEntry>()
                .expect("upper case")
                .to_string(),
            "api.example.com:80"
        );
    }

    #[test]
    fn a_bare_host_a_bad_port_and_a_bad_name_are_refused() {
        for text in [
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:+1",
            "*:443",
            "*.com:443",
            "a..b:1",
            "-a.com:1",
            "http://a.com:1",
            "a.com/x:1",
            "2001:db8::1:443",
            "a b.com:1",
            "1.2.3:4",
            "a.0x7f:1",
            "0177.0.0.1:1",
            "1.2.3.4.:1",
            "a.com.:1",
            "[a.com]:1",
            "[1.2.3.4]:1",
            "[::1]x:1",
            "[fe80::1%eth0]:1",
            "[::1]",
            "*.1.2.3.4:1",
            "**.a.com:1",
            "a.*.com:1",
            "me@a.com:1",
            "a%2ecom:1",
            "b\u{fc}cher.example:1",
            "a.com:1 ",
            "a.com\0:1",
            "",
            ":",
        ] {
            assert!(text.parse::<AllowEntry>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_wildcard_allows_sub_domains_only() {
        let entry: AllowEntry = "*.example.com:443".parse().expect("entry");
        assert!(entry.matches("a.example.com", 443));
        assert!(entry.matches("a.B.Example.com", 443));
        assert!(!entry.matches("example.com", 443));
        assert!(!entry.matches("evilexample.com", 443));
        assert!(!entry.matches(".example.com", 443));
        assert!(!entry.matches("a.example.com", 80));
        assert!(!entry.matches("a.example.com.", 443));
    }
}
