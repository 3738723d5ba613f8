//! The strict form of a reference to a secret, and of the contexts a document is made for: what hand-written files
//! share.

use crate::secrets::check_path;
use crate::strict::Checker;
use handler_types::context::{ANY, is_context_name};
use toml_edit::{Item, TableLike, Value};

const SOURCES: &[&str] = &["secret", "env", "file", "command"];
/// Longest text of a description, name or id, in characters.
const MAX_TEXT: usize = 500;
/// Most contexts of one document.
const MAX_CONTEXTS: usize = 100;

/// Checks `key = { secret | env | file | command = … }`. `noun` is what it leads to, `advice` what to do instead of
/// writing that itself.
pub(crate) fn check_reference(
    checker: &mut Checker<'_>,
    item: &Item,
    (key, noun): (&str, &str),
    advice: &str,
) {
    let Some(table) = item.as_table_like() else {
        checker.problem(
            item.span(),
            &format!("{key} must not hold the {noun} itself: {advice}"),
        );
        return;
    };
    checker.known_keys(table, SOURCES, &format!(" in {key}"));
    let given = SOURCES
        .iter()
        .filter(|source| table.contains_key(source))
        .count();
    if given != 1 {
        checker.problem(
            item.span(),
            &format!("{key} needs exactly one of secret, env, file, command"),
        );
    }
    for (source, item) in table.iter() {
        if let Some(problem) = wrong_source(key, source, item) {
            checker.problem(item.span(), &problem);
        }
    }
}

fn wrong_source(key: &str, source: &str, item: &Item) -> Option<String> {
    match (source, item.as_str()) {
        ("secret", Some(text)) => check_path(text).err().map(|error| error.to_string()),
        ("env", Some(text)) => {
            (!is_variable(text)).then(|| format!("{key}.env is not the name of a variable"))
        }
        ("file", Some(text)) => {
            (!is_host_path(text)).then(|| format!("{key}.file must start with / or ~/"))
        }
        ("command", _) => (!is_command(item))
            .then(|| format!("{key}.command must be a list of texts, a program first")),
        ("secret" | "env" | "file", None) => Some(format!("{key}.{source} must be a text")),
        _ => None,
    }
}

pub(crate) fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.len() <= 200
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

pub(crate) fn is_host_path(text: &str) -> bool {
    text.starts_with('/') || text.starts_with("~/")
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

/// Checks `apiVersion`.
pub(crate) fn check_version(checker: &mut Checker<'_>, table: &dyn TableLike, version: &str) {
    match table.get("apiVersion") {
        None => checker.problem(
            None,
            &format!("apiVersion is missing: write apiVersion = \"{version}\""),
        ),
        Some(item) if item.as_str() != Some(version) => {
            checker.problem(item.span(), &format!("apiVersion must be \"{version}\""));
        }
        Some(_) => {}
    }
}

/// Checks `contexts = ["Work"]`.
pub(crate) fn check_contexts(checker: &mut Checker<'_>, table: &dyn TableLike) {
    let Some(item) = table.get("contexts") else {
        return;
    };
    let Some(list) = item.as_array().filter(|list| list.len() <= MAX_CONTEXTS) else {
        let message = "contexts must be a list of at most 100 names: contexts = [\"Work\"]";
        checker.problem(item.span(), message);
        return;
    };
    for value in list {
        let is_fine = |name: &str| name == ANY || is_context_name(name);
        if !value.as_str().is_some_and(is_fine) {
            let message = "a context has 1 to 32 letters, digits, spaces, `-` and `_`, or is `any`";
            checker.problem(value.span(), message);
        }
    }
}

/// Checks a text of at most 500 characters.
pub(crate) fn short_text(checker: &mut Checker<'_>, table: &dyn TableLike, key: &str) {
    if let Some(item) = table.get(key)
        && let Some(text) = checker.text(item, key)
        && text.chars().count() > MAX_TEXT
    {
        checker.problem(item.span(), &format!("{key} has more than 500 characters"));
    }
}
