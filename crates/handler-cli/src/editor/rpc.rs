//! JSON-RPC messages of ACP, read loosely: only what is needed to route them is looked at.

use crate::exit::Failure;
use handler_client::ClientError;
use serde_json::{Map, Value, json};

/// Most characters of an editor's own words repeated in an error.
const SHOWN: usize = 80;

/// One message, request, notification or answer; fields nobody knows stay in `rest`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    /// Set for requests and answers.
    pub(super) id: Option<Value>,
    /// Set for requests and notifications.
    pub(super) method: Option<String>,
    /// Parameters; null when there are none.
    pub(super) params: Value,
    rest: Map<String, Value>,
}

/// An error as JSON-RPC tells it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl Message {
    /// Reads a line.
    ///
    /// # Errors
    /// -32700 for what is no JSON, -32600 for what is no message.
    pub(super) fn parse(text: &[u8]) -> Result<Self, RpcError> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|error| RpcError::new(-32700, format!("this line is no JSON: {error}")))?;
        let Value::Object(mut rest) = value else {
            return Err(RpcError::new(-32600, "a message must be a JSON object"));
        };
        let id = rest.shift_remove("id");
        if id
            .as_ref()
            .is_some_and(|id| !(id.is_string() || id.is_number() || id.is_null()))
        {
            return Err(RpcError::new(-32600, "an id must be text or a number"));
        }
        let method = match rest.shift_remove("method") {
            None => None,
            Some(Value::String(method)) => Some(method),
            Some(_) => return Err(RpcError::new(-32600, "a method must be text")),
        };
        let params = rest.shift_remove("params").unwrap_or_default();
        Ok(Self {
            id,
            method,
            params,
            rest,
        })
    }

    /// The conversation that it names.
    pub(super) fn session(&self) -> Option<&str> {
        self.params.get("sessionId")?.as_str()
    }

    /// Names another conversation instead, if it names one.
    pub(super) fn rename(&mut self, session: &str) {
        if let Some(named) = self.params.get_mut("sessionId") {
            *named = json!(session);
        }
    }

    /// Result or error of an answer.
    pub(super) fn field(&self, name: &str) -> Option<&Value> {
        self.rest.get(name)
    }

    /// The line it is sent as.
    pub(super) fn to_line(&self) -> String {
        let mut whole = Map::new();
        whole.insert("jsonrpc".to_owned(), json!("2.0"));
        if let Some(id) = &self.id {
            whole.insert("id".to_owned(), id.clone());
        }
        if let Some(method) = &self.method {
            whole.insert("method".to_owned(), json!(method));
        }
        if !self.params.is_null() {
            whole.insert("params".to_owned(), self.params.clone());
        }
        for (name, value) in &self.rest {
            whole.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(whole).to_string()
    }
}

impl RpcError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// -32602.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// -32601.
    pub(super) fn unknown_method(method: &str) -> Self {
        let method: String = method.chars().take(SHOWN).collect();
        Self::new(-32601, format!("{method:?} is not a method of this agent"))
    }

    /// -32603 with the reason.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(-32603, message)
    }

    /// As the `error` of an answer.
    pub(super) fn to_value(&self) -> Value {
        let mut value = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            value["data"] = data.clone();
        }
        value
    }
}

impl From<ClientError> for RpcError {
    fn from(error: ClientError) -> Self {
        if let ClientError::Refused(problem) = &error {
            let data = json!({"code": problem.code, "status": problem.status});
            return Self {
                data: Some(data),
                ..Self::failed(problem.to_string())
            };
        }
        let hint = match error {
            ClientError::Unreachable(_) => "; start it with `handler daemon start`",
            _ => "",
        };
        Self::failed(format!("{error}{hint}"))
    }
}

impl From<Failure> for RpcError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Client(error) => error.into(),
            Failure::Usage(text) => Self::invalid(text),
            other => Self::failed(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_written_as_it_was_read_with_fields_nobody_knows() {
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"sessionId":"s","_meta":{"x":1.50}},"new":[1]}"#,
            r#"{"jsonrpc":"2.0","method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":"a","result":{"big":18446744073709551615}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x"}}"#,
        ] {
            let message = Message::parse(text.as_bytes()).expect(text);
            let again: Value = serde_json::from_str(&message.to_line()).expect("JSON");
            assert_eq!(
                again,
                serde_json::from_str::<Value>(text).expect("JSON"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_message_is_told_which_rule_it_breaks() {
        for (text, code) in [
            ("{", -32700),
            ("[]", -32600),
            ("7", -32600),
            (r#"{"id":{}}"#, -32600),
            (r#"{"id":1,"method":2}"#, -32600),
        ] {
            assert_eq!(
                Message::parse(text.as_bytes()).expect_err(text).code,
                code,
                "{text}"
            );
        }
    }

    #[test]
    fn only_the_name_of_the_conversation_changes() {
        let text =
            br#"{"id":1,"method":"m","params":{"a":1,"sessionId":"s_1","b":{"sessionId":"s_1"}}}"#;
        let mut message = Message::parse(text).expect("message");
        assert_eq!(message.session(), Some("s_1"));
        message.rename("agent's");
        assert_eq!(
            message.params,
            json!({"a": 1, "sessionId": "agent's", "b": {"sessionId": "s_1"}})
        );
        let mut none = Message::parse(br#"{"method":"m","params":[1]}"#).expect("message");
        none.rename("agent's");
        assert_eq!(none.params, json!([1]));
    }
}
