//! P3: an MCP server with a `url` must be reachable under the session's network policy.

use super::Refusal;
use crate::acp::{RawObject, codes};
use handler_types::network::{Enforcement, NetworkPolicy};

/// Most servers looked at.
const MAX_SERVERS: usize = 64;

/// Checks every entry of `mcpServers`; servers without a `url` run in the sandbox and pass.
///
/// # Errors
/// P3 (-32002) for a destination that is not allowed or not readable.
pub fn check(params: &RawObject, network: &NetworkPolicy) -> Result<(), Refusal> {
    let refuse = |message: String| Refusal::by("P3", codes::MCP_NOT_ALLOWED, message);
    let Some(raw) = params.get("mcpServers").filter(|raw| raw.get() != "null") else {
        return Ok(());
    };
    let servers: Vec<RawObject> = serde_json::from_str(raw.get())
        .map_err(|_| refuse("mcpServers must be a list of servers".to_owned()))?;
    if servers.len() > MAX_SERVERS {
        return Err(refuse(format!("more than {MAX_SERVERS} MCP servers")));
    }
    for server in &servers {
        if server.get("url").is_none() {
            continue;
        }
        let url: String = server
            .read("url")
            .ok_or_else(|| refuse("an MCP url must be text".to_owned()))?;
        let (host, port) =
            destination(&url).ok_or_else(|| refuse("an MCP url that cannot be read".to_owned()))?;
        if !allows(network, &host, port) {
            return Err(refuse(format!(
                "{host}:{port} is not on the session's allow-list"
            )));
        }
    }
    Ok(())
}

fn allows(network: &NetworkPolicy, host: &str, port: u16) -> bool {
    match network {
        NetworkPolicy::None => false,
        NetworkPolicy::Open => true,
        NetworkPolicy::Filtered { allow, enforcement } => {
            *enforcement == Enforcement::LogOnly
                || allow.iter().any(|entry| entry.matches(host, port))
        }
    }
}

/// Host and port of an http(s) URL. Anything unusual is `None`: a parser that guesses differently from
/// the agent's would let a destination through.
fn destination(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let default = match scheme.to_ascii_lowercase().as_str() {
        "https" | "wss" => 443,
        "http" | "ws" => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    if authority.is_empty() || !authority.is_ascii() || authority.contains(['@', '\\', '%']) {
        return None;
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']')?;
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, _)) => (host, &authority[host.len()..]),
            None => (authority, ""),
        },
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default,
        Some("") => default,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    (!host.is_empty() && port > 0 && !host.contains(char::is_whitespace))
        .then(|| (host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered() -> NetworkPolicy {
        NetworkPolicy::Filtered {
            allow: vec![
                "mcp.example.com:443".parse().expect("entry"),
                "[2001:db8::1]:8080".parse().expect("entry"),
            ],
            enforcement: Enforcement::Enforce,
        }
    }

    #[test]
    fn destinations_follow_the_network_policy() {
        for (servers, passes) in [
            (r"null", true),
            (r"[]", true),
            (r#"[{"name":"a","command":"x"}]"#, true),
            (r#"[{"url":"https://mcp.example.com/sse"}]"#, true),
            (r#"[{"url":"https://MCP.example.com:443?x=1"}]"#, true),
            (r#"[{"url":"http://[2001:db8::1]:8080/"}]"#, true),
            (r#"[{"url":"http://mcp.example.com/"}]"#, false),
            (r#"[{"url":"https://mcp.example.com:8443/"}]"#, false),
            (
                r#"[{"url":"https://mcp.example.com@evil.example/"}]"#,
                false,
            ),
            (
                r#"[{"url":"https://evil.example\\@mcp.example.com/"}]"#,
                false,
            ),
            (r#"[{"url":"https://mcp.example.com:443x/"}]"#, false),
            (r#"[{"url":"https:///x"}]"#, false),
            (r#"[{"url":"file:///etc/passwd"}]"#, false),
            (r#"[{"url":7}]"#, false),
            (
                r#"[{"command":"x"},{"url":"https://other.example/"}]"#,
                false,
            ),
            (r"{}", false),
            (r#"["https://mcp.example.com"]"#, false),
        ] {
            let object = RawObject::parse(format!("{{\"mcpServers\":{servers}}}").as_bytes())
                .expect(servers);
            assert_eq!(check(&object, &filtered()).is_ok(), passes, "{servers}");
        }
    }

    #[test]
    fn none_reaches_nothing_and_open_everything() {
        let object = RawObject::parse(br#"{"mcpServers":[{"url":"https://any.example/"}]}"#)
            .expect("object");
        assert!(check(&object, &NetworkPolicy::None).is_err());
        assert!(check(&object, &NetworkPolicy::Open).is_ok());
    }
}
