//! The destination a client asks for, `HOST:PORT`, read strictly. Pure.
//!
//! Invariant: a [`Target`] is either an IP address in its one canonical spelling or a lower-case
//! name without trailing dot that no resolver can mistake for an address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A host as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum TargetHost {
    /// A name, lower case.
    Name(String),
    /// An address literal.
    Ip(IpAddr),
}

/// A destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// Its host.
    pub(crate) host: TargetHost,
    /// Its port, 1–65535.
    pub(crate) port: u16,
}

/// Why a text is not a destination; each is a sentence for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// No host.
    #[error("the host is empty")]
    EmptyHost,
    /// `user@host`.
    #[error("user information before the host is not accepted")]
    UserInfo,
    /// `host.`
    #[error("a host name must be written without a dot at its end")]
    TrailingDot,
    /// Not ASCII, or percent-encoded.
    #[error("a host name must be plain ASCII (write international names as xn--…)")]
    NotAscii,
    /// Something like `127.1`, `0x7f000001` or `2130706433`.
    #[error("an IPv4 address must be written as four decimal numbers")]
    NumericName,
    /// Not a name nor an address.
    #[error("the host is not a domain name or an IP address")]
    BadHost,
    /// Missing or not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    BadPort,
}

impl Target {
    /// Reads `host:port`; without a port, `default` is taken.
    pub(crate) fn parse(text: &str, default: Option<u16>) -> Result<Self, TargetError> {
        if text.contains('@') {
            return Err(TargetError::UserInfo);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (inside, after) = rest.split_once(']').ok_or(TargetError::BadHost)?;
            let ip: Ipv6Addr = inside.parse().map_err(|_| TargetError::BadHost)?;
            let port = match after.strip_prefix(':') {
                Some(port) => parse_port(port)?,
                None if after.is_empty() => default.ok_or(TargetError::BadPort)?,
                None => return Err(TargetError::BadHost),
            };
            return Ok(Self {
                host: TargetHost::Ip(IpAddr::V6(ip)),
                port,
            });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let host = parse_host(host)?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None => default.ok_or(TargetError::BadPort)?,
        };
        Ok(Self { host, port })
    }

    /// The name, if it is one.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.host {
            TargetHost::Name(name) => Some(name),
            TargetHost::Ip(_) => None,
        }
    }

    /// The host without brackets.
    pub(crate) fn host_text(&self) -> String {
        match &self.host {
            TargetHost::Name(name) => name.clone(),
            TargetHost::Ip(ip) => ip.to_string(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            TargetHost::Name(name) => write!(f, "{name}:{}", self.port),
            TargetHost::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
            TargetHost::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
        }
    }
}

fn parse_port(text: &str) -> Result<u16, TargetError> {
    if text.is_empty() || text.len() > 5 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(TargetError::BadPort);
    }
    text.parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or(TargetError::BadPort)
}

fn parse_host(text: &str) -> Result<TargetHost, TargetError> {
    if text.is_empty() {
        return Err(TargetError::EmptyHost);
    }
    if !text.is_ascii() || text.contains('%') {
        return Err(TargetError::NotAscii);
    }
    if text.ends_with('.') {
        return Err(TargetError::TrailingDot);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return match ip {
            IpAddr::V4(_) => Ok(TargetHost::Ip(ip)),
            IpAddr::V6(_) => Err(TargetError::BadHost),
        };
    }
    let well_formed = text.len() <= 253
        && text.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        });
    if !well_formed {
        return Err(TargetError::BadHost);
    }
    // Resolvers read a last label that is a number as part of an IPv4 address.
    let last = text.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || is_hex_number(last) {
        return Err(TargetError::NumericName);
    }
    Ok(TargetHost::Name(text.to_ascii_lowercase()))
}

fn is_hex_number(label: &str) -> bool {
    label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"))
        .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// What an event shows of a destination that could not be read: short, printable.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .take(255)
        .flat_map(char::escape_default)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_refused_or_read_as_what_reads_the_same_again(
            text in prop_oneof![".*", "[a-zA-Z0-9.:%@\\[\\]x_-]{0,30}"],
        ) {
            if let Ok(target) = Target::parse(&text, None) {
                let written = target.to_string();
                prop_assert_eq!(Target::parse(&written, None), Ok(target.clone()));
                prop_assert!(written.is_ascii() && !written.bytes().any(|b| b.is_ascii_uppercase()));
                // What a resolver could take for an address is one, in its usual spelling.
                if let Some(name) = target.name() {
                    prop_assert!(name.parse::<IpAddr>().is_err());
                }
            }
        }
    }

    #[test]
    fn destinations_are_read_in_one_spelling() {
        for (text, default, wanted) in [
            ("example.com:443", None, "example.com:443"),
            ("EXAMPLE.Com:443", None, "example.com:443"),
            ("example.com", Some(80), "example.com:80"),
            ("a_b.example.com:1", None, "a_b.example.com:1"),
            ("10.0.0.1:65535", None, "10.0.0.1:65535"),
            ("[2001:DB8:0::1]:443", None, "[2001:db8::1]:443"),
            ("[::1]", Some(80), "[::1]:80"),
            ("registry:5000", None, "registry:5000"),
            (
                "XN--BCHER-KVA.example:443",
                None,
                "xn--bcher-kva.example:443",
            ),
            ("example.com:00443", None, "example.com:443"),
            ("[::ffff:10.0.0.1]:80", None, "[::ffff:10.0.0.1]:80"),
            ("[::ffff:a00:1]:80", None, "[::ffff:10.0.0.1]:80"),
            ("0x7f.example.com:80", None, "0x7f.example.com:80"),
            ("1.example:80", None, "1.example:80"),
        ] {
            let target = Target::parse(text, default).expect(text);
            assert_eq!(target.to_string(), wanted);
        }
    }

    #[test]
    fn texts_that_could_mean_something_else_are_refused_with_the_reason() {
        for (text, wanted) in [
            (":443", TargetError::EmptyHost),
            ("", TargetError::EmptyHost),
            ("user@example.com:443", TargetError::UserInfo),
            ("user:pass@example.com:443", TargetError::UserInfo),
            ("example.com.:443", TargetError::TrailingDot),
            (".:443", TargetError::TrailingDot),
            ("exämple.com:443", TargetError::NotAscii),
            ("ex%61mple.com:443", TargetError::NotAscii),
            ("b\u{fc}cher.example:443", TargetError::NotAscii),
            ("\u{ff41}.example:443", TargetError::NotAscii),
            ("a\u{3002}example:443", TargetError::NotAscii),
            ("a\u{200b}.example:443", TargetError::NotAscii),
            ("a%2eexample:443", TargetError::NotAscii),
            ("%31%32%37.0.0.1:80", TargetError::NotAscii),
            ("127.0.0.1.:80", TargetError::TrailingDot),
            ("example.com..:80", TargetError::TrailingDot),
            ("127.1:80", TargetError::NumericName),
            ("127.0.1:80", TargetError::NumericName),
            ("0:80", TargetError::NumericName),
            ("017700000001:80", TargetError::NumericName),
            ("0x7F000001:80", TargetError::NumericName),
            ("0X7f.1:80", TargetError::NumericName),
            ("127.0.0.0x1:80", TargetError::NumericName),
            ("127.0.0.01:80", TargetError::NumericName),
            ("127.0.0.256:80", TargetError::NumericName),
            ("1.1:80", TargetError::NumericName),
            ("a.127:80", TargetError::NumericName),
            ("2130706433:80", TargetError::NumericName),
            ("0177.0.0.01:80", TargetError::NumericName),
            ("0x7f.0.0.0x1:80", TargetError::NumericName),
            ("a.0x:80", TargetError::NumericName),
            ("1.2.3.4.5:80", TargetError::NumericName),
            ("example.com", TargetError::BadPort),
            ("example.com:", TargetError::BadPort),
            ("example.com:0", TargetError::BadPort),
            ("example.com:+80", TargetError::BadPort),
            ("example.com:65536", TargetError::BadPort),
            ("example.com:000080", TargetError::BadPort),
            ("::1:80", TargetError::EmptyHost),
            ("fe80::1:80", TargetError::NumericName),
            ("[::1:80", TargetError::BadHost),
            ("[::1]x:80", TargetError::BadHost),
            ("[fe80::1%25eth0]:80", TargetError::BadHost),
            ("[fe80::1%eth0]:80", TargetError::BadHost),
            ("[v1.x]:80", TargetError::BadHost),
            ("[127.0.0.1]:80", TargetError::BadHost),
            ("[]:80", TargetError::BadHost),
            ("[::1]]:80", TargetError::BadHost),
            ("[[::1]]:80", TargetError::BadHost),
            (".a:80", TargetError::BadHost),
            ("a.\0.b:80", TargetError::BadHost),
            ("a\t:80", TargetError::BadHost),
            ("*.a.com:80", TargetError::BadHost),
            ("a.com:80:80", TargetError::BadPort),
            ("a.com: 80", TargetError::BadPort),
            ("a.com:0x50", TargetError::BadPort),
            ("a.com:\u{ff18}\u{ff10}", TargetError::BadPort),
            ("a..b:80", TargetError::BadHost),
            ("a b:80", TargetError::BadHost),
            ("a/b:80", TargetError::BadHost),
            ("a\\b:80", TargetError::BadHost),
        ] {
            match Target::parse(text, None) {
                Err(error) if text.starts_with("fe80") => {
                    assert_ne!(error, TargetError::EmptyHost);
                }
                other => assert_eq!(other, Err(wanted), "{text}"),
            }
        }
    }
}
