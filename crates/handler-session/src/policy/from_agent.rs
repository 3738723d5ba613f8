//! What a message of the agent may do (P4, P6 and the allow-list of client methods).

use super::Refusal;
use super::from_client::{is_extension, shorten};
use crate::acp::{Envelope, Kind, codes};

/// What happens with an agent's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentVerdict {
    /// Log and show it.
    Update,
    /// A question to the people: held until answered.
    Permission,
    /// A form or link for the people: held until answered.
    Elicitation,
    /// An extension request: shown, first answer goes back.
    Extension,
    /// Shown, not logged.
    Show,
    /// The agent takes a request back.
    Withdraw,
    /// It answers a request of the daemon.
    Answer,
    /// Answer the agent with an error.
    Refuse(Refusal),
    /// Forget it.
    Drop(&'static str),
}

/// Decides about one message of the agent.
#[must_use]
pub fn decide(message: &Envelope) -> AgentVerdict {
    match &message.kind {
        Kind::Response { .. } => AgentVerdict::Answer,
        Kind::Request { method, .. } => request(method),
        Kind::Notification { method } => notification(method),
    }
}

fn request(method: &str) -> AgentVerdict {
    match method {
        "session/request_permission" => AgentVerdict::Permission,
        "elicitation/create" => AgentVerdict::Elicitation,
        _ if is_client_access(method) => AgentVerdict::Refuse(Refusal::by(
            "P4",
            codes::NOT_PERMITTED,
            "the client's files and terminals are not available; use your own",
        )),
        _ if is_extension(method) => AgentVerdict::Extension,
        _ => AgentVerdict::Refuse(Refusal::new(
            codes::METHOD_NOT_FOUND,
            format!("{:?} is not a method of this client", shorten(method)),
        )),
    }
}

fn notification(method: &str) -> AgentVerdict {
    match method {
        "session/update" => AgentVerdict::Update,
        "elicitation/complete" => AgentVerdict::Show,
        "$/cancel_request" => AgentVerdict::Withdraw,
        _ if is_client_access(method) => AgentVerdict::Drop("client access"),
        _ if is_extension(method) => AgentVerdict::Show,
        _ => AgentVerdict::Drop("a notification that is not on the allow-list"),
    }
}

fn is_client_access(method: &str) -> bool {
    method.starts_with("fs/") || method.starts_with("terminal/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_has_its_verdict() {
        for (text, expected) in [
            (r#"{"method":"session/update","params":{}}"#, "update"),
            (
                r#"{"id":0,"method":"session/update","params":{}}"#,
                "-32601",
            ),
            (
                r#"{"id":0,"method":"session/request_permission"}"#,
                "permission",
            ),
            (r#"{"method":"session/request_permission"}"#, "drop"),
            (r#"{"id":0,"method":"elicitation/create"}"#, "elicitation"),
            (r#"{"method":"elicitation/complete"}"#, "show"),
            (r#"{"id":0,"method":"fs/read_text_file"}"#, "-32003"),
            (r#"{"id":0,"method":"fs/write_text_file"}"#, "-32003"),
            (r#"{"id":0,"method":"terminal/create"}"#, "-32003"),
            (r#"{"method":"fs/x"}"#, "drop"),
            (r#"{"id":0,"method":"craft/drainMidTurnQueue"}"#, "-32601"),
            (
                r#"{"method":"qwen/notify/session/prompt-suggestion"}"#,
                "drop",
            ),
            (r#"{"method":"_auth/status_update"}"#, "show"),
            (r#"{"id":"a","method":"_vendor/ask"}"#, "extension"),
            (r#"{"method":"_handler/permission_resolved"}"#, "drop"),
            (r#"{"id":1,"method":"_handler/x"}"#, "-32601"),
            (r#"{"method":"$/cancel_request"}"#, "withdraw"),
            (r#"{"method":"$/progress"}"#, "drop"),
            (r#"{"id":1,"method":"initialize"}"#, "-32601"),
            (r#"{"id":1,"result":{}}"#, "answer"),
        ] {
            let verdict = decide(&Envelope::parse(text.as_bytes()).expect(text));
            let name = match verdict {
                AgentVerdict::Refuse(refusal) => refusal.code.to_string(),
                AgentVerdict::Drop(_) => "drop".to_owned(),
                other => format!("{other:?}").to_lowercase(),
            };
            assert_eq!(name, expected, "{text}");
        }
    }
}
