//! What a client's message may do on a plain connection (contract C): it opens and leads its own conversations
//! with one agent process, so nearly everything passes, after P1 to P3, P5, P6 and P8.
//!
//! The allow-list is decided on purpose, method by method; `docs/decisions/acp.md` has the reasons.

use super::from_client::{is_extension, shorten};
use super::{Refusal, capabilities, folders, mcp, servers};
use crate::acp::{Envelope, Kind, RawObject, codes};
use handler_types::harness::McpServer;
use handler_types::network::NetworkPolicy;
use serde_json::{Value, json};

/// What a verdict depends on.
#[derive(Debug, Clone, Copy)]
pub struct PlainContext<'a> {
    /// The agent's folder.
    pub scope: &'a str,
    /// What the sandbox may reach now.
    pub network: &'a NetworkPolicy,
    /// The platform's MCP servers.
    pub servers: &'a [McpServer],
}

/// What happens with a client's message.
#[derive(Debug, Clone)]
pub enum PlainVerdict {
    /// Pass it on with these parameters; the answer says what the agent can.
    Initialize(RawObject),
    /// Pass it on with these parameters; the answer is a conversation, handed out when its defaults are set.
    Open(RawObject),
    /// A prompt; the first one of a new conversation gets the instructions.
    Prompt(String),
    /// Pass it on as it is, if the conversation it names is open.
    Forward {
        /// The conversation; none: it names none.
        session: Option<String>,
    },
    /// Pass it on as it is: it is about the agent's kept conversations, open or not.
    Kept,
    /// It answers a request of the agent.
    Answer,
    /// Answer with an error.
    Refuse(Refusal),
    /// Forget it.
    Drop(&'static str),
}

/// Requests that open a conversation: each names a folder and MCP servers.
const OPENING: [&str; 4] = [
    "session/new",
    "session/load",
    "session/resume",
    "session/fork",
];
/// Requests about an open conversation.
const OF_OPEN: [&str; 4] = [
    "session/set_mode",
    "session/set_config_option",
    "session/set_model",
    "session/close",
];
/// Requests about conversations the agent keeps in its own state.
const OF_KEPT: [&str; 2] = ["session/list", "session/delete"];

/// Decides about one message of a client.
#[must_use]
pub fn decide(message: &Envelope, context: &PlainContext<'_>) -> PlainVerdict {
    match &message.kind {
        Kind::Response { .. } => PlainVerdict::Answer,
        Kind::Notification { method } => notification(method, &message.params()),
        Kind::Request { method, .. } => {
            request(method, message.params(), context).unwrap_or_else(PlainVerdict::Refuse)
        }
    }
}

fn notification(method: &str, params: &RawObject) -> PlainVerdict {
    if method.starts_with("$/") {
        return PlainVerdict::Drop("heartbeat");
    }
    if method != "session/cancel" && !is_extension(method) {
        return PlainVerdict::Drop("a notification that is not on the allow-list");
    }
    match session(params) {
        Ok(None) if method == "session/cancel" => PlainVerdict::Drop("a cancel of nothing"),
        Ok(session) => PlainVerdict::Forward { session },
        Err(_) => PlainVerdict::Drop("a notification without a readable session"),
    }
}

fn request(
    method: &str,
    params: RawObject,
    context: &PlainContext<'_>,
) -> Result<PlainVerdict, Refusal> {
    if OPENING.contains(&method) {
        return opening(params, context).map(PlainVerdict::Open);
    }
    if OF_KEPT.contains(&method) {
        return Ok(PlainVerdict::Kept);
    }
    if OF_OPEN.contains(&method) {
        return Ok(PlainVerdict::Forward {
            session: Some(required(&params)?),
        });
    }
    match method {
        "initialize" => Ok(PlainVerdict::Initialize(initialize(params))),
        "session/prompt" => Ok(PlainVerdict::Prompt(required(&params)?)),
        _ if is_extension(method) => Ok(PlainVerdict::Forward {
            session: session(&params)?,
        }),
        _ => Err(Refusal::new(
            codes::METHOD_NOT_FOUND,
            format!("{:?} is not a method of this endpoint", shorten(method)),
        )),
    }
}

/// P1, and protocol version 1: what is newer would pass steps that do not know it.
fn initialize(mut params: RawObject) -> RawObject {
    let offered: Value = params.read("clientCapabilities").unwrap_or_default();
    params.put("protocolVersion", &json!(1));
    params.put("clientCapabilities", &capabilities::clamp(offered));
    params
}

/// P8, P2 and P3, in this order.
fn opening(mut params: RawObject, context: &PlainContext<'_>) -> Result<RawObject, Refusal> {
    let dropped = servers::append(&mut params, context.servers)?;
    if !dropped.is_empty() {
        tracing::info!(
            ?dropped,
            "MCP servers of a client made room for the platform's"
        );
    }
    folders::check(&params, context.scope)?;
    mcp::check(&params, context.network)?;
    Ok(params)
}

fn required(params: &RawObject) -> Result<String, Refusal> {
    session(params)?.ok_or_else(|| Refusal::new(codes::INVALID_PARAMS, "sessionId is missing"))
}

fn session(params: &RawObject) -> Result<Option<String>, Refusal> {
    match params.get("sessionId") {
        None => Ok(None),
        Some(_) => params
            .read("sessionId")
            .map(Some)
            .ok_or_else(|| Refusal::new(codes::INVALID_PARAMS, "the sessionId must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> PlainVerdict {
        let network = NetworkPolicy::None;
        let own = [McpServer::Stdio {
            name: "own".into(),
            command: "/own".into(),
            args: Vec::new(),
            env: Vec::new(),
        }];
        let context = PlainContext {
            scope: "/p",
            network: &network,
            servers: &own,
        };
        decide(&Envelope::parse(text.as_bytes()).expect(text), &context)
    }

    fn name(verdict: PlainVerdict) -> String {
        match verdict {
            PlainVerdict::Refuse(refusal) => refusal.code.to_string(),
            PlainVerdict::Drop(_) => "drop".to_owned(),
            PlainVerdict::Initialize(_) => "initialize".to_owned(),
            PlainVerdict::Open(_) => "open".to_owned(),
            PlainVerdict::Prompt(session) => format!("prompt {session}"),
            PlainVerdict::Forward { session } => format!("forward {session:?}"),
            PlainVerdict::Kept => "kept".to_owned(),
            PlainVerdict::Answer => "answer".to_owned(),
        }
    }

    /// A request's verdict, by method and parameters.
    fn asked(method: &str, params: &str) -> String {
        name(verdict(&format!(
            r#"{{"id":1,"method":"{method}","params":{params}}}"#
        )))
    }

    #[test]
    fn each_request_has_its_verdict() {
        let (open, outside, far) = (
            r#"{"cwd":"/p","mcpServers":[]}"#,
            r#"{"cwd":"/etc","mcpServers":[]}"#,
            r#"{"cwd":"/p","mcpServers":[{"name":"far","url":"https://far.example/"}]}"#,
        );
        for method in OPENING {
            assert_eq!(asked(method, open), "open", "{method}");
            assert_eq!(asked(method, outside), "-32001", "{method}");
            assert_eq!(asked(method, far), "-32002", "{method}");
            assert_eq!(asked(method, "{}"), "-32001", "{method}");
            assert_eq!(
                asked(method, r#"{"cwd":"/p","additionalDirectories":["/etc"]}"#),
                "-32001",
                "{method}"
            );
        }
        for method in OF_OPEN {
            assert_eq!(
                asked(method, r#"{"sessionId":"S"}"#),
                r#"forward Some("S")"#
            );
            assert_eq!(asked(method, "{}"), "-32602");
            assert_eq!(asked(method, r#"{"sessionId":7}"#), "-32602");
        }
        for (method, params, expected) in [
            ("initialize", "{}", "initialize"),
            ("session/list", "{}", "kept"),
            ("session/delete", r#"{"sessionId":"S"}"#, "kept"),
            ("session/prompt", r#"{"sessionId":"S"}"#, "prompt S"),
            ("session/prompt", "{}", "-32602"),
            ("_vendor/x", "{}", "forward None"),
            ("_vendor/x", r#"{"sessionId":"S"}"#, r#"forward Some("S")"#),
            ("_handler/x", "{}", "-32601"),
            ("authenticate", "{}", "-32601"),
            ("logout", "{}", "-32601"),
            ("providers/set", "{}", "-32601"),
            ("session/unheard_of", "{}", "-32601"),
            ("session/update", "{}", "-32601"),
            ("fs/read_text_file", "{}", "-32601"),
            ("$/ping", "{}", "-32601"),
        ] {
            assert_eq!(asked(method, params), expected, "{method} {params}");
        }
    }

    #[test]
    fn each_notification_has_its_verdict() {
        for (text, expected) in [
            (r#"{"method":"$/ping"}"#, "drop"),
            (r#"{"method":"$/cancel_request","params":{}}"#, "drop"),
            (
                r#"{"method":"session/cancel","params":{"sessionId":"S"}}"#,
                r#"forward Some("S")"#,
            ),
            (r#"{"method":"session/cancel"}"#, "drop"),
            (r#"{"method":"session/update"}"#, "drop"),
            (r#"{"method":"_vendor/x"}"#, "forward None"),
            (r#"{"method":"_vendor/x","params":{"sessionId":7}}"#, "drop"),
            (r#"{"method":"_handler/x"}"#, "drop"),
            (r#"{"id":1,"result":{}}"#, "answer"),
        ] {
            assert_eq!(name(verdict(text)), expected, "{text}");
        }
    }

    #[test]
    fn what_is_offered_to_the_agent_has_no_files_and_no_terminal_and_keeps_the_rest() {
        let text = r#"{"id":1,"method":"initialize","params":{"protocolVersion":2,"clientInfo":{"name":"x"},
            "clientCapabilities":{"terminal":true,"fs":{"readTextFile":true},"elicitation":{"form":{}}},"more":1.50}}"#;
        let PlainVerdict::Initialize(params) = verdict(text) else {
            panic!("initialize");
        };
        assert_eq!(
            String::from_utf8_lossy(&params.to_bytes()),
            r#"{"protocolVersion":1,"clientInfo":{"name":"x"},"clientCapabilities":{"terminal":false,"fs":{"readTextFile":false,"writeTextFile":false},"elicitation":{"form":{}}},"more":1.50}"#
        );
    }

    #[test]
    fn the_platforms_servers_are_in_before_folders_and_destinations_are_checked() {
        // A client's server of the platform's name would be refused by P3; P8 has taken it out before.
        let text = r#"{"id":1,"method":"session/new","params":{"cwd":"/p","mcpServers":[
            {"name":"own","url":"https://far.example/"}],"_meta":{"kept":[1]}}}"#;
        let PlainVerdict::Open(params) = verdict(text) else {
            panic!("opened");
        };
        assert_eq!(
            String::from_utf8_lossy(&params.to_bytes()),
            r#"{"cwd":"/p","mcpServers":[{"name":"own","command":"/own","args":[],"env":[]}],"_meta":{"kept":[1]}}"#
        );
    }
}
