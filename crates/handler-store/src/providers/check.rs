//! The strict form of a provider file. Pure: text in, provider or problems out.
//!
//! | level | keys |
//! |---|---|
//! | top | `apiVersion` `description` `endpoints` `apiKey` `models` |
//! | `endpoints` | one per protocol, at least one |
//! | `apiKey` | exactly one of `secret` `env` `file` `command` |
//! | `[[models]]` | `id` and what is known about it, at least one |

use super::ProviderFileError;
use super::url::check_endpoint;
use crate::secrets::check_path;
use crate::strict::Checker;
use handler_types::provider::{PROVIDER_VERSION, Provider};
use std::collections::BTreeSet;
use toml_edit::{Item, TableLike, Value};

const TOP: &[&str] = &["apiVersion", "description", "endpoints", "apiKey", "models"];
const PROTOCOLS: &[&str] = &["anthropic", "openai-chat", "responses", "gemini"];
const SOURCES: &[&str] = &["secret", "env", "file", "command"];
const MODEL: &[&str] = &[
    "id",
    "name",
    "contextWindow",
    "maxOutput",
    "reasoning",
    "images",
    "temperature",
];
/// Longest text of a description, model id or name, in characters.
const MAX_TEXT: usize = 500;
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
    match table.get("apiVersion") {
        None => checker.problem(
            None,
            &format!("apiVersion is missing: write apiVersion = \"{PROVIDER_VERSION}\""),
        ),
        Some(item) if item.as_str() != Some(PROVIDER_VERSION) => checker.problem(
            item.span(),
            &format!("apiVersion must be \"{PROVIDER_VERSION}\""),
        ),
        Some(_) => {}
    }
    short_text(checker, table, "description");
    endpoints(checker, table);
    if let Some(item) = table.get("apiKey") {
        api_key(checker, item, name);
    }
    models(checker, table);
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

fn api_key(checker: &mut Checker<'_>, item: &Item, name: &str) {
    let path = format!("providers/{name}/apiKey");
    let Some(table) = item.as_table_like() else {
        checker.problem(
            item.span(),
            &format!(
                "apiKey must not hold the key itself: run `handler secret set {path}`, then write \
                 apiKey = {{ secret = \"{path}\" }}"
            ),
        );
        return;
    };
    checker.known_keys(table, SOURCES, " in apiKey");
    let given = SOURCES
        .iter()
        .filter(|source| table.contains_key(source))
        .count();
    if given != 1 {
        checker.problem(
            item.span(),
            "apiKey needs exactly one of secret, env, file, command",
        );
    }
    for (source, item) in table.iter() {
        let problem = match (source, item.as_str()) {
            ("secret", Some(text)) => check_path(text).err().map(|error| error.to_string()),
            ("env", Some(text)) => {
                (!is_variable(text)).then(|| "apiKey.env is not the name of a variable".to_owned())
            }
            ("file", Some(text)) => (!text.starts_with('/') && !text.starts_with("~/"))
                .then(|| "apiKey.file must start with / or ~/".to_owned()),
            ("command", _) => (!is_command(item))
                .then(|| "apiKey.command must be a list of texts, a program first".to_owned()),
            ("secret" | "env" | "file", None) => Some(format!("apiKey.{source} must be a text")),
            _ => None,
        };
        if let Some(problem) = problem {
            checker.problem(item.span(), &problem);
        }
    }
}

fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.len() <= 200
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_command(item: &Item) -> bool {
    item.as_array().is_some_and(|words| {
        words.iter().all(Value::is_str)
            && words
                .get(0)
                .and_then(Value::as_str)
                .is_some_and(|program| !program.is_empty())
    })
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

fn short_text(checker: &mut Checker<'_>, table: &dyn TableLike, key: &str) {
    if let Some(item) = table.get(key)
        && let Some(text) = checker.text(item, key)
        && text.chars().count() > MAX_TEXT
    {
        checker.problem(item.span(), &format!("{key} has more than 500 characters"));
    }
}
