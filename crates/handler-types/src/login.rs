//! Credential files of agent programs: which of their fields are tokens, and the file with others in
//! their place. Pure; no I/O, no randomness.
//!
//! A token is found by name or by shape, at any depth:
//!
//! - **by name**: the field's name, without `_`, `-` and case, ends in `token`, `apikey`, `secret` or
//!   `password` (`access_token`, `refreshToken`, `OPENAI_API_KEY`); in an env file also in `_KEY`;
//! - **by shape**: a JSON Web Token (`eyJ…`, three parts), or a text of at least 20 characters that begins
//!   as the keys of known services do.
//!
//! Everything else stays as it is: account ids, times, URLs.

mod file;
mod renew;

pub use file::{LoginFile, LoginFileError, MAX_LOGIN_FILE};
pub use renew::{Renewed, is_refresh, plain_name, renewed, shares_place};

use serde_json::Value;
use zeroize::Zeroizing;

/// Shortest text that can have a stand-in, in characters.
pub const SHORTEST_TOKEN: usize = 8;
/// Longest, in characters: what the filter swaps.
pub const LONGEST_TOKEN: usize = 16 * 1024;
/// Shortest text that is taken for a token by its beginning alone.
const SHORTEST_BY_SHAPE: usize = 20;
const NAMES: [&str; 4] = ["token", "apikey", "secret", "password"];
const BEGINNINGS: [&str; 13] = [
    "sk-",
    "sk_",
    "pk_",
    "rt_",
    "rt.",
    "ghp_",
    "gho_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "xoxb-",
    "ya29.",
    "AIza",
];

/// A token and where it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// JSON pointer (RFC 6901) to it; of an env file `/NAME`.
    pub field: String,
    /// Its value.
    pub value: Zeroizing<String>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("field", &self.field)
            .finish_non_exhaustive()
    }
}

/// Whether a JSON field with this name and text holds a token. Empty texts are none.
#[must_use]
pub fn is_token(name: &str, text: &str) -> bool {
    let plain = plain_name(name);
    !text.is_empty() && (NAMES.iter().any(|end| plain.ends_with(end)) || has_token_shape(text))
}

/// Whether a text looks like a token whatever it is called.
#[must_use]
pub fn has_token_shape(text: &str) -> bool {
    let known = BEGINNINGS.iter().any(|begin| text.starts_with(begin));
    is_jwt(text)
        || (known
            && text.len() >= SHORTEST_BY_SHAPE
            && text.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Whether a text has the form of a JSON Web Token with a signature (RFC 7515 §3.1).
#[must_use]
pub fn is_jwt(text: &str) -> bool {
    let is_coded = |part: &str| {
        let mut bytes = part.bytes();
        !part.is_empty() && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let mut parts = text.split('.');
    let three = [parts.next(), parts.next(), parts.next()];
    text.starts_with("eyJ")
        && parts.next().is_none()
        && three.iter().all(|part| part.is_some_and(is_coded))
}

/// Whether a stand-in can be made for a text.
#[must_use]
pub fn can_stand_in(text: &str) -> bool {
    (SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// The tokens in a JSON value, in its order.
#[must_use]
pub fn find_tokens(value: &Value) -> Vec<Token> {
    let mut found = Vec::new();
    find(value, "", &mut String::new(), &mut found);
    found
}

fn find(value: &Value, name: &str, place: &mut String, found: &mut Vec<Token>) {
    let length = place.len();
    match value {
        Value::String(text) if is_token(name, text) => found.push(Token {
            field: place.clone(),
            value: Zeroizing::new(text.clone()),
        }),
        Value::Object(fields) => {
            for (key, inner) in fields {
                place.push('/');
                place.push_str(&key.replace('~', "~0").replace('/', "~1"));
                find(inner, key, place, found);
                place.truncate(length);
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                place.push_str(&format!("/{at}"));
                // What is in a list is called as the list.
                find(inner, name, place, found);
                place.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
