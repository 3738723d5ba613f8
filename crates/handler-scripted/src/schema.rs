//! Filling a JSON Schema with values: known meanings by property name, the rest by type.
//!
//! Invariant: ends on every schema, recursive ones included (the depth is bounded).

use serde_json::{Map, Value, json};

const DEPTH_LIMIT: usize = 8;
const ITEMS_LIMIT: usize = 10;

/// What a plan wants to say with a call, by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Path,
    Content,
    Command,
    Old,
    New,
    Question,
}

/// The meaning of a property name, if it has one of ours.
pub(crate) fn meaning_of(property: &str) -> Option<Meaning> {
    match squeezed(property).as_str() {
        "filepath" | "path" | "absolutepath" | "filename" | "file" | "targetfile" => {
            Some(Meaning::Path)
        }
        "content" | "contents" | "filetext" | "text" => Some(Meaning::Content),
        "command" | "cmd" | "commandline" => Some(Meaning::Command),
        "oldstring" | "oldstr" | "oldtext" | "search" | "old" => Some(Meaning::Old),
        "newstring" | "newstr" | "newtext" | "replace" | "replacement" | "new" => {
            Some(Meaning::New)
        }
        "question" | "prompt" => Some(Meaning::Question),
        _ => None,
    }
}

/// A name in lower case without separators, so that spelling styles compare equal.
pub(crate) fn squeezed(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Values that satisfy `root`: `known` where a property means it, required ones by type.
pub(crate) fn fill(root: &Value, known: &[(Meaning, &str)]) -> Value {
    Filler { root, known }.value(root, "", 0, 0)
}

struct Filler<'a> {
    root: &'a Value,
    known: &'a [(Meaning, &'a str)],
}

impl Filler<'_> {
    /// `name` is the property being filled, `nth` its place in a list.
    fn value(&self, schema: &Value, name: &str, nth: usize, depth: usize) -> Value {
        if depth > DEPTH_LIMIT {
            return Value::Null;
        }
        let schema = self.resolved(schema);
        if let Some(fixed) = schema.get("const").or_else(|| schema.get("default")) {
            return fixed.clone();
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            return choices.first().cloned().unwrap_or(Value::Null);
        }
        match type_of(schema).as_str() {
            "object" => self.object(schema, nth, depth),
            "array" => self.array(schema, name, depth),
            "integer" | "number" => number(schema),
            "boolean" => Value::Bool(false),
            "null" => Value::Null,
            _ => Value::String(limited(schema, &plain_text(name, nth))),
        }
    }

    fn object(&self, schema: &Value, nth: usize, depth: usize) -> Value {
        let mut filled = Map::new();
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Value::Object(filled);
        };
        let required = schema.get("required").and_then(Value::as_array);
        for (name, property) in properties {
            if let Some(text) = self.known_text(name) {
                filled.insert(name.clone(), shaped(self.resolved(property), name, text));
            } else if required.is_some_and(|names| names.iter().any(|other| other == name)) {
                filled.insert(name.clone(), self.value(property, name, nth, depth + 1));
            }
        }
        Value::Object(filled)
    }

    fn array(&self, schema: &Value, name: &str, depth: usize) -> Value {
        let Some(items) = schema.get("items") else {
            return json!([]);
        };
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        // A list of objects is only useful with something in it; a choice needs alternatives.
        let useful = match (type_of(self.resolved(items)).as_str(), name) {
            (_, "options" | "choices") => 2,
            ("object", _) => 1,
            _ => 0,
        };
        let count = usize::try_from(least)
            .unwrap_or(ITEMS_LIMIT)
            .max(useful)
            .min(ITEMS_LIMIT);
        (0..count)
            .map(|nth| self.value(items, name, nth, depth + 1))
            .collect()
    }

    fn known_text(&self, property: &str) -> Option<&str> {
        let meaning = meaning_of(property)?;
        self.known
            .iter()
            .find(|(other, _)| *other == meaning)
            .map(|(_, text)| *text)
    }

    /// Follows references into the same document and takes the first alternative that is a value.
    fn resolved<'s>(&'s self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..DEPTH_LIMIT {
            let reference = schema.get("$ref").and_then(Value::as_str);
            let target = reference.and_then(|text| self.root.pointer(text.strip_prefix('#')?));
            let next = target.or_else(|| alternative(schema));
            match next {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }
}

fn alternative(schema: &Value) -> Option<&Value> {
    let lists = ["anyOf", "oneOf", "allOf"].into_iter();
    let mut all = lists
        .filter_map(|name| schema.get(name)?.as_array())
        .flatten();
    all.find(|choice| type_of(choice) != "null")
}

/// The (first non-null) type in lower case; Gemini writes types in capitals.
fn type_of(schema: &Value) -> String {
    let named = match schema.get("type") {
        Some(Value::String(name)) => Some(name.as_str()),
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .find(|n| *n != "null"),
        _ => None,
    };
    let guess = if schema.get("properties").is_some() {
        "object"
    } else {
        ""
    };
    named.unwrap_or(guess).to_ascii_lowercase()
}

/// A known text in the type the property wants: commands also come as lists.
fn shaped(schema: &Value, name: &str, text: &str) -> Value {
    match (type_of(schema).as_str(), meaning_of(name)) {
        ("array", Some(Meaning::Command)) => json!(["sh", "-c", text]),
        ("array", _) => json!([text]),
        _ => Value::String(text.to_owned()),
    }
}

fn number(schema: &Value) -> Value {
    let least = schema.get("minimum").filter(|value| value.is_number());
    least.cloned().unwrap_or_else(|| json!(1))
}

fn plain_text(name: &str, nth: usize) -> String {
    match squeezed(name).as_str() {
        "title" => "Scripted session".to_owned(),
        "label" | "value" | "option" | "options" | "choices" => {
            format!("Choice {}", nth + 1)
        }
        "header" => "Choice".to_owned(),
        "id" => format!("scripted_{}", nth + 1),
        "url" | "uri" => "https://denied.example/".to_owned(),
        _ => "Asked for by the script".to_owned(),
    }
}

fn limited(schema: &Value, text: &str) -> String {
    let most = schema
        .get("maxLength")
        .and_then(Value::as_u64)
        .unwrap_or(u64::MAX);
    text.chars()
        .take(usize::try_from(most).unwrap_or(usize::MAX))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_fields_are_filled_by_type_and_optional_ones_left_out() {
        let schema = json!({"type": "object", "required": ["a", "b", "c", "d", "e", "f", "g"],
            "properties": {
                "a": {"type": "STRING", "maxLength": 5}, "b": {"type": ["null", "integer"], "minimum": 7},
                "c": {"type": "boolean"}, "d": {"enum": ["x", "y"]}, "e": {"const": 3},
                "f": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]},
                "g": {"$ref": "#/$defs/g"}, "h": {"type": "string"}},
            "$defs": {"g": {"type": "number", "default": 0.5}}});
        let expected =
            json!({"a": "Asked", "b": 7, "c": false, "d": "x", "e": 3, "f": [], "g": 0.5});
        assert_eq!(fill(&schema, &[]), expected);
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let looped = json!({"$ref": "#"});
        assert!(fill(&looped, &[]).is_string());
        let nested =
            json!({"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#"}}});
        assert!(fill(&nested, &[]).is_object());
        let wide =
            json!({"type": "array", "minItems": 9_999_999_999_u64, "items": {"type": "null"}});
        assert_eq!(fill(&wide, &[]).as_array().map(Vec::len), Some(ITEMS_LIMIT));
    }

    #[test]
    fn nested_lists_get_known_values_too() {
        let schema = json!({"type": "object", "required": ["path", "edits"], "properties": {
            "path": {"type": "string"},
            "edits": {"type": "array", "items": {"type": "object", "required": ["oldText", "newText"],
                "properties": {"oldText": {"type": "string"}, "newText": {"type": "string"}}}}}});
        let known = [
            (Meaning::Path, "p"),
            (Meaning::Old, "o"),
            (Meaning::New, "n"),
        ];
        let expected = json!({"path": "p", "edits": [{"oldText": "o", "newText": "n"}]});
        assert_eq!(fill(&schema, &known), expected);
    }

    #[test]
    fn a_command_may_be_wanted_as_a_list() {
        let schema = json!({"type": "object", "properties": {
            "command": {"type": "array", "items": {"type": "string"}}}});
        let filled = fill(&schema, &[(Meaning::Command, "ls")]);
        assert_eq!(filled, json!({"command": ["sh", "-c", "ls"]}));
    }
}
