//! The strict form of a provider file. Pure: text in, provider or problems out.
//!
//! | level | keys |
//! |---|---|
//! | top | `apiVersion` `description` `endpoints` `apiKey` `models` |
//! | `endpoints` | one per protocol, at least one |
//! | `apiKey` | exactly one of `secret` `env` `file` `command` |
//! | `[[models]]` | `id` and what is known about it, at least one |
//! | `[files.HARNESS]` | slot of its config files → exactly one of `file` `env` `content` |
//! | `contexts` | names of contexts, or `any` |

use super::ProviderFileError;
use super::url::check_endpoint;
use crate::reference::{
    check_contexts, check_reference, check_version, is_host_path, is_variable, short_text,
};
use crate::strict::Checker;
use handler_types::provider::{PROVIDER_VERSION, Provider};
use std::collections::BTreeSet;
use toml_edit::{Item, TableLike, Value};

const TOP: &[&str] = &[
    "apiVersion",
    "description",
    "endpoints",
    "apiKey",
    "models",
    "files",
    "contexts",
];
const PROTOCOLS: &[&str] = &["anthropic", "openai-chat", "responses", "gemini"];
const FILE_SOURCES: &[&str] = &["file", "env", "content"];
const MODEL: &[&str] = &[
    "id",
    "name",
    "contextWindow",
    "maxOutput",
    "reasoning",
    "images",
    "temperature",
];
/// Longest content of a file that is written here, bytes.
const MAX_CONTENT: usize = 256 * 1024;
/// Most models of one provider.
const MAX_MODELS: usize = 1000;

/// Checks a provider's name: `[a-z0-9][a-z0-9_-]{0,62}`.
///
/// # Errors
/// [`ProviderFileError::InvalidName`].
pub fn check_provider_name(name: &str) -> Result<(), ProviderFileError> {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_name = (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name
            .bytes()
            .all(|b| is_letter(b) || matches!(b, b'-' | b'_'));
    if is_name {
        return Ok(());
    }
    Err(ProviderFileError::InvalidName {
        name: name.chars().take(80).collect(),
    })
}

/// Reads the text of `<name>.toml`.
///
/// # Errors
/// Every problem found: file, line and words. None of them repeats a value.
pub fn parse_provider(name: &str, text: &str) -> Result<Provider, Vec<String>> {
    let file = format!("{name}.toml");
    let mut checker = Checker::new(&file, text);
    if let Some(document) = checker.parse() {
        top(&mut checker, document.as_table(), name);
    }
    if checker.has_problems() {
        return Err(checker.into_problems());
    }
    toml::from_str(text).map_err(|error| {
        // The checks above leave nothing to find here; should they, the text of the error could
        // repeat a value.
        checker.problem(error.span(), "not of the form of a provider");
        checker.into_problems()
    })
}

fn top(checker: &mut Checker<'_>, table: &dyn TableLike, name: &str) {
    checker.known_keys(table, TOP, "");
    check_version(checker, table, PROVIDER_VERSION);
    short_text(checker, table, "description");
    endpoints(checker, table);
    if let Some(item) = table.get("apiKey") {
        let path = format!("providers/{name}/apiKey");
        let advice = format!(
            "run `handler secret set {path}`, then write apiKey = {{ secret = \"{path}\" }}"
        );
        check_reference(checker, item, ("apiKey", "key"), &advice);
    }
    models(checker, table);
    if let Some(item) = table.get("files") {
        files(checker, item);
    }
    check_contexts(checker, table);
}

fn files(checker: &mut Checker<'_>, item: &Item) {
    let message = "files must be tables: [files.codex] instructions_md = { content = \"…\" }";
    let Some(harnesses) = item.as_table_like() else {
        checker.problem(item.span(), message);
        return;
    };
    for (_, slots) in harnesses.iter() {
        let Some(slots) = slots.as_table_like() else {
            checker.problem(item.span(), message);
            continue;
        };
        for (slot, source) in slots.iter() {
            let shown: String = slot.chars().take(60).collect();
            file(checker, source, &shown);
        }
    }
}

fn file(checker: &mut Checker<'_>, item: &Item, slot: &str) {
    let table = item.as_table_like().filter(|table| table.len() == 1);
    let Some((source, value)) = table.and_then(|table| table.iter().next()) else {
        let message = format!("{slot} needs exactly one of file, env, content");
        checker.problem(item.span(), &message);
        return;
    };
    let is_fine = match (source, value.as_str()) {
        ("file", Some(text)) => is_host_path(text),
        ("env", Some(text)) => is_variable(text),
        ("content", Some(text)) => text.len() <= MAX_CONTENT,
        _ => false,
    };
    if !FILE_SOURCES.contains(&source) {
        let message = format!("{slot} needs exactly one of file, env, content");
        checker.problem(item.span(), &message);
    } else if !is_fine {
        let message = format!(
            "{slot}: file is a path from / or ~/, env the name of a variable, content a text of at most 256 KiB"
        );
        checker.problem(value.span(), &message);
    }
}

fn endpoints(checker: &mut Checker<'_>, top: &dyn TableLike) {
    let example = "endpoints needs at least one, e.g. anthropic = \"https://…\"";
    let Some(item) = top.get("endpoints") else {
        checker.problem(None, example);
        return;
    };
    let Some(table) = item.as_table_like().filter(|table| !table.is_empty()) else {
        checker.problem(item.span(), example);
        return;
    };
    checker.known_keys(table, PROTOCOLS, " in endpoints");
    for protocol in PROTOCOLS {
        let Some(item) = table.get(protocol) else {
            continue;
        };
        let what = format!("endpoints.{protocol}");
        if let Some(url) = checker.text(item, &what)
            && let Err(rule) = check_endpoint(url)
        {
            checker.problem(item.span(), &format!("{what}: {rule}"));
        }
    }
}

fn models(checker: &mut Checker<'_>, top: &dyn TableLike) {
    let Some(item) = top.get("models") else {
        checker.problem(None, "models needs at least one [[models]] with an id");
        return;
    };
    let tables: Option<Vec<&dyn TableLike>> = match item {
        Item::ArrayOfTables(tables) => {
            Some(tables.iter().map(|table| table as &dyn TableLike).collect())
        }
        Item::Value(Value::Array(values)) => values
            .iter()
            .map(|value| value.as_inline_table().map(|table| table as &dyn TableLike))
            .collect(),
        _ => None,
    };
    match tables {
        None => checker.problem(item.span(), "models must be a list of tables: [[models]]"),
        Some(tables) if !(1..=MAX_MODELS).contains(&tables.len()) => {
            checker.problem(item.span(), "models needs 1 to 1000 entries");
        }
        Some(tables) => {
            let mut ids = BTreeSet::new();
            for table in tables {
                model(checker, table, item, &mut ids);
            }
        }
    }
}

fn model<'d>(
    checker: &mut Checker<'_>,
    table: &'d dyn TableLike,
    list: &Item,
    ids: &mut BTreeSet<&'d str>,
) {
    checker.known_keys(table, MODEL, " in models");
    short_text(checker, table, "id");
    short_text(checker, table, "name");
    match table.get("id") {
        None => {
            let first = table.iter().next().and_then(|(_, item)| item.span());
            checker.problem(first.or_else(|| list.span()), "a model needs an id");
        }
        Some(item) => match item.as_str() {
            Some("") => checker.problem(item.span(), "a model's id is empty"),
            Some(id) if !ids.insert(id) => {
                checker.problem(item.span(), "two models have this id");
            }
            _ => {}
        },
    }
    for key in ["contextWindow", "maxOutput"] {
        if let Some(item) = table.get(key)
            && item.as_integer().is_none_or(|number| number < 1)
        {
            checker.problem(
                item.span(),
                &format!("{key} must be a whole number above 0"),
            );
        }
    }
    for key in ["reasoning", "images"] {
        if let Some(item) = table.get(key)
            && item.as_bool().is_none()
        {
            checker.problem(item.span(), &format!("{key} must be true or false"));
        }
    }
    if let Some(item) = table.get("temperature") {
        let float = item.as_float().is_some_and(|n| n.is_finite() && n >= 0.0);
        let whole = item.as_integer().is_some_and(|n| n >= 0);
        if !float && !whole {
            checker.problem(item.span(), "temperature must be a number from 0 up");
        }
    }
}
