//! The form of an endpoint: `http(s)://host[:port][/path]`, without user, query and fragment.

/// Longest URL, in bytes.
const MAX_LENGTH: usize = 2000;

/// Checks an endpoint's URL. What is refused is never repeated: a key may have been written into it.
///
/// # Errors
/// The broken rule, in words.
pub fn check_endpoint(url: &str) -> Result<(), &'static str> {
    if url.len() > MAX_LENGTH {
        return Err("a URL has at most 2000 characters");
    }
    if !url.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("a URL holds no spaces, control or non-ASCII characters");
    }
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
        .ok_or("a URL starts with http:// or https://")?;
    if rest.contains(['?', '#']) {
        return Err("a URL here has no query and no fragment");
    }
    if rest.contains(['\\', '"', '<', '>', '`']) {
        return Err("a URL holds none of \\ \" < > `");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("a URL holds no user and no password: the key goes into apiKey");
    }
    check_authority(authority)
}

fn check_authority(authority: &str) -> Result<(), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or("a URL's `[` has no `]`")?;
            address
                .parse::<std::net::Ipv6Addr>()
                .map_err(|_| "the URL's host in brackets is not an IPv6 address")?;
            (
                address,
                after
                    .strip_prefix(':')
                    .or((!after.is_empty()).then_some("")),
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_host = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
    if host.is_empty() || host.len() > 253 || !host.bytes().all(is_host) {
        return Err("a URL needs a host name or address");
    }
    let is_port = |text: &str| {
        text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
    };
    if port.is_some_and(|port| !is_port(port)) {
        return Err("the URL's port is not a number from 1 to 65535");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_plain_http_urls() {
        for good in [
            "https://api.example.com",
            "http://localhost:11434/v1",
            "https://example.com/a/b/",
            "http://[::1]:8080/v1",
            "http://127.0.0.1:1",
            "http://[2001:db8::1]",
        ] {
            assert_eq!(check_endpoint(good), Ok(()), "{good}");
        }
        let long = format!("https://a/{}", "x".repeat(2000));
        for bad in [
            "",
            "ftp://example.com",
            "HTTPS://example.com",
            "https://",
            "https:///path",
            "https://:80",
            "https://user:key@example.com",
            "https://a b",
            "https://a\n",
            "https://exämple.com",
            "https://a:0",
            "https://a:65536",
            "https://a:+80",
            "https://a:",
            "https://a:1:2",
            "http://[::1",
            "http://[example]",
            "http://[::1]x",
            "https://a?key=1",
            "https://a/#f",
            "https://a\\b",
            &long,
        ] {
            assert!(check_endpoint(bad).is_err(), "{bad}");
        }
    }
}
