//! Headers on their way through: hop-by-hop ones stay behind, ours are put on, ours are kept from the app.
//!
//! The app gets `Host` as the browser sent it, so that links and origin checks in it are right; servers that check
//! names take those below `.localhost`.

use super::enter::COOKIE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Headers of one connection only.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Takes away what is of one connection only, and says which protocol it was to become.
pub(super) fn take_hop_by_hop(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let connection: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let upgrade = connection
        .iter()
        .any(|name| name == "upgrade")
        .then(|| headers.get(header::UPGRADE).cloned())
        .flatten();
    let named = connection.iter().map(String::as_str);
    for name in HOP_BY_HOP.iter().copied().chain(named) {
        // What the request is routed by cannot be named away.
        if name != "host" {
            headers.remove(name);
        }
    }
    upgrade
}

/// Makes a request's headers those that the app gets.
pub(super) fn for_app(headers: &mut HeaderMap, token: &str, port: u16) {
    hide_token(headers, token);
    hide_cookie(headers);
    // Answered here already.
    headers.remove(header::EXPECT);
    headers.remove(header::FORWARDED);
    let host = headers.get(header::HOST).cloned();
    let known: [(&'static str, Option<HeaderValue>); 4] = [
        (
            "x-forwarded-for",
            Some(HeaderValue::from_static("127.0.0.1")),
        ),
        ("x-forwarded-proto", Some(HeaderValue::from_static("http"))),
        ("x-forwarded-host", host),
        ("x-forwarded-port", Some(HeaderValue::from(port))),
    ];
    for (name, value) in known {
        match value {
            Some(value) => headers.insert(HeaderName::from_static(name), value),
            None => headers.remove(name),
        };
    }
}

/// The API's token never reaches what runs inside. The app's own credentials do.
fn hide_token(headers: &mut HeaderMap, token: &str) {
    let has_ours = |value: &HeaderValue| {
        let bytes = value.as_bytes();
        !token.is_empty()
            && bytes
                .windows(token.len())
                .any(|part| part == token.as_bytes())
    };
    let holds: Vec<HeaderName> = headers
        .iter()
        .filter(|(_, value)| has_ours(value))
        .map(|(name, _)| name.clone())
        .collect();
    let protocols = without(headers, header::SEC_WEBSOCKET_PROTOCOL, ',', |part| {
        part.contains(token)
    });
    for name in holds {
        headers.remove(name);
    }
    if let Some(rest) = protocols {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, rest);
    }
}

fn hide_cookie(headers: &mut HeaderMap) {
    let rest = without(headers, header::COOKIE, ';', |part| {
        part.split_once('=').is_some_and(|(name, _)| name == COOKIE)
    });
    headers.remove(header::COOKIE);
    if let Some(rest) = rest {
        headers.insert(header::COOKIE, rest);
    }
}

/// The parts of a header that are not `ours`, put together again; `None` when none is left.
fn without(
    headers: &HeaderMap,
    name: HeaderName,
    separator: char,
    ours: impl Fn(&str) -> bool,
) -> Option<HeaderValue> {
    let rest: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(separator))
        .map(str::trim)
        .filter(|part| !part.is_empty() && !ours(part))
        .collect();
    let joined = rest.join(&format!("{separator} "));
    (!rest.is_empty())
        .then(|| HeaderValue::from_str(&joined).ok())
        .flatten()
}

/// Makes an answer's headers those that the browser gets: cookies stay with this preview, and none is ours.
pub(super) fn for_browser(headers: &mut HeaderMap) {
    headers.remove("alt-svc");
    let cookies: Vec<HeaderValue> = headers
        .get_all(header::SET_COOKIE)
        .iter()
        .filter_map(cookie_of_this_host)
        .collect();
    headers.remove(header::SET_COOKIE);
    for cookie in cookies {
        headers.append(header::SET_COOKIE, cookie);
    }
}

/// The cookie without a domain; `None` for one named as ours, or that cannot be read.
fn cookie_of_this_host(value: &HeaderValue) -> Option<HeaderValue> {
    let bytes = value.as_bytes();
    let mut parts = bytes.split(|b| *b == b';');
    let pair = parts.next()?;
    let name = pair.split(|b| *b == b'=').next()?;
    if name.trim_ascii() == COOKIE.as_bytes() {
        return None;
    }
    let is_domain = |part: &&[u8]| {
        let name = part.split(|b| *b == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"domain")
    };
    let mut whole = pair.to_vec();
    for part in parts.filter(|part| !is_domain(part)) {
        whole.push(b';');
        whole.extend_from_slice(part);
    }
    HeaderValue::from_bytes(&whole).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().expect("value"));
        }
        map
    }

    #[test]
    fn the_token_and_our_cookie_stay_here_and_the_apps_own_go_on() {
        let mut map = headers(&[
            ("host", "1-sb.localhost:7430"),
            ("authorization", "Bearer t0ken"),
            ("x-odd", "prefix t0ken suffix"),
            ("sec-websocket-protocol", "chat, bearer.t0ken, v2"),
            ("cookie", "a=b; handler_preview=seal; c=d"),
            ("x-forwarded-for", "6.6.6.6"),
            ("forwarded", "for=6.6.6.6"),
        ]);
        for_app(&mut map, "t0ken", 7430);
        assert!(!format!("{map:?}").contains("t0ken"), "{map:?}");
        assert_eq!(map["cookie"], "a=b; c=d");
        assert_eq!(map["sec-websocket-protocol"], "chat, v2");
        assert_eq!(map["x-forwarded-for"], "127.0.0.1");
        assert_eq!(map["x-forwarded-host"], "1-sb.localhost:7430");
        assert!(!map.contains_key("forwarded"));
        let mut own = headers(&[
            ("authorization", "Basic abc"),
            ("cookie", "handler_preview=x"),
        ]);
        for_app(&mut own, "t0ken", 1);
        assert_eq!(own["authorization"], "Basic abc");
        assert!(!own.contains_key("cookie"));
    }

    #[test]
    fn hop_by_hop_headers_and_those_they_name_stay_behind() {
        let mut map = headers(&[
            ("host", "h"),
            ("connection", "Upgrade, X-Secret, Host"),
            ("upgrade", "websocket"),
            ("x-secret", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
        ]);
        assert_eq!(take_hop_by_hop(&mut map).expect("upgrade"), "websocket");
        assert_eq!(map.len(), 1);
        assert_eq!(map["host"], "h");
        let mut map = headers(&[("upgrade", "websocket")]);
        assert_eq!(take_hop_by_hop(&mut map), None, "not asked for");
    }

    #[test]
    fn an_apps_cookies_stay_with_its_preview() {
        let mut map = headers(&[
            ("set-cookie", "a=b; Path=/; Domain=localhost; HttpOnly"),
            ("set-cookie", "handler_preview=forged; Path=/"),
            ("set-cookie", " handler_preview =forged"),
            ("set-cookie", "c=d; domain=.localhost"),
        ]);
        for_browser(&mut map);
        let all: Vec<_> = map.get_all("set-cookie").iter().collect();
        assert_eq!(all, ["a=b; Path=/; HttpOnly", "c=d"]);
    }
}
