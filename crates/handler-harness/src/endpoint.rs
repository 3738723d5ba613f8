//! A provider's endpoint as a sandbox sees it: the machine's loopback becomes the host alias, and the
//! destination it needs comes out as an allow-list entry.
//!
//! The reader is narrow on purpose: what it does not understand it refuses, so that the entry and the
//! URL given to the harness always mean the same host.

use handler_types::network::{AllowEntry, AllowEntryError, HOST_ALIAS};
use std::net::{IpAddr, Ipv6Addr};

/// Longest endpoint, bytes.
const MAX_LENGTH: usize = 2048;

/// An endpoint, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The URL for the harness: no slash at the end, loopback replaced by [`HOST_ALIAS`].
    pub url: String,
    /// The destination it needs.
    pub allow: AllowEntry,
}

/// Why a text is not an endpoint. The text itself is not repeated: it may carry a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not `http://` or `https://`.
    #[error("it must start with http:// or https://")]
    Scheme,
    /// Over 2048 bytes.
    #[error("it is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// A space, a control character or one outside ASCII.
    #[error("it may only hold printable ASCII characters without spaces or backslashes")]
    Characters,
    /// `user:password@`.
    #[error("it may not hold a user name or password: give the key as a secret")]
    Credentials,
    /// `?…` or `#…`.
    #[error("it may not hold a query or fragment")]
    Query,
    /// The host or port cannot be reached through the filter.
    #[error(transparent)]
    Destination(#[from] AllowEntryError),
}

impl Endpoint {
    /// Reads an endpoint.
    ///
    /// # Errors
    /// [`EndpointError`] says what is wrong.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if text.len() > MAX_LENGTH {
            return Err(EndpointError::TooLong);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
            return Err(EndpointError::Characters);
        }
        let (scheme, rest) = text.split_once("://").ok_or(EndpointError::Scheme)?;
        let scheme = scheme.to_ascii_lowercase();
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return Err(EndpointError::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(EndpointError::Credentials);
        }
        if path.contains(['?', '#']) {
            return Err(EndpointError::Query);
        }
        let (host, port) = split_port(authority);
        let host = if is_loopback(host) { HOST_ALIAS } else { host };
        let allow: AllowEntry = match port {
            Some(port) => format!("{host}:{port}"),
            None => format!("{host}:{default_port}"),
        }
        .parse()?;
        if matches!(allow.host, handler_types::network::AllowHost::Below(_)) {
            return Err(AllowEntryError::BadHost(host.to_owned()).into());
        }
        // Written back from the entry, so that both name the same destination.
        let destination = allow.to_string();
        let authority = match port {
            Some(_) => destination.as_str(),
            None => destination
                .strip_suffix(&format!(":{default_port}"))
                .unwrap_or(&destination),
        };
        let path = path.trim_end_matches('/');
        Ok(Self {
            url: format!("{scheme}://{authority}{path}"),
            allow,
        })
    }

    /// Whether the destination is `domain` or below it.
    #[must_use]
    pub(crate) fn is_of(&self, domain: &str) -> bool {
        match &self.allow.host {
            handler_types::network::AllowHost::Exact(name) => {
                name == domain || name.ends_with(&format!(".{domain}"))
            }
            _ => false,
        }
    }
}

/// The host (with its brackets) and the port, if one is written.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    if authority.starts_with('[') {
        return match authority.rsplit_once("]:") {
            Some((host, port)) => (&authority[..=host.len()], Some(port)),
            None => (authority, None),
        };
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    }
}

/// Whether a host means the machine itself: inside a sandbox that would be the sandbox.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim_end_matches('.');
    if bare.eq_ignore_ascii_case("localhost") || bare.to_ascii_lowercase().ends_with(".localhost") {
        return true;
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Ok(IpAddr::V6(ip)) => {
            ip.is_unspecified()
                || ip == Ipv6Addr::LOCALHOST
                || ip.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(text: &str) -> (String, String) {
        let endpoint = Endpoint::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        (endpoint.url, endpoint.allow.to_string())
    }

    #[test]
    fn the_port_comes_from_the_scheme_unless_written() {
        for (text, url, allow) in [
            (
                "https://api.example.com",
                "https://api.example.com",
                "api.example.com:443",
            ),
            (
                "http://API.example.com/v1/",
                "http://api.example.com/v1",
                "api.example.com:80",
            ),
            (
                "HTTPS://gate.example.com:8443/a/b",
                "https://gate.example.com:8443/a/b",
                "gate.example.com:8443",
            ),
            (
                "http://192.168.1.20:11434/v1",
                "http://192.168.1.20:11434/v1",
                "192.168.1.20:11434",
            ),
            (
                "https://[2001:db8::1]/v1",
                "https://[2001:db8::1]/v1",
                "[2001:db8::1]:443",
            ),
            (
                "https://a.example.com:443",
                "https://a.example.com:443",
                "a.example.com:443",
            ),
        ] {
            assert_eq!(both(text), (url.to_owned(), allow.to_owned()), "{text}");
        }
    }

    #[test]
    fn loopback_becomes_the_host_alias() {
        for host in [
            "127.0.0.1",
            "localhost",
            "LocalHost",
            "[::1]",
            "127.1.2.3",
            "0.0.0.0",
            "[::ffff:127.0.0.1]",
            "models.localhost",
        ] {
            assert_eq!(
                both(&format!("http://{host}:8080/v1")),
                (
                    "http://host.containers.internal:8080/v1".to_owned(),
                    "host.containers.internal:8080".to_owned()
                ),
                "{host}"
            );
        }
        assert_eq!(
            both("http://localhost").1,
            "host.containers.internal:80".to_owned()
        );
        assert_eq!(
            both("http://localhost.example.com:1").1,
            "localhost.example.com:1"
        );
    }

    #[test]
    fn what_is_not_a_plain_address_is_refused() {
        for text in [
            "",
            "api.example.com",
            "ftp://a.example.com",
            "unix:///run/x",
            "http://",
            "http:///v1",
            "http://a.example.com:0",
            "http://a.example.com:70000",
            "http://a.example.com:",
            "http://user:pw@a.example.com",
            "http://a.example.com?x=1",
            "http://a.example.com/#x",
            "http://a example.com",
            "http://a.example.com\\@evil.example.com",
            "http://a.example.com/\r\nx",
            "http://münchen.example.com",
            "http://*.example.com",
            "http://one",
            "http://[::1",
            "http://[::1]x:1",
            "http://1:2:3:4",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            Endpoint::parse(&format!("http://a.example.com/{}", "x".repeat(4096))),
            Err(EndpointError::TooLong)
        );
    }

    #[test]
    fn a_refusal_does_not_repeat_a_password() {
        let error = Endpoint::parse("http://user:hunter2@a.example.com").unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_the_result_reads_back_the_same(
            text in "(http|https)://[a-z0-9.:\\[\\]@/%-]{0,40}",
        ) {
            if let Ok(endpoint) = Endpoint::parse(&text) {
                let again = Endpoint::parse(&endpoint.url).unwrap();
                proptest::prop_assert_eq!(again, endpoint);
            }
        }
    }
}
