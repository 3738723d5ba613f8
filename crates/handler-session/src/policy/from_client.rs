//! What a viewer's message may do: setup is the daemon's, one conversation per attachment, an allow-list
//! of methods (P5, P6 and the session rules).

use super::{Refusal, folders, mcp};
use crate::acp::build::META_AFTER_SEQ;
use crate::acp::{Envelope, Kind, RawObject, codes};
use handler_types::network::NetworkPolicy;

/// What a verdict depends on.
#[derive(Debug, Clone, Copy)]
pub struct ClientContext<'a> {
    /// The session's id as clients know it.
    pub session: &'a str,
    /// The session's folder.
    pub scope: &'a str,
    /// What the sandbox may reach.
    pub network: &'a NetworkPolicy,
    /// A turn is under way.
    pub is_busy: bool,
}

/// What happens with a viewer's message.
#[derive(Debug, Clone)]
pub enum ClientVerdict {
    /// Answer with the cached result.
    Initialize,
    /// Replay the events after this sequence number.
    Load {
        /// 0 for all.
        after_seq: u64,
    },
    /// Start a turn.
    Prompt,
    /// Pass a request on with an id of the daemon's own.
    Forward,
    /// Pass a notification on.
    Notify,
    /// Cancel the turn.
    Cancel,
    /// It answers a request of the agent.
    Answer,
    /// Answer with an error.
    Refuse(Refusal),
    /// Forget it.
    Drop(&'static str),
}

/// Requests that are forwarded when they name the session.
const FORWARDED: [&str; 3] = [
    "session/set_mode",
    "session/set_config_option",
    "session/set_model",
];
/// Requests about conversations other than this one.
const OTHER_SESSIONS: [&str; 6] = [
    "session/new",
    "session/resume",
    "session/list",
    "session/delete",
    "session/close",
    "session/fork",
];

/// Decides about one message of a viewer.
#[must_use]
pub fn decide(message: &Envelope, context: &ClientContext<'_>) -> ClientVerdict {
    match &message.kind {
        Kind::Response { .. } => ClientVerdict::Answer,
        Kind::Notification { method } => notification(method, &message.params(), context),
        Kind::Request { method, .. } => {
            request(method, &message.params(), context).unwrap_or_else(ClientVerdict::Refuse)
        }
    }
}

fn notification(method: &str, params: &RawObject, context: &ClientContext<'_>) -> ClientVerdict {
    if method.starts_with("$/") {
        return ClientVerdict::Drop("heartbeat");
    }
    if method != "session/cancel" && !is_extension(method) {
        return ClientVerdict::Drop("a notification that is not on the allow-list");
    }
    match names_session(params, context, method == "session/cancel") {
        Err(_) => ClientVerdict::Drop("a notification for another session"),
        Ok(()) if method == "session/cancel" => ClientVerdict::Cancel,
        Ok(()) => ClientVerdict::Notify,
    }
}

fn request(
    method: &str,
    params: &RawObject,
    context: &ClientContext<'_>,
) -> Result<ClientVerdict, Refusal> {
    if method == "initialize" {
        return Ok(ClientVerdict::Initialize);
    }
    if OTHER_SESSIONS.contains(&method) {
        return Err(Refusal::new(
            codes::ONE_SESSION,
            "one session per attachment",
        ));
    }
    if is_extension(method) {
        names_session(params, context, false)?;
        return Ok(ClientVerdict::Forward);
    }
    if FORWARDED.contains(&method) {
        names_session(params, context, true)?;
        return Ok(ClientVerdict::Forward);
    }
    match method {
        "session/load" => {
            names_session(params, context, true)?;
            folders::check(params, context.scope)?;
            mcp::check(params, context.network)?;
            Ok(ClientVerdict::Load {
                after_seq: after_seq(params)?,
            })
        }
        "session/prompt" => {
            names_session(params, context, true)?;
            check_prompt(params)?;
            if context.is_busy {
                return Err(Refusal::new(codes::TURN_IN_PROGRESS, "turn in progress"));
            }
            Ok(ClientVerdict::Prompt)
        }
        _ => Err(Refusal::new(
            codes::METHOD_NOT_FOUND,
            format!("{:?} is not a method of this endpoint", shorten(method)),
        )),
    }
}

/// Extensions of agents and clients; the daemon's own names are not theirs to use.
pub(super) fn is_extension(method: &str) -> bool {
    method.starts_with('_') && !method.starts_with("_handler/")
}

pub(super) fn shorten(method: &str) -> &str {
    method
        .char_indices()
        .nth(80)
        .map_or(method, |(at, _)| &method[..at])
}

fn names_session(
    params: &RawObject,
    context: &ClientContext<'_>,
    is_required: bool,
) -> Result<(), Refusal> {
    match params.get("sessionId") {
        None if !is_required => Ok(()),
        None => Err(Refusal::new(codes::INVALID_PARAMS, "sessionId is missing")),
        Some(_) if params.read::<String>("sessionId").as_deref() == Some(context.session) => Ok(()),
        Some(_) => Err(Refusal::new(
            codes::ONE_SESSION,
            "one session per attachment",
        )),
    }
}

fn after_seq(params: &RawObject) -> Result<u64, Refusal> {
    let Some(meta) = params.object("_meta") else {
        return Ok(0);
    };
    match meta.get(META_AFTER_SEQ).filter(|raw| raw.get() != "null") {
        None => Ok(0),
        Some(_) => meta.read(META_AFTER_SEQ).ok_or_else(|| {
            Refusal::new(
                codes::INVALID_PARAMS,
                format!("{META_AFTER_SEQ} must be a whole number"),
            )
        }),
    }
}

fn check_prompt(params: &RawObject) -> Result<(), Refusal> {
    let refuse = |message| Refusal::new(codes::INVALID_PARAMS, message);
    let blocks: Vec<RawObject> = params
        .read("prompt")
        .ok_or_else(|| refuse("prompt must be a list of content blocks"))?;
    if blocks.is_empty() {
        return Err(refuse("the prompt is empty"));
    }
    // What cannot be logged cannot be replayed: such a block is refused before anything is sent.
    params
        .read::<serde_json::Value>("prompt")
        .map(|_| ())
        .ok_or_else(|| refuse("the prompt is nested too deeply"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str, is_busy: bool) -> ClientVerdict {
        let network = NetworkPolicy::default();
        let context = ClientContext {
            session: "S",
            scope: "/p",
            network: &network,
            is_busy,
        };
        decide(&Envelope::parse(text.as_bytes()).expect(text), &context)
    }

    fn name(verdict: &ClientVerdict) -> String {
        match verdict {
            ClientVerdict::Refuse(refusal) => refusal.code.to_string(),
            ClientVerdict::Load { after_seq } => format!("load {after_seq}"),
            ClientVerdict::Drop(_) => "drop".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    #[test]
    fn each_method_of_a_session_has_its_verdict() {
        for (text, expected) in [
            (
                r#"{"id":1,"method":"initialize","params":{"protocolVersion":1}}"#,
                "initialize",
            ),
            (
                r#"{"id":1,"method":"session/load","params":{"sessionId":"S","cwd":"/p","mcpServers":[]}}"#,
                "load 0",
            ),
            (
                r#"{"id":1,"method":"session/load","params":{"sessionId":"S","cwd":"/p","_meta":{"handler.dev/afterSeq":7}}}"#,
                "load 7",
            ),
            (
                r#"{"id":1,"method":"session/load","params":{"sessionId":"S","cwd":"/p","_meta":{"handler.dev/afterSeq":-1}}}"#,
                "-32602",
            ),
            (
                r#"{"id":1,"method":"session/load","params":{"sessionId":"S","cwd":"/etc"}}"#,
                "-32001",
            ),
            (
                r#"{"id":1,"method":"session/load","params":{"sessionId":"S","cwd":"/p","mcpServers":[{"url":"https://a.b/"}]}}"#,
                "-32002",
            ),
            (
                r#"{"id":1,"method":"session/load","params":{"sessionId":"T","cwd":"/p"}}"#,
                "-32010",
            ),
            (
                r#"{"id":1,"method":"session/load","params":{"cwd":"/p"}}"#,
                "-32602",
            ),
            (
                r#"{"id":1,"method":"session/new","params":{"cwd":"/p","mcpServers":[]}}"#,
                "-32010",
            ),
            (
                r#"{"id":1,"method":"session/resume","params":{"sessionId":"S"}}"#,
                "-32010",
            ),
            (r#"{"id":1,"method":"session/list"}"#, "-32010"),
            (
                r#"{"id":1,"method":"session/delete","params":{"sessionId":"S"}}"#,
                "-32010",
            ),
            (
                r#"{"id":1,"method":"session/close","params":{"sessionId":"S"}}"#,
                "-32010",
            ),
            (
                r#"{"id":1,"method":"session/fork","params":{"sessionId":"S"}}"#,
                "-32010",
            ),
            (
                r#"{"id":1,"method":"session/prompt","params":{"sessionId":"S","prompt":[{"type":"text","text":"x"}]}}"#,
                "prompt",
            ),
            (
                r#"{"id":1,"method":"session/prompt","params":{"sessionId":"T","prompt":[{"type":"text","text":"x"}]}}"#,
                "-32010",
            ),
            (
                r#"{"id":1,"method":"session/prompt","params":{"sessionId":"S","prompt":[]}}"#,
                "-32602",
            ),
            (
                r#"{"id":1,"method":"session/prompt","params":{"sessionId":"S","prompt":["x"]}}"#,
                "-32602",
            ),
            (
                r#"{"id":1,"method":"session/prompt","params":{"sessionId":"S"}}"#,
                "-32602",
            ),
            (
                r#"{"id":1,"method":"session/set_mode","params":{"sessionId":"S","modeId":"m"}}"#,
                "forward",
            ),
            (
                r#"{"id":1,"method":"session/set_mode","params":{"modeId":"m"}}"#,
                "-32602",
            ),
            (
                r#"{"id":1,"method":"session/set_config_option","params":{"sessionId":"S"}}"#,
                "forward",
            ),
            (
                r#"{"id":1,"method":"session/set_model","params":{"sessionId":"S"}}"#,
                "forward",
            ),
        ] {
            assert_eq!(name(&verdict(text, false)), expected, "{text}");
        }
    }

    #[test]
    fn other_methods_pass_only_as_extensions() {
        for (text, expected) in [
            (r#"{"id":1,"method":"authenticate","params":{}}"#, "-32601"),
            (r#"{"id":1,"method":"logout"}"#, "-32601"),
            (r#"{"id":1,"method":"providers/set"}"#, "-32601"),
            (r#"{"id":1,"method":"$/ping"}"#, "-32601"),
            (
                r#"{"id":1,"method":"_vendor/x","params":{"a":1}}"#,
                "forward",
            ),
            (
                r#"{"id":1,"method":"_vendor/x","params":{"sessionId":"T"}}"#,
                "-32010",
            ),
            (r#"{"id":1,"method":"_handler/x"}"#, "-32601"),
            (r#"{"method":"_vendor/x"}"#, "notify"),
            (r#"{"method":"_vendor/x","params":{"sessionId":7}}"#, "drop"),
            (r#"{"method":"$/ping"}"#, "drop"),
            (
                r#"{"method":"$/cancel_request","params":{"requestId":1}}"#,
                "drop",
            ),
            (
                r#"{"method":"session/cancel","params":{"sessionId":"S"}}"#,
                "cancel",
            ),
            (
                r#"{"method":"session/cancel","params":{"sessionId":"T"}}"#,
                "drop",
            ),
            (
                r#"{"method":"session/update","params":{"sessionId":"S"}}"#,
                "drop",
            ),
            (r#"{"id":1,"result":{}}"#, "answer"),
        ] {
            assert_eq!(name(&verdict(text, false)), expected, "{text}");
        }
    }

    #[test]
    fn a_second_prompt_is_refused_while_busy() {
        let text = r#"{"id":1,"method":"session/prompt","params":{"sessionId":"S","prompt":[{"type":"text","text":"x"}]}}"#;
        assert_eq!(name(&verdict(text, true)), "-32011");
    }
}
