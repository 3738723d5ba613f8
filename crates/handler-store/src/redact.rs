//! Takes secret values out of text before it is shown or kept, without holding them itself.
//!
//! Each value is looked for as it is and in the forms JSON writers give it. Values shorter than
//! [`MIN_LENGTH`] bytes are left: they would be found everywhere and say nothing. A value cut in two by
//! the borders of a stream is not found: callers redact whole lines or messages.

mod fingerprint;

use fingerprint::Fingerprints;
use handler_types::SecretValue;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Shortest value looked for, in bytes.
pub const MIN_LENGTH: usize = 4;
/// What stands for a value.
const MASK: &str = "***";

/// Replaces known secret values by `***`; clones share what is known of the values.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<Fingerprints>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} forms)", self.known.count())
    }
}

impl Redactor {
    /// Makes a redactor for these values.
    #[must_use]
    pub fn new(values: Vec<SecretValue>) -> Self {
        let mut forms: Vec<Zeroizing<String>> = Vec::new();
        for value in values.iter().map(SecretValue::expose) {
            for form in forms_of(value) {
                if form.len() >= MIN_LENGTH && !forms.contains(&form) {
                    forms.push(form);
                }
            }
        }
        let bytes = forms.iter().map(|form| form.as_bytes());
        Self {
            known: Arc::new(Fingerprints::of(bytes)),
        }
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.count() == 0
    }

    /// Replaces each value by `***`; values that overlap become one.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut found = self.known.find(text.as_bytes());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        found.sort_unstable_by_key(|range| (range.start, range.end));
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for range in found {
            // Starts and ends are borders of characters, since text and forms are UTF-8.
            if range.start >= done {
                out.push_str(&text[done..range.start]);
                out.push_str(MASK);
            }
            done = done.max(range.end);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    /// Redacts every text and every key in a JSON value.
    pub fn redact_value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.redact_in_place(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(map) => {
                let has_key = map
                    .keys()
                    .any(|key| matches!(self.redact(key), Cow::Owned(_)));
                if has_key {
                    let old = std::mem::take(map);
                    map.extend(
                        old.into_iter()
                            .map(|(key, item)| (self.redact(&key).into_owned(), item)),
                    );
                }
                map.values_mut().for_each(|item| self.redact_value(item));
            }
            _ => {}
        }
    }

    fn redact_in_place(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.redact(text) {
            *text = clean;
        }
    }
}

/// The value and what it becomes in a JSON text, once and twice (JSON in JSON), also when the writer
/// escapes `/` or everything that is not ASCII.
fn forms_of(value: &str) -> Vec<Zeroizing<String>> {
    let once = json_form(value);
    let twice = json_form(&once);
    let slashes = Zeroizing::new(once.replace('/', "\\/"));
    let ascii = ascii_form(&once);
    vec![
        Zeroizing::new(value.to_owned()),
        once,
        twice,
        slashes,
        ascii,
    ]
}

fn json_form(text: &str) -> Zeroizing<String> {
    let quoted = Zeroizing::new(Value::String(text.to_owned()).to_string());
    Zeroizing::new(quoted[1..quoted.len() - 1].to_owned())
}

fn ascii_form(escaped: &str) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(escaped.len()));
    for c in escaped.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn redactor(values: &[&str]) -> Redactor {
        Redactor::new(
            values
                .iter()
                .map(|value| SecretValue::new((*value).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn values_are_masked_and_other_text_is_borrowed() {
        let redactor = redactor(&["sk-secret", "secret-two", "abc"]);
        assert_eq!(redactor.redact("a sk-secret b sk-secret"), "a *** b ***");
        assert_eq!(redactor.redact("sk-secret-two!"), "***!");
        assert_eq!(redactor.redact("sk-secretsk-secret"), "******");
        assert!(matches!(redactor.redact("nothing abc"), Cow::Borrowed(_)));
        assert!(matches!(
            Redactor::default().redact("sk-secret"),
            Cow::Borrowed(_)
        ));
        assert_eq!(format!("{redactor:?}"), "Redactor(2 forms)");
    }

    #[test]
    fn escaped_forms_are_masked_too() {
        let value = "p\"a\\s/s\nwörd\u{1f511}";
        let redactor = redactor(&[value]);
        let once = json!({ "v": value }).to_string();
        let twice = json!({ "v": once }).to_string();
        assert_eq!(redactor.redact(&once), "{\"v\":\"***\"}");
        assert_eq!(
            redactor.redact(&twice),
            "{\"v\":\"{\\\"v\\\":\\\"***\\\"}\"}"
        );
        let python = r#"["p\"a\\s/s\nw\u00f6rd\ud83d\udd11"]"#;
        assert_eq!(redactor.redact(python), "[\"***\"]");
    }

    #[test]
    fn a_json_value_is_cleaned_in_texts_and_keys() {
        let redactor = redactor(&["sk-secret"]);
        let mut value = json!({"sk-secret": [1, "x sk-secret"], "b": {"c": "sk-secret"}});
        redactor.redact_value(&mut value);
        assert_eq!(value, json!({"***": [1, "x ***"], "b": {"c": "***"}}));
    }

    proptest! {
        #[test]
        fn no_value_is_left_in_any_text(
            values in proptest::collection::vec("[ab\"\\\\é/\n]{4,8}", 1..4),
            parts in proptest::collection::vec("[ab\"\\\\é/\n]{0,6}", 1..6),
            picks in proptest::collection::vec(0usize..4, 1..6),
        ) {
            let redactor = redactor(&values.iter().map(String::as_str).collect::<Vec<_>>());
            let mut text = String::new();
            for (part, pick) in parts.iter().zip(picks.iter().cycle()) {
                text.push_str(part);
                text.push_str(&values[pick % values.len()]);
            }
            let clean = redactor.redact(&text);
            for value in &values {
                prop_assert!(!clean.contains(value.as_str()), "{value:?} in {clean:?}");
            }
            let json = Value::String(text).to_string();
            let clean = redactor.redact(&json);
            for value in &values {
                prop_assert!(!clean.contains(&*json_form(value)), "{value:?} in {clean:?}");
            }
        }
    }
}
