//! Who is let in to a preview.

use super::page;
use crate::app::previews::{COOKIE_SECS, Preview};
use crate::http::auth;
use crate::state::App;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use handler_base::clock::now_ms;
use std::time::Instant;

/// The cookie of a preview. It has no domain, so that no other host gets it.
pub(super) const COOKIE: &str = "handler_preview";
/// The one path of a preview that the app inside never sees.
pub(in crate::http) const ENTRANCE: &str = "/.handler/enter";

/// At the entrance: gives the cookie for a ticket and leads to the page. `None` elsewhere.
pub(super) fn redeem(app: &App, preview: &Preview, request: &Request) -> Option<Response> {
    if request.uri().path() != ENTRANCE {
        return None;
    }
    let query = request.uri().query().unwrap_or_default();
    let ticket = query.strip_prefix("ticket=").unwrap_or_default();
    let Some(path) = app.previews.redeem(preview, ticket, Instant::now()) else {
        let text = "This link was used already or is too old. Open the preview again: \
                    `handler sandbox open SANDBOX PORT`.";
        return Some(page(StatusCode::FORBIDDEN, text));
    };
    let mut response = page(StatusCode::SEE_OTHER, "Welcome.");
    let value = app.previews.cookie(preview, now_ms());
    let cookie = format!("{COOKIE}={value}; Path=/; Max-Age={COOKIE_SECS}; HttpOnly; SameSite=Lax");
    let headers = response.headers_mut();
    for (name, value) in [(header::SET_COOKIE, cookie), (header::LOCATION, path)] {
        // Both are checked printable ASCII.
        headers.insert(name, HeaderValue::from_str(&value).ok()?);
    }
    Some(response)
}

/// Why a request is not let in: who is has the cookie or the API's token, and no other page made the request.
pub(super) fn refusal(app: &App, preview: &Preview, request: &Request) -> Option<Response> {
    let headers = request.headers();
    if !is_own(headers, request.method()) {
        let text = "Another page made this request; only the preview's own pages may.";
        return Some(page(StatusCode::FORBIDDEN, text));
    }
    let has_cookie = cookies(headers).any(|value| app.previews.is_good(preview, value, now_ms()));
    if has_cookie || auth::has_token(headers, app.token()) {
        return None;
    }
    let text = format!(
        "This preview is open only to who was let in. Open it with `handler sandbox open {} {}`.",
        preview.sandbox, preview.port
    );
    Some(page(StatusCode::UNAUTHORIZED, &text))
}

/// Values of our cookie. A request may have several: a page cannot get rid of the good one by adding others.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
        .take(8)
}

/// Whether no other origin's page made the request: links that lead here are fine, all else of others is not.
fn is_own(headers: &HeaderMap, method: &Method) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(origin) = headers.get(header::ORIGIN) {
        let host = text("host").unwrap_or_default();
        let own = format!("http://{host}");
        if !origin.as_bytes().eq_ignore_ascii_case(own.as_bytes()) {
            return false;
        }
    }
    match text("sec-fetch-site") {
        None | Some("same-origin" | "none") => true,
        Some(_) => {
            let is_link = text("sec-fetch-mode") == Some("navigate");
            is_link && matches!(*method, Method::GET | Method::HEAD)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        map.insert("host", HeaderValue::from_static("1-sb.localhost:7430"));
        for (name, value) in pairs {
            map.append(*name, value.parse().expect("value"));
        }
        map
    }

    #[test]
    fn other_pages_may_link_here_and_do_nothing_else() {
        let own = "http://1-sb.localhost:7430";
        let other = "http://2-sb.localhost:7430";
        let is_own = |pairs: &[(&'static str, &str)], method| is_own(&headers(pairs), &method);
        assert!(is_own(&[], Method::POST));
        assert!(is_own(&[("origin", own)], Method::POST));
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ];
        assert!(is_own(&link, Method::GET));
        assert!(!is_own(&link, Method::POST));
        for bad in [
            &[("origin", other)][..],
            &[("origin", "null")],
            &[("origin", "https://1-sb.localhost:7430")],
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "no-cors"),
            ],
            &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")],
        ] {
            assert!(!is_own(bad, Method::GET), "{bad:?}");
        }
    }

    #[test]
    fn our_cookie_is_found_among_others() {
        let map = headers(&[
            ("cookie", "a=b; handler_preview=one; x=y"),
            ("cookie", "handler_preview=two;handler_previews=no"),
        ]);
        assert_eq!(cookies(&map).collect::<Vec<_>>(), ["one", "two"]);
    }
}
