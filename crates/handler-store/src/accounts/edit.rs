//! An account put into the text of its file: what is not changed stays as it was written, comments included.

use handler_types::account::Account;
use handler_types::provider::SecretRef;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Value};

/// The text with the account in it; none when `before` is no TOML.
pub(super) fn written(before: &str, account: &Account) -> Option<String> {
    let mut document: DocumentMut = before.parse().ok()?;
    let text = |text: &String| Value::from(text.as_str());
    let contexts = account.contexts.iter().collect::<Array>();
    for (key, value) in [
        ("apiVersion", Some(text(&account.api_version))),
        ("harness", Some(text(&account.harness))),
        ("description", account.description.as_ref().map(text)),
        ("plan", account.plan.as_ref().map(text)),
        (
            "connectors",
            account.connectors.then_some(Value::from(true)),
        ),
        ("token", account.token.as_ref().map(reference)),
        (
            "contexts",
            (!contexts.is_empty()).then_some(Value::Array(contexts)),
        ),
    ] {
        set(&mut document, key, value);
    }
    Some(document.to_string())
}

fn reference(reference: &SecretRef) -> Value {
    let value = match reference {
        SecretRef::Secret(text) | SecretRef::Env(text) | SecretRef::File(text) => {
            Value::from(text.as_str())
        }
        SecretRef::Command(words) => Value::Array(words.iter().collect()),
    };
    let mut table = InlineTable::new();
    table.insert(reference.source(), value);
    Value::InlineTable(table)
}

/// Sets or takes out a key. One that says the same already is not touched.
fn set(document: &mut DocumentMut, key: &str, value: Option<Value>) {
    let Some(mut value) = value else {
        document.remove(key);
        return;
    };
    let plain = |value: &Value| {
        let mut value = value.clone();
        value.decor_mut().clear();
        value.to_string()
    };
    match document.get_mut(key).and_then(Item::as_value_mut) {
        Some(before) if plain(before) == plain(&value) => {}
        Some(before) => {
            // What stands behind it on its line is about it.
            *value.decor_mut() = before.decor().clone();
            *before = value;
        }
        None => {
            document.insert(key, Item::Value(value));
        }
    }
}
