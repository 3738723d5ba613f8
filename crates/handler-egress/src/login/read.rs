//! The answer of a token endpoint, understood or not. Pure.
//!
//! Understood is what RFC 6749 §5.1 describes: a JSON object with an `access_token`. It is written anew from what
//! was understood, so that nothing is in it twice or in a form that was not looked at.

use crate::settings::Rules;
use handler_types::egress::RenewedToken;
use handler_types::login::{can_stand_in, find_tokens, plain_name};
use serde_json::Value;

/// Most tokens in an answer.
const MOST: usize = 16;

/// What an answer says.
pub(crate) struct TokenAnswer {
    /// Those that are new.
    pub(crate) tokens: Vec<RenewedToken>,
    /// Seconds the access token is good for.
    pub(crate) expires_in: Option<u64>,
    /// The answer, written anew.
    pub(crate) text: zeroize::Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenAnswer")
            .field("tokens", &self.tokens.len())
            .finish_non_exhaustive()
    }
}

/// Why an answer is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// No JSON object.
    #[error("it is no JSON object")]
    Form,
    /// No access token in it.
    #[error("it has no `access_token`")]
    NoToken,
    /// A token that cannot have a stand-in.
    #[error("a token in it is not of 8 to 16384 printable characters, and cannot have a stand-in")]
    Unprintable,
    /// Too many.
    #[error("it has more than {MOST} tokens")]
    TooMany,
}

/// Reads an answer in which known values have become stand-ins already.
pub(crate) fn read(text: &[u8], rules: &Rules) -> Result<TokenAnswer, Unread> {
    let value: Value = serde_json::from_slice(text).map_err(|_| Unread::Form)?;
    let fields = value.as_object().ok_or(Unread::Form)?;
    let is_access = |(name, value): (&String, &Value)| {
        plain_name(name) == "accesstoken" && value.as_str().is_some_and(|text| !text.is_empty())
    };
    if !fields.iter().any(is_access) {
        return Err(Unread::NoToken);
    }
    let is_known = |text: &str| rules.secrets.iter().any(|secret| *secret.phantom == text);
    let found = find_tokens(&value);
    let new: Vec<_> = found
        .iter()
        .filter(|token| !is_known(&token.value))
        .collect();
    if new.len() > MOST {
        return Err(Unread::TooMany);
    }
    if !new.iter().all(|token| can_stand_in(&token.value)) {
        return Err(Unread::Unprintable);
    }
    let tokens = new.iter().map(|token| RenewedToken {
        name: token.field.clone(),
        value: token.value.to_string(),
    });
    Ok(TokenAnswer {
        tokens: tokens.collect(),
        expires_in: value.get("expires_in").and_then(seconds),
        text: zeroize::Zeroizing::new(serde_json::to_vec(&value).map_err(|_| Unread::Form)?),
    })
}

/// A number, or a text that is one: some servers write it so.
fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Whether none of these is in a text as JSON, in whatever way it is escaped.
pub(crate) fn is_free_of(text: &[u8], tokens: &[RenewedToken]) -> bool {
    fn holds(value: &Value, sought: &str) -> bool {
        match value {
            Value::String(text) => text.contains(sought),
            Value::Array(items) => items.iter().any(|item| holds(item, sought)),
            Value::Object(fields) => fields
                .iter()
                .any(|(name, value)| name.contains(sought) || holds(value, sought)),
            _ => false,
        }
    }
    let Ok(value) = serde_json::from_slice::<Value>(text) else {
        return false;
    };
    !tokens.iter().any(|token| holds(&value, &token.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    fn rules() -> Rules {
        let secrets = [("logins/a", "stand-in-1234", "the-value-999", "a.com:443")];
        Rules::new(settings(&secrets), 1).expect("settings").0
    }

    #[test]
    fn tokens_that_are_new_are_told_and_known_stand_ins_are_not() {
        let text = br#"{"access_token":"new-access-1","refresh_token":"stand-in-1234","token_type":"Bearer","expires_in":"3600","more":{"id_token":"eyJa.eyJb.c2ln"}}"#;
        let answer = read(text, &rules()).expect("understood");
        let all: Vec<_> = answer
            .tokens
            .iter()
            .map(|t| (&*t.name, &*t.value))
            .collect();
        assert_eq!(
            all,
            [
                ("/access_token", "new-access-1"),
                ("/more/id_token", "eyJa.eyJb.c2ln")
            ]
        );
        assert_eq!(answer.expires_in, Some(3600));
    }

    #[test]
    fn a_field_that_is_there_twice_is_passed_on_once() {
        let text = br#"{"access_token":"first-token-1","access_token":"other-token-2"}"#;
        let answer = read(text, &rules()).expect("understood");
        assert!(!String::from_utf8_lossy(&answer.text).contains("first-token-1"));
        assert!(!is_free_of(&answer.text, &answer.tokens));
        assert!(is_free_of(br#"{"a":"nothing"}"#, &answer.tokens));
        assert!(!is_free_of(
            br#"{"a":["x\u006fther-token-2"]}"#,
            &answer.tokens
        ));
        assert!(!is_free_of(b"no JSON", &answer.tokens));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let many: Vec<String> = (0..17)
            .map(|n| format!("\"t{n}_token\":\"abcdefgh{n}\""))
            .collect();
        let many = format!("{{\"access_token\":\"abcdefgh\",{}}}", many.join(","));
        for (text, wanted) in [
            ("", Unread::Form),
            ("access_token=abcdefgh1", Unread::Form),
            ("[\"abcdefgh\"]", Unread::Form),
            ("{\"access_token\":\"abcdefgh\"", Unread::Form),
            ("{}", Unread::NoToken),
            ("{\"access_token\":\"\"}", Unread::NoToken),
            ("{\"access_token\":17}", Unread::NoToken),
            ("{\"access_token\":\"short\"}", Unread::Unprintable),
            (
                "{\"access_token\":\"abcdefgh\",\"refresh_token\":\"a b c d e f\"}",
                Unread::Unprintable,
            ),
            (&many, Unread::TooMany),
        ] {
            assert_eq!(
                read(text.as_bytes(), &rules()).err(),
                Some(wanted),
                "{text}"
            );
        }
    }
}
