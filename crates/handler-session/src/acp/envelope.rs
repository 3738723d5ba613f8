//! The JSON-RPC envelope: what kind of message a line is, its id and its method.
//!
//! A batch, a number, a message without method and id and the like are errors, never guesses.

use super::raw::{RawObject, to_raw};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Longest request id accepted, bytes of JSON text.
const MAX_ID: usize = 1024;

/// A request id as JSON text: a number as written, or a string.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawId(String);

impl RawId {
    /// Reads an id: a number or a string.
    #[must_use]
    pub fn from_raw(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        if text.len() > MAX_ID {
            return None;
        }
        match text.as_bytes().first()? {
            b'"' => {
                // The same string may be escaped in several ways; one spelling makes ids comparable.
                let value: String = serde_json::from_str(text).ok()?;
                Some(Self(to_raw(&value).get().to_owned()))
            }
            b'-' | b'0'..=b'9' => Some(Self(text.to_owned())),
            _ => None,
        }
    }

    /// An id of the daemon's own.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        Self(number.to_string())
    }

    /// An id that is a string.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self(to_raw(text).get().to_owned())
    }

    /// The id as JSON.
    #[must_use]
    pub fn to_raw(&self) -> Box<RawValue> {
        RawValue::from_string(self.0.clone()).unwrap_or_else(|_| to_raw(&self.0))
    }

    /// The id as a number of the daemon's own, if it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Whether `text` is this id as it is stored.
    #[must_use]
    pub fn is_text(&self, text: &str) -> bool {
        self.0 == text
    }

    /// The id as shown in the API: a string without its quotes, a number as written.
    #[must_use]
    pub fn display(&self) -> String {
        serde_json::from_str::<String>(&self.0).unwrap_or_else(|_| self.0.clone())
    }
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Wants an answer.
    Request {
        /// Its id.
        id: RawId,
        /// Its method.
        method: String,
    },
    /// Wants none.
    Notification {
        /// Its method.
        method: String,
    },
    /// Answers a request.
    Response {
        /// The request's id.
        id: RawId,
        /// It has `error` instead of `result`.
        is_error: bool,
    },
}

/// Why a line is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not JSON, or not UTF-8.
    #[error("not a JSON value: {0}")]
    NotJson(String),
    /// JSON, but not one JSON-RPC message.
    #[error("not a single JSON-RPC message: {0}")]
    NotAMessage(&'static str),
}

/// One message, its members raw.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// All members as received.
    pub object: RawObject,
    /// What it is.
    pub kind: Kind,
}

impl Envelope {
    /// Reads one message.
    ///
    /// # Errors
    /// See [`EnvelopeError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        if let Some(b'[') = bytes.iter().find(|b| !b.is_ascii_whitespace()) {
            return Err(EnvelopeError::NotAMessage("batches are not accepted"));
        }
        let object =
            RawObject::parse(bytes).map_err(|error| EnvelopeError::NotJson(error.to_string()))?;
        let kind = Self::classify(&object)?;
        if let Some(params) = object.get("params")
            && matches!(kind, Kind::Request { .. } | Kind::Notification { .. })
            && params.get() != "null"
            && !params.get().starts_with('{')
        {
            return Err(EnvelopeError::NotAMessage("params must be an object"));
        }
        Ok(Self { object, kind })
    }

    fn classify(object: &RawObject) -> Result<Kind, EnvelopeError> {
        let id = match object.get("id").filter(|raw| raw.get() != "null") {
            Some(raw) => Some(RawId::from_raw(raw).ok_or(EnvelopeError::NotAMessage(
                "the id must be a number or a string",
            ))?),
            None => None,
        };
        if object.get("method").is_some() {
            let method: String = object
                .read("method")
                .ok_or(EnvelopeError::NotAMessage("the method must be a string"))?;
            if object.get("result").is_some() || object.get("error").is_some() {
                return Err(EnvelopeError::NotAMessage("a request with a result"));
            }
            return Ok(match (id, object.get("id").is_some()) {
                (Some(id), _) => Kind::Request { id, method },
                (None, false) => Kind::Notification { method },
                (None, true) => {
                    return Err(EnvelopeError::NotAMessage("a request with a null id"));
                }
            });
        }
        let id = id.ok_or(EnvelopeError::NotAMessage("neither a method nor an id"))?;
        match (
            object.get("result").is_some(),
            object.get("error").is_some(),
        ) {
            (true, false) => Ok(Kind::Response {
                id,
                is_error: false,
            }),
            (false, true) => Ok(Kind::Response { id, is_error: true }),
            _ => Err(EnvelopeError::NotAMessage(
                "a response needs a result or an error",
            )),
        }
    }

    /// The parameters; empty when absent or not an object.
    #[must_use]
    pub fn params(&self) -> RawObject {
        self.object.object("params").unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Result<Kind, EnvelopeError> {
        Envelope::parse(text.as_bytes()).map(|e| e.kind)
    }

    #[test]
    fn requests_notifications_and_responses_are_told_apart() {
        assert_eq!(
            kind(r#"{"jsonrpc":"2.0","id":0,"method":"a"}"#).expect("request"),
            Kind::Request {
                id: RawId("0".into()),
                method: "a".into()
            }
        );
        assert_eq!(
            kind(r#"{"jsonrpc":"2.0","method":"a","params":{}}"#).expect("notification"),
            Kind::Notification { method: "a".into() }
        );
        assert_eq!(
            kind(r#"{"jsonrpc":"2.0","id":"\u0061","result":null}"#).expect("response"),
            Kind::Response {
                id: RawId("\"a\"".into()),
                is_error: false
            }
        );
        assert_eq!(
            kind(r#"{"id":-7,"error":{}}"#).expect("error"),
            Kind::Response {
                id: RawId("-7".into()),
                is_error: true
            }
        );
    }

    #[test]
    fn everything_else_is_an_error() {
        for text in [
            "",
            "nonsense",
            "1",
            "[]",
            " [{\"id\":1,\"method\":\"a\"}]",
            "{}",
            r#"{"id":null,"method":"a"}"#,
            r#"{"id":{},"method":"a"}"#,
            r#"{"id":[1],"result":1}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"result":1,"error":{}}"#,
            r#"{"id":1,"method":"a","result":1}"#,
            r#"{"id":1,"method":5}"#,
            r#"{"id":1,"method":"a","params":[1]}"#,
            r#"{"id":1,"method":"a","params":"x"}"#,
            "{\"id\":1,\"method\":\"\u{1}\"}",
        ] {
            assert!(kind(text).is_err(), "{text}");
        }
        assert!(Envelope::parse(b"{\"id\":1,\"method\":\"\xff\"}").is_err());
    }

    #[test]
    fn ids_are_shown_without_quotes() {
        assert_eq!(RawId("\"a\\\"b\"".into()).display(), "a\"b");
        assert_eq!(RawId("0".into()).display(), "0");
        assert_eq!(RawId("1.5e3".into()).as_number(), None);
    }
}
