//! P8: the platform's own MCP servers stand in every conversation a client opens.
//!
//! Runs before P2 and P3, so that they see what the agent will get. A client's server of the same name goes: it
//! could otherwise stand in for one that the agent is told to trust.

use super::Refusal;
use crate::acp::{RawObject, codes};
use handler_types::harness::McpServer;
use serde_json::value::RawValue;

/// Appends `own` to `mcpServers`; gives the names of the client's servers that made room.
///
/// # Errors
/// -32602 when `mcpServers` is no list.
pub fn append(params: &mut RawObject, own: &[McpServer]) -> Result<Vec<String>, Refusal> {
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let given: Vec<Box<RawValue>> = match params.get("mcpServers").map(RawValue::get) {
        None | Some("null") => Vec::new(),
        Some(text) => serde_json::from_str(text).map_err(|_| {
            Refusal::new(
                codes::INVALID_PARAMS,
                "mcpServers must be a list of servers",
            )
        })?,
    };
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for server in given {
        let name: Option<String> = RawObject::from_raw(&server)
            .ok()
            .and_then(|server| server.read("name"));
        match name.filter(|name| own.iter().any(|server| server.name() == name)) {
            Some(name) => dropped.push(name),
            None => kept.push(server),
        }
    }
    kept.extend(own.iter().map(crate::acp::raw::to_raw));
    params.put("mcpServers", &kept);
    Ok(dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<McpServer> {
        vec![McpServer::Stdio {
            name: "handler".to_owned(),
            command: "/bin/tools".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
        }]
    }

    const OWN: &str = r#"{"name":"handler","command":"/bin/tools","args":[],"env":[]}"#;

    #[test]
    fn the_platforms_servers_are_appended_and_names_of_theirs_are_theirs() {
        for (given, gives, dropped) in [
            (r#"{"cwd":"/p"}"#, format!("[{OWN}]"), 0),
            (r#"{"mcpServers":null}"#, format!("[{OWN}]"), 0),
            (r#"{"mcpServers":[]}"#, format!("[{OWN}]"), 0),
            (
                r#"{"mcpServers":[{"name":"mine","x":1.50}]}"#,
                format!(r#"[{{"name":"mine","x":1.50}},{OWN}]"#),
                0,
            ),
            (
                r#"{"mcpServers":[{"name":"handler","url":"https://evil.example/"}]}"#,
                format!("[{OWN}]"),
                1,
            ),
            (
                r#"{"mcpServers":[{"n\u0061me":"h\u0061ndler"},7]}"#,
                format!("[7,{OWN}]"),
                1,
            ),
        ] {
            let mut params = RawObject::parse(given.as_bytes()).expect(given);
            let gone = append(&mut params, &own()).expect(given);
            let now = params.get("mcpServers").expect("servers").get();
            assert_eq!((now, gone.len()), (gives.as_str(), dropped), "{given}");
        }
    }

    #[test]
    fn without_servers_of_its_own_nothing_changes_and_no_list_is_refused() {
        let text = br#"{"mcpServers":[{"name":"handler"}]}"#;
        let mut params = RawObject::parse(text).expect("params");
        append(&mut params, &[]).expect("nothing to do");
        assert_eq!(params.to_bytes(), text);
        let mut params = RawObject::parse(br#"{"mcpServers":{}}"#).expect("params");
        assert_eq!(
            append(&mut params, &own()).expect_err("no list").code,
            -32602
        );
    }
}
