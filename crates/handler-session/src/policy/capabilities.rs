//! P1: what the daemon's `initialize` offers, and what a viewer is told the agent offers.
//!
//! The agent works in its sandbox with its own access: it is never offered the client's files or
//! terminals. Viewers are told only what an attachment can do.

use crate::acp::RawObject;
use serde_json::{Value, json};

/// Who the daemon says it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClientInfo {
    /// Program name.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Version.
    pub version: String,
}

/// Parameters of the daemon's `initialize`.
#[must_use]
pub fn initialize_params(info: &ClientInfo) -> Value {
    json!({
        "protocolVersion": 1,
        "clientCapabilities": clamp(json!({})),
        "clientInfo": info,
    })
}

/// Forces file and terminal access off, everything else stays.
#[must_use]
pub fn clamp(mut capabilities: Value) -> Value {
    if !capabilities.is_object() {
        capabilities = json!({});
    }
    let fs = &mut capabilities["fs"];
    if !fs.is_object() {
        *fs = json!({});
    }
    fs["readTextFile"] = json!(false);
    fs["writeTextFile"] = json!(false);
    capabilities["terminal"] = json!(false);
    capabilities
}

/// The agent's `initialize` result as viewers get it: loading is the daemon's and always there; other
/// conversations, sign-in and protocol 2 are not offered by an attachment.
#[must_use]
pub fn for_viewers(mut result: Value) -> Value {
    if !result.is_object() {
        result = json!({});
    }
    result["protocolVersion"] = json!(1);
    result["authMethods"] = json!([]);
    let capabilities = &mut result["agentCapabilities"];
    if !capabilities.is_object() {
        *capabilities = json!({});
    }
    capabilities["loadSession"] = json!(true);
    if let Some(map) = capabilities.as_object_mut() {
        for key in ["sessionCapabilities", "auth", "providers"] {
            map.shift_remove(key);
        }
    }
    result
}

/// The agent's `initialize` result as the client of a plain connection gets it: sign-in and the choice of
/// providers are Handler's, so they are not offered; all else stays as the agent said it.
pub fn for_plain(result: &mut RawObject) {
    if result.get("authMethods").is_some() {
        result.put("authMethods", &json!([]));
    }
    if let Some(mut capabilities) = result.object("agentCapabilities") {
        for key in ["auth", "providers"] {
            capabilities.remove(key);
        }
        result.put("agentCapabilities", &capabilities);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_connection_offers_all_but_signing_in() {
        let mut result = RawObject::parse(
            br#"{"protocolVersion":1,"authMethods":[{"id":"x"}],"agentCapabilities":{"auth":{"logout":{}},"providers":{},"sessionCapabilities":{"fork":{}},"n":1.50},"agentInfo":{"name":"a"}}"#,
        )
        .expect("a result");
        for_plain(&mut result);
        assert_eq!(
            String::from_utf8_lossy(&result.to_bytes()),
            r#"{"protocolVersion":1,"authMethods":[],"agentCapabilities":{"sessionCapabilities":{"fork":{}},"n":1.50},"agentInfo":{"name":"a"}}"#
        );
    }

    #[test]
    fn files_and_terminals_are_never_offered() {
        for (given, expected) in [
            (
                json!({}),
                json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false}),
            ),
            (
                json!(7),
                json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false}),
            ),
            (
                json!({"terminal": true, "fs": {"readTextFile": true, "x": 1}, "elicitation": {"form": {}}}),
                json!({"terminal": false, "fs": {"readTextFile": false, "x": 1, "writeTextFile": false}, "elicitation": {"form": {}}}),
            ),
            (
                json!({"fs": true}),
                json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false}),
            ),
        ] {
            assert_eq!(clamp(given.clone()), expected, "{given}");
        }
    }

    #[test]
    fn viewers_see_only_what_an_attachment_can_do() {
        let seen = for_viewers(json!({
            "protocolVersion": 1,
            "authMethods": [{"id": "x"}],
            "agentInfo": {"name": "a"},
            "agentCapabilities": {"loadSession": false, "auth": {"logout": {}},
                "sessionCapabilities": {"fork": {}}, "promptCapabilities": {"image": true}},
        }));
        assert_eq!(
            seen,
            json!({
                "protocolVersion": 1,
                "authMethods": [],
                "agentInfo": {"name": "a"},
                "agentCapabilities": {"loadSession": true, "promptCapabilities": {"image": true}},
            })
        );
    }
}
