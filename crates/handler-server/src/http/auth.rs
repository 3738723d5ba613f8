//! Who may speak to the daemon: a token on every request, and only from pages and names of our own.
//!
//! `Host` is checked against DNS rebinding, `Origin` against other sites' pages. A WebSocket carries
//! the token as subprotocol `bearer.<token>`, since browsers cannot set headers on it.

use super::problem::ApiError;
use crate::app::audit;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use handler_types::ProblemCode;
use handler_types::audit::Actor;
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

/// Paths that need no token (Host and Origin are checked all the same).
const OPEN_PATHS: &[&str] = &["/v1/health", "/openapi.json"];

/// What the scraper's own token opens, and nothing else.
const SCRAPE_PATH: &str = "/metrics";

/// Most of a client's name that is kept, characters.
const LONGEST_NAME: usize = 80;

/// The middleware.
///
/// # Errors
/// 403 for a foreign Host or Origin, 401 without the token.
pub async fn check(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check_host(request.headers(), app.port())?;
    check_origin(request.headers(), app.port())?;
    let path = request.uri().path();
    let is_scrape = path == SCRAPE_PATH && has_token(request.headers(), app.observe.scrape_token());
    if !OPEN_PATHS.contains(&path) && !is_scrape && !has_token(request.headers(), app.token()) {
        return Err(ApiError::new(
            ProblemCode::Unauthorized,
            "send the token of the config folder as `Authorization: Bearer <token>`",
        ));
    }
    let actor = Actor::Client {
        name: client_name(request.headers()),
    };
    Ok(audit::ACTOR.scope(actor, next.run(request)).await)
}

/// What a client calls itself, bounded; the audit log shows it.
fn client_name(headers: &HeaderMap) -> String {
    let name = headers
        .get(header::USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    name.chars().take(LONGEST_NAME).collect()
}

fn is_own_authority(authority: &str, port: u16) -> bool {
    let (host, given) = match authority.rsplit_once(':') {
        Some((host, digits)) if !host.is_empty() && !digits.contains(']') => {
            (host, digits.parse::<u16>().ok())
        }
        _ => (authority, Some(80)),
    };
    // Over the Unix socket the client has no port to name.
    let is_bare_localhost = authority == "localhost";
    matches!(host, "127.0.0.1" | "localhost" | "[::1]")
        && (given == Some(port) || is_bare_localhost)
}

fn check_host(headers: &HeaderMap, port: u16) -> Result<(), ApiError> {
    let host = headers
        .get(header::HOST)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    if is_own_authority(host, port) {
        return Ok(());
    }
    Err(ApiError::new(
        ProblemCode::Forbidden,
        "host not allowed: use 127.0.0.1 or localhost",
    ))
}

fn check_origin(headers: &HeaderMap, port: u16) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let is_own = origin
        .to_str()
        .ok()
        .and_then(|o| o.strip_prefix("http://"))
        .is_some_and(|authority| is_own_authority(authority, port));
    if is_own {
        Ok(())
    } else {
        Err(ApiError::new(ProblemCode::Forbidden, "origin not allowed"))
    }
}

/// Whether a request holds the token, as header or subprotocol.
pub(super) fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer "));
    let protocols = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|p| p.trim().strip_prefix("bearer."));
    bearer
        .into_iter()
        .chain(protocols)
        .any(|given| given.as_bytes().ct_eq(token.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_and_port_are_accepted() {
        for good in [
            "127.0.0.1:7430",
            "localhost:7430",
            "[::1]:7430",
            "localhost",
        ] {
            assert!(is_own_authority(good, 7430), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:7430",
            "localhost:1",
            "",
            ":7430",
            "127.0.0.1.evil.example:7430",
            "localhost.evil:7430",
        ] {
            assert!(!is_own_authority(bad, 7430), "{bad}");
        }
    }

    #[test]
    fn the_token_is_taken_from_header_or_subprotocol() {
        let mut headers = HeaderMap::new();
        assert!(!has_token(&headers, "t0k"));
        headers.insert(
            header::SEC_WEBSOCKET_PROTOCOL,
            "acp.v1, bearer.t0k".parse().expect("value"),
        );
        assert!(has_token(&headers, "t0k"));
        headers.clear();
        headers.insert(header::AUTHORIZATION, "Bearer t0k2".parse().expect("value"));
        assert!(!has_token(&headers, "t0k"));
    }
}
