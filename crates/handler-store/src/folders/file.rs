//! `folders.toml`: `roots = ["~/code"]`, written by people, changed here without losing their comments.

use super::FolderError;
use crate::providers::read_text;
use crate::strict::Checker;
use std::io;
use std::path::Path;
use toml_edit::{Array, DocumentMut, Item, Value};

/// The roots when there is no file.
const DEFAULT: &[&str] = &["~"];
/// Most roots.
const MAX_ROOTS: usize = 200;

/// The roots as written; the default when there is no file.
pub(super) fn read(path: &Path) -> Result<Vec<String>, FolderError> {
    match text(path)? {
        None => Ok(DEFAULT.iter().map(|&root| root.to_owned()).collect()),
        Some(text) => parse(&shown(path), &text),
    }
}

/// Adds a root at the end.
pub(super) fn add(path: &Path, root: &str) -> Result<(), FolderError> {
    change(path, |roots| {
        // In a list of one line each the new line looks like the others.
        let mut value = Value::from(root);
        if let Some(last) = roots.iter().last() {
            let decor = last.decor().clone();
            let prefix = decor.prefix().and_then(|prefix| prefix.as_str());
            // A comment in front of the last entry is about that entry.
            let space = prefix.map(|prefix| prefix.rsplit('\n').next().unwrap_or(""));
            if let (Some(prefix), Some(space)) = (prefix, space)
                && prefix.contains('\n')
            {
                value.decor_mut().set_prefix(format!("\n{space}"));
                roots.push_formatted(value);
                return;
            }
        }
        roots.push(value);
    })
}

/// Makes these the roots: those that stay keep their place and comments, new ones come after them.
pub(super) fn set(path: &Path, wanted: &[String]) -> Result<(), FolderError> {
    change(path, |roots| {
        let is_wanted = |value: &Value| {
            let written = value.as_str();
            wanted.iter().any(|root| written == Some(root.as_str()))
        };
        roots.retain(is_wanted);
        for root in wanted {
            if roots.iter().all(|value| value.as_str() != Some(root)) {
                roots.push(root.as_str());
            }
        }
    })
}

/// Removes the roots at these places, given in rising order.
pub(super) fn remove(path: &Path, places: &[usize]) -> Result<(), FolderError> {
    change(path, |roots| {
        for place in places.iter().rev() {
            roots.remove(*place);
        }
    })
}

fn change(path: &Path, edit: impl FnOnce(&mut Array)) -> Result<(), FolderError> {
    let text = match text(path)? {
        Some(text) => text,
        None => format!(
            "# Folders that may be given to sandboxes. \"~\" is everything in the home but hidden folders.\nroots = [{}]\n",
            DEFAULT
                .iter()
                .map(|root| format!("\"{root}\""))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    };
    parse(&shown(path), &text)?;
    let not_toml = || FolderError::Invalid {
        problems: vec![format!("{}: not TOML", shown(path))],
    };
    let mut document: DocumentMut = text.parse().map_err(|_| not_toml())?;
    if !document.contains_key("roots") {
        document.insert("roots", Item::Value(Value::Array(Array::new())));
    }
    let roots = document["roots"].as_array_mut().ok_or_else(not_toml)?;
    edit(roots);
    let text = document.to_string();
    parse(&shown(path), &text)?;
    handler_base::fs::write_atomic(path, text.as_bytes(), 0o600).map_err(|source| FolderError::Io {
        path: path.to_owned(),
        source,
    })
}

fn shown(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn text(path: &Path) -> Result<Option<String>, FolderError> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FolderError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn parse(file: &str, text: &str) -> Result<Vec<String>, FolderError> {
    let mut checker = Checker::new(file, text);
    let mut roots = Vec::new();
    if let Some(document) = checker.parse() {
        checker.known_keys(document.as_table(), &["roots"], "");
        match document.get("roots") {
            None => {}
            Some(item) => match item.as_array() {
                None => checker.problem(item.span(), "roots must be a list: roots = [\"~/code\"]"),
                Some(list) if list.len() > MAX_ROOTS => {
                    checker.problem(item.span(), "roots has more than 200 entries");
                }
                Some(list) => {
                    for value in list {
                        root(&mut checker, value, &mut roots);
                    }
                }
            },
        }
    }
    if checker.has_problems() {
        return Err(FolderError::Invalid {
            problems: checker.into_problems(),
        });
    }
    Ok(roots)
}

fn root(checker: &mut Checker<'_>, value: &Value, roots: &mut Vec<String>) {
    match value.as_str() {
        None => checker.problem(value.span(), "a root must be a text"),
        Some(text) if text == "~" || text.starts_with("~/") || text.starts_with('/') => {
            roots.push(text.to_owned());
        }
        Some(_) => checker.problem(value.span(), "a root must start with / or ~/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_form_survive_a_change() {
        let dir = tempfile::tempdir().expect("temp folder");
        let path = dir.path().join("folders.toml");
        let text = "# mine\nroots = [\n    # work\n    \"~/code\",\n    # play\n    \"/srv/games\", # big\n]\n";
        std::fs::write(&path, text).expect("write");
        add(&path, "/opt/new").expect("add");
        let after = std::fs::read_to_string(&path).expect("read");
        for kept in ["# mine", "# work", "# play", "# big", "\n    \"/opt/new\""] {
            assert!(after.contains(kept), "{kept} in {after}");
        }
        assert_eq!(
            read(&path).expect("roots"),
            ["~/code", "/srv/games", "/opt/new"]
        );
        set(
            &path,
            &["/opt/new".into(), "~/code".into(), "/opt/x".into()],
        )
        .expect("set");
        assert_eq!(
            read(&path).expect("roots"),
            ["~/code", "/opt/new", "/opt/x"]
        );
        let set = std::fs::read_to_string(&path).expect("read");
        assert!(set.contains("# work"), "{set}");
        std::fs::write(&path, &after).expect("as before");
        remove(&path, &[1]).expect("remove");
        assert_eq!(read(&path).expect("roots"), ["~/code", "/opt/new"]);
        let after = std::fs::read_to_string(&path).expect("read");
        assert!(after.contains("# work"), "{after}");
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        for (text, words) in [
            (
                "root = []\n",
                "folders.toml:1: unknown key `root`; did you mean `roots`?",
            ),
            ("roots = 1\n", "folders.toml:1: roots must be a list"),
            (
                "roots = [\n \"~/a\",\n 2]\n",
                "folders.toml:3: a root must be a text",
            ),
            (
                "\nroots = [\"code\"]\n",
                "folders.toml:2: a root must start with",
            ),
            ("roots = [\n", "folders.toml:"),
        ] {
            let error = parse("folders.toml", text).expect_err("wrong");
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
        assert!(parse("folders.toml", "").expect("no roots").is_empty());
    }
}
