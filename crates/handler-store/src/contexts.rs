//! `contexts.toml`: `[Work] color = "blue"`, written by people, changed here without losing their comments.

use crate::providers::read_text;
use crate::strict::Checker;
use handler_types::context::{ContextColor, is_context_name};
use std::io;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// Most contexts.
const MOST: usize = 100;

/// Why the contexts could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ContextsError {
    /// The file (or what was to be written) is wrong.
    #[error("{}", problems.join("; "))]
    Invalid {
        /// File, line and what is wrong; at least one.
        problems: Vec<String>,
    },
    /// The file system failed.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The file.
#[derive(Debug, Clone)]
pub struct ContextsFile(PathBuf);

impl ContextsFile {
    /// The file, which need not exist.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Names and colours, in the order of the file.
    ///
    /// # Errors
    /// [`ContextsError`].
    pub fn list(&self) -> Result<Vec<(String, ContextColor)>, ContextsError> {
        parse(&shown(&self.0), &self.text()?)
    }

    /// Adds one, or gives it another colour.
    ///
    /// # Errors
    /// [`ContextsError`]; the file is then as before.
    pub fn put(&self, name: &str, color: ContextColor) -> Result<(), ContextsError> {
        self.change(|document| {
            if !document.get(name).is_some_and(Item::is_table_like) {
                document.insert(name, Item::Table(Table::new()));
            }
            let item = document.get_mut(name).and_then(Item::as_table_like_mut);
            if let Some(table) = item {
                let mut value = Value::from(color.word());
                let before = table.get("color").and_then(Item::as_value);
                if let Some(before) = before {
                    *value.decor_mut() = before.decor().clone();
                }
                table.insert("color", Item::Value(value));
            }
        })
    }

    /// Removes one.
    ///
    /// # Errors
    /// [`ContextsError`]; the file is then as before.
    pub fn remove(&self, name: &str) -> Result<(), ContextsError> {
        self.change(|document| {
            document.remove(name);
        })
    }

    fn change(&self, edit: impl FnOnce(&mut DocumentMut)) -> Result<(), ContextsError> {
        let (file, text) = (shown(&self.0), self.text()?);
        parse(&file, &text)?;
        let mut document: DocumentMut = text.parse().map_err(|_| ContextsError::Invalid {
            problems: vec![format!("{file}: not TOML")],
        })?;
        edit(&mut document);
        let text = document.to_string();
        parse(&file, &text)?;
        handler_base::fs::write_atomic(&self.0, text.as_bytes(), 0o600).map_err(|source| {
            ContextsError::Io {
                path: self.0.clone(),
                source,
            }
        })
    }

    fn text(&self) -> Result<String, ContextsError> {
        match read_text(&self.0) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(ContextsError::Io {
                path: self.0.clone(),
                source,
            }),
        }
    }
}

fn shown(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn parse(file: &str, text: &str) -> Result<Vec<(String, ContextColor)>, ContextsError> {
    let mut checker = Checker::new(file, text);
    let mut found = Vec::new();
    if let Some(document) = checker.parse() {
        let table: &dyn TableLike = document.as_table();
        if table.len() > MOST {
            checker.problem(None, "more than 100 contexts");
        }
        for (name, item) in table.iter() {
            let color = color(&mut checker, item);
            if !is_context_name(name) {
                let message =
                    "a context has 1 to 32 letters, digits, spaces, `-` and `_`, and is not `any`";
                checker.problem(item.span(), message);
            }
            found.extend(color.map(|color| (name.to_owned(), color)));
        }
    }
    if checker.has_problems() {
        return Err(ContextsError::Invalid {
            problems: checker.into_problems(),
        });
    }
    Ok(found)
}

fn color(checker: &mut Checker<'_>, item: &Item) -> Option<ContextColor> {
    let Some(table) = item.as_table_like() else {
        checker.problem(item.span(), "a context is a table: [Work] color = \"blue\"");
        return None;
    };
    checker.known_keys(table, &["color"], " in a context");
    let word = table.get("color").and_then(Item::as_str);
    let color = ContextColor::ALL
        .into_iter()
        .find(|color| Some(color.word()) == word);
    if color.is_none() {
        let message = "color must be blue, violet, cyan, pink or slate";
        checker.problem(item.span(), message);
    }
    color
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_kept_in_order_and_comments_survive() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("contexts.toml");
        let file = ContextsFile::new(path.clone());
        assert_eq!(file.list().expect("none"), []);
        std::fs::write(
            &path,
            "# mine\n[Work]\ncolor = \"blue\" # calm\n\n[\"Client 2\"]\ncolor = \"pink\"\n",
        )
        .expect("write");
        file.put("Home", ContextColor::Slate).expect("put");
        file.put("Work", ContextColor::Cyan).expect("put");
        file.remove("Client 2").expect("removed");
        let listed = file.list().expect("list");
        assert_eq!(
            listed,
            [
                ("Work".to_owned(), ContextColor::Cyan),
                ("Home".to_owned(), ContextColor::Slate)
            ]
        );
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(
            text.contains("# mine") && text.contains("\"cyan\" # calm"),
            "{text}"
        );
    }

    #[test]
    fn a_wrong_file_is_told_with_its_line() {
        for (text, words) in [
            ("[Work]\n", "color must be"),
            ("[Work]\ncolor = \"red\"\n", "color must be"),
            ("Work = \"blue\"\n", "a context is a table"),
            ("[any]\ncolor = \"blue\"\n", "not `any`"),
            ("[Work]\ncolour = \"blue\"\n", "did you mean `color`?"),
            ("[", "contexts.toml:1: not TOML"),
        ] {
            let error = parse("contexts.toml", text).expect_err("wrong").to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
