//! A credential file, read and written again with other tokens.
//!
//! Invariant: what is written differs from what was read in the tokens only; JSON may be spaced otherwise.

use super::{Token, can_stand_in, find_tokens, has_token_shape, is_token};
use serde_json::Value;
use std::ops::Range;
use zeroize::Zeroizing;

/// Longest file, bytes.
pub const MAX_LOGIN_FILE: usize = 64 * 1024;
/// Most tokens in one.
const MOST_TOKENS: usize = 32;

/// Why a file is no login. Never shows a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginFileError {
    /// Empty or too long.
    #[error("a login's file has 1 byte to 64 KiB")]
    Length,
    /// Neither form.
    #[error(
        "this is no credential file that is understood: a JSON object, or lines `NAME=VALUE` (line {line})"
    )]
    Form {
        /// The first line that is not understood, from 1.
        line: usize,
    },
    /// Nothing in it is a token.
    #[error(
        "no token was found in this file: it needs a field such as `access_token`, `refreshToken` or `OPENAI_API_KEY` with a value"
    )]
    NoToken,
    /// More than 32.
    #[error("this file has more than {MOST_TOKENS} tokens")]
    TooMany,
    /// A token that cannot be swapped.
    #[error(
        "`{field}` cannot be kept out of the sandbox: a token has 8 to 16384 characters of printable ASCII without space; take the field out of the file if it is none"
    )]
    Unprintable {
        /// Its field.
        field: String,
    },
}

/// A credential file.
#[derive(Clone)]
pub enum LoginFile {
    /// JSON.
    Json(Value),
    /// Lines `NAME=VALUE`.
    Env(Zeroizing<String>),
}

impl std::fmt::Debug for LoginFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Json(_) => "LoginFile::Json(***)",
            Self::Env(_) => "LoginFile::Env(***)",
        })
    }
}

impl LoginFile {
    /// Reads one: a JSON object, else lines.
    ///
    /// # Errors
    /// [`LoginFileError`]: also when it holds no token, or one that no stand-in can be made for.
    pub fn parse(text: &str) -> Result<Self, LoginFileError> {
        if text.is_empty() || text.len() > MAX_LOGIN_FILE {
            return Err(LoginFileError::Length);
        }
        let file = if text.trim_start().starts_with('{') {
            let line = |error: serde_json::Error| LoginFileError::Form { line: error.line() };
            Self::Json(serde_json::from_str(text).map_err(line)?)
        } else {
            let odd = text.lines().position(|line| !is_env_line(line));
            if let Some(at) = odd {
                return Err(LoginFileError::Form { line: at + 1 });
            }
            Self::Env(Zeroizing::new(text.to_owned()))
        };
        let tokens = file.tokens();
        if tokens.is_empty() {
            return Err(LoginFileError::NoToken);
        }
        if tokens.len() > MOST_TOKENS {
            return Err(LoginFileError::TooMany);
        }
        match tokens.into_iter().find(|token| !can_stand_in(&token.value)) {
            Some(Token { field, .. }) => Err(LoginFileError::Unprintable { field }),
            None => Ok(file),
        }
    }

    /// Its tokens, in its order.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        match self {
            Self::Json(value) => find_tokens(value),
            Self::Env(text) => text.lines().filter_map(env_token).collect(),
        }
    }

    /// Puts another text where a token is; a field that is not there is left out.
    pub fn set(&mut self, field: &str, text: &str) {
        match self {
            Self::Json(value) => {
                if let Some(place) = value.pointer_mut(field)
                    && place.is_string()
                {
                    *place = Value::String(text.to_owned());
                }
            }
            Self::Env(all) => {
                let lines = all.split_inclusive('\n');
                let lines = lines.map(|line| with_value(line, field, text));
                *all = Zeroizing::new(lines.collect());
            }
        }
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        match self {
            // Objects with text keys can always be written.
            Self::Json(value) => {
                Zeroizing::new(serde_json::to_string_pretty(value).unwrap_or_default())
            }
            Self::Env(text) => text.clone(),
        }
    }
}

fn is_env_line(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || env_value(line).is_some()
}

/// A line's name and where its value is: `[export ]NAME=VALUE`, the value plain, or in one kind of quotes.
fn env_value(line: &str) -> Option<(&str, Range<usize>)> {
    let (left, right) = line.split_once('=')?;
    let name = left.trim();
    let name = name.strip_prefix("export ").unwrap_or(name).trim();
    let mut bytes = name.bytes();
    let begins = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !begins || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let start = left.len() + 1 + (right.len() - right.trim_start().len());
    let rest = &line[start..];
    match rest.bytes().next() {
        Some(quote @ (b'"' | b'\'')) => {
            let end = rest[1..].find(char::from(quote))?;
            Some((name, start + 1..start + 1 + end))
        }
        _ => {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            Some((name, start..start + end))
        }
    }
}

fn env_token(line: &str) -> Option<Token> {
    if line.trim_start().starts_with('#') {
        return None;
    }
    let (name, place) = env_value(line)?;
    let value = &line[place];
    let named = !value.is_empty() && name.to_ascii_uppercase().ends_with("_KEY");
    (named || is_token(name, value) || has_token_shape(value)).then(|| Token {
        field: format!("/{name}"),
        value: Zeroizing::new(value.to_owned()),
    })
}

fn with_value(line: &str, field: &str, text: &str) -> String {
    match env_value(line) {
        Some((name, place))
            if field.strip_prefix('/') == Some(name) && env_token(line).is_some() =>
        {
            format!("{}{text}{}", &line[..place.start], &line[place.end..])
        }
        _ => line.to_owned(),
    }
}
