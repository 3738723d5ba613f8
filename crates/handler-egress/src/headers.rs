//! Header work that both directions share: fields of one hop are taken out, values are swapped.

use crate::scan::{Leak, Needles, wiped};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

/// Whether a comma-separated field has this token.
pub(crate) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

/// The protocol a message asks to change to, if it does. HTTP/2 and TLS are none of them: behind such a
/// change requests would no longer be looked at.
pub(crate) fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    if !has_token(headers, &CONNECTION, "upgrade") {
        return None;
    }
    let value = headers.get(UPGRADE)?;
    let text = value.to_str().ok()?.to_ascii_lowercase();
    let known = |part: &str| {
        let part = part.trim();
        !part.is_empty()
            && !["h2", "http/", "tls/"]
                .iter()
                .any(|web| part.starts_with(web))
    };
    text.split(',').all(known).then(|| value.clone())
}

/// Takes out the fields that concern only this hop, and those that `Connection` names; a length beside
/// a transfer coding is none.
pub(crate) fn strip_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|part| part.trim().parse::<HeaderName>().ok())
        .filter(|name| *name != HOST && *name != CONTENT_LENGTH)
        .collect();
    let trailers = has_token(headers, &TE, "trailers");
    for name in named {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
    ] {
        headers.remove(name);
    }
    headers.remove("proxy-connection");
    headers.remove("keep-alive");
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Swaps in every value but those that frame the message.
pub(crate) fn rewrite(
    headers: &mut HeaderMap,
    needles: &Needles,
    found: &mut Vec<usize>,
) -> Result<(), Leak> {
    if needles.is_empty() {
        return Ok(());
    }
    for (name, value) in headers.iter_mut() {
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            continue;
        }
        if let Some(swapped) = needles.rewrite(value.as_bytes(), found)? {
            // What is put in is printable, so the value stays a valid one.
            if let Ok(swapped) = HeaderValue::from_maybe_shared(wiped(swapped)) {
                *value = swapped;
                value.set_sensitive(true);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(
                name.parse::<HeaderName>().expect("name"),
                value.parse().expect("value"),
            );
        }
        map
    }

    #[test]
    fn fields_of_one_hop_are_taken_out_and_the_others_stay() {
        let mut map = headers(&[
            ("connection", "keep-alive, X-Private, host"),
            ("x-private", "1"),
            ("keep-alive", "5"),
            ("proxy-authorization", "Basic x"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip, trailers"),
            ("upgrade", "h2c"),
            ("host", "a.com"),
            ("content-length", "3"),
            ("x-kept", "1"),
        ]);
        strip_hop(&mut map);
        let mut left: Vec<&str> = map.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "te", "x-kept"]);
        assert_eq!(map["te"], "trailers");
        let mut map = headers(&[("connection", "content-length"), ("content-length", "3")]);
        strip_hop(&mut map);
        assert_eq!(map["content-length"], "3");
    }

    #[test]
    fn only_upgrades_that_leave_http_are_passed_on() {
        let wants = |value| {
            wanted_upgrade(&headers(&[("connection", "Upgrade"), ("upgrade", value)])).is_some()
        };
        assert!(wants("websocket"));
        for value in ["h2c", "HTTP/2.0", "TLS/1.0", "websocket, h2c", ""] {
            assert!(!wants(value), "{value}");
        }
        assert!(wanted_upgrade(&headers(&[("upgrade", "websocket")])).is_none());
    }
}
