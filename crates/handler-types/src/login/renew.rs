//! What an answer of an OAuth token endpoint (RFC 6749 §5.1) changes in a credential file.

use super::LoginFile;
use serde_json::Value;

/// Seconds since the epoch are below, milliseconds above.
const MILLIS: i64 = 100_000_000_000;

/// A token of an answer and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// Position in the answer's list.
    pub at: usize,
    /// Where it belongs, beside the refresh token that was sent; the file need not have the field.
    pub field: String,
}

/// A name without `_`, `-` and case: `refreshToken` and `refresh_token` are one.
#[must_use]
pub fn plain_name(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

fn split(field: &str) -> (&str, &str) {
    field.rsplit_once('/').unwrap_or(("", field))
}

/// Whether a token at this field renews others.
#[must_use]
pub fn is_refresh(field: &str) -> bool {
    plain_name(split(field).1).ends_with("refreshtoken")
}

/// Whether two fields are one beside the other.
#[must_use]
pub fn shares_place(one: &str, other: &str) -> bool {
    split(one).0 == split(other).0
}

/// Where the tokens of an answer belong: beside `refresh`, in the field of the same name, if the file has it.
/// Only names at the answer's top are meant for the file; what lies deeper gets a field of its own.
#[must_use]
pub fn renewed(file: &LoginFile, refresh: &str, names: &[&str]) -> Vec<Renewed> {
    let place = split(refresh).0;
    let known: Vec<String> = file.tokens().into_iter().map(|token| token.field).collect();
    let mut all = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let name = name.strip_prefix('/').unwrap_or(name);
        let same = |field: &&String| {
            shares_place(field, refresh) && plain_name(split(field).1) == plain_name(name)
        };
        let field = match known.iter().find(same) {
            Some(field) if !name.contains('/') => field.clone(),
            _ => format!("{place}/{name}"),
        };
        all.push(Renewed { at, field });
    }
    all
}

impl LoginFile {
    /// Puts the times right after a renewal: `expires_at`, `expiresAt`, `expiry_date` beside the refresh token (in
    /// the unit they have, seconds or milliseconds), and `last_refresh` there or at the top (RFC 3339).
    pub fn set_times(&mut self, refresh: &str, now_ms: i64, now: &str, expires_in: Option<u64>) {
        let Self::Json(all) = self else { return };
        let expires = expires_in
            .and_then(|seconds| i64::try_from(seconds).ok())
            .and_then(|seconds| seconds.checked_mul(1000)?.checked_add(now_ms));
        for place in ["", split(refresh).0] {
            let Some(Value::Object(fields)) = all.pointer_mut(place) else {
                continue;
            };
            for (name, value) in fields {
                let plain = plain_name(name);
                let is_expiry = matches!(plain.as_str(), "expiresat" | "expirydate" | "expiry");
                if plain == "lastrefresh" && value.is_string() {
                    *value = Value::from(now);
                } else if let (true, Some(was), Some(at)) = (is_expiry, value.as_i64(), expires) {
                    *value = Value::from(if was.abs() < MILLIS { at / 1000 } else { at });
                }
            }
        }
    }
}
