//! A JSON object whose members keep the bytes they came with, in their order.
//!
//! Invariant: no key occurs twice and there are at most [`MAX_MEMBERS`]. A message with a doubled key
//! could mean one thing to the daemon and another to the agent, so it is refused.

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;

/// Members a peeked object may have.
pub const MAX_MEMBERS: usize = 1024;
/// Deepest nesting of a member that is read. What is read is stored inside other JSON, and readers of JSON
/// stop at a depth of about 128.
pub const MAX_DEPTH: usize = 96;

/// A JSON object, its values unparsed.
#[derive(Debug, Clone, Default)]
pub struct RawObject {
    members: Vec<(String, Box<RawValue>)>,
}

impl RawObject {
    /// Reads an object.
    ///
    /// # Errors
    /// Not JSON, not an object, a doubled key, or too many members.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Reads an object out of a raw value.
    ///
    /// # Errors
    /// As [`RawObject::parse`].
    pub fn from_raw(raw: &RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(raw.get())
    }

    /// The member `key`, unparsed.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.members
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| &**value)
    }

    /// The member `key` read as `T`; `None` when it is absent, something else, or nested too deeply.
    #[must_use]
    pub fn read<'a, T: Deserialize<'a>>(&'a self, key: &str) -> Option<T> {
        let text = self.get(key)?.get();
        if depth(text) > MAX_DEPTH {
            return None;
        }
        serde_json::from_str(text).ok()
    }

    /// The member `key` as an object; `None` when it is absent or something else.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<Self> {
        Self::from_raw(self.get(key)?).ok()
    }

    /// Puts a member in, in place when the key exists.
    pub fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.members.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.members.push((key.to_owned(), value)),
        }
    }

    /// Puts a serializable member in.
    pub fn put<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        self.set(key, to_raw(value));
    }

    /// Takes a member out.
    pub fn remove(&mut self, key: &str) {
        self.members.retain(|(name, _)| name != key);
    }

    /// Whether it has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The object as JSON text.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("string keys and raw values always serialize")
    }

    /// The object as one raw value.
    #[must_use]
    pub fn to_raw(&self) -> Box<RawValue> {
        to_raw(self)
    }
}

/// Nesting depth of valid JSON text.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

/// Takes a string's bytes up to its end.
fn skip_string(bytes: &mut std::str::Bytes<'_>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

/// Any plain value as raw JSON.
///
/// # Panics
/// Never for the types used here: string keys, strings, numbers and values.
pub fn to_raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("plain data always serializes")
}

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.members.len()))?;
        for (key, value) in &self.members {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = RawObject;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if !seen.insert(key.clone()) {
                        return Err(A::Error::custom("an object with a doubled key"));
                    }
                    if members.len() == MAX_MEMBERS {
                        return Err(A::Error::custom("an object with too many members"));
                    }
                    members.push((key, value));
                }
                Ok(RawObject { members })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_bytes_and_order() {
        let text = br#"{"z":1.50,"a":{"x": null,"y":[ 1 ]},"n":12345678901234567890123}"#;
        let object = RawObject::parse(text).expect("object");
        assert_eq!(object.to_bytes(), text);
    }

    #[test]
    fn a_member_is_replaced_in_place() {
        let mut object = RawObject::parse(br#"{"a":1,"b":2}"#).expect("object");
        object.put("a", "x");
        object.put("c", &3);
        object.remove("b");
        assert_eq!(object.to_bytes(), br#"{"a":"x","c":3}"#);
    }

    #[test]
    fn a_doubled_key_and_too_many_members_are_refused() {
        assert!(RawObject::parse(br#"{"method":"a","method":"b"}"#).is_err());
        assert!(RawObject::parse(br#"{"method":"a","m\u0065thod":"b"}"#).is_err());
        let many: Vec<String> = (0..=MAX_MEMBERS).map(|i| format!("\"{i}\":0")).collect();
        assert!(RawObject::parse(format!("{{{}}}", many.join(",")).as_bytes()).is_err());
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        for (text, expected) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[{}],"b":[]}"#, 3),
            (r#"["[[[","\"[[",{"]":1}]"#, 2),
        ] {
            assert_eq!(depth(text), expected, "{text}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(97), "]".repeat(97));
        let object = RawObject::parse(deep.as_bytes()).expect("object");
        assert!(object.get("a").is_some() && object.read::<serde_json::Value>("a").is_none());
    }

    #[test]
    fn deep_nesting_inside_a_member_is_only_carried() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let object = RawObject::parse(deep.as_bytes()).expect("raw values do not recurse");
        assert_eq!(object.to_bytes(), deep.as_bytes());
    }
}
