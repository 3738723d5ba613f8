//! `knowledge.toml`: `root = "/abs"`, written by people too, changed here without losing their comments.

use super::KnowledgeError;
use crate::providers::read_text;
use crate::strict::Checker;
use std::io;
use std::path::Path;
use toml_edit::{DocumentMut, value};

/// The root as written; none: nobody says it.
pub(super) fn read(path: &Path) -> Result<Option<String>, KnowledgeError> {
    match text(path)? {
        Some(text) => parse(&shown(path), &text),
        None => Ok(None),
    }
}

/// Writes the root, or takes it away.
pub(super) fn write(path: &Path, root: Option<&str>) -> Result<(), KnowledgeError> {
    let before = text(path)?;
    if before.is_none() && root.is_none() {
        return Ok(());
    }
    let before =
        before.unwrap_or_else(|| "# Where the knowledge folders of agents lie.\n".to_owned());
    parse(&shown(path), &before)?;
    let mut document: DocumentMut = before.parse().map_err(|_| KnowledgeError::Invalid {
        problems: vec![format!("{}: not TOML", shown(path))],
    })?;
    match root {
        Some(root) => match document
            .get_mut("root")
            .and_then(|item| item.as_value_mut())
        {
            // What stands around the old value stays.
            Some(old) => {
                let decor = old.decor().clone();
                *old = root.into();
                *old.decor_mut() = decor;
            }
            None => document["root"] = value(root),
        },
        None => {
            document.remove("root");
        }
    }
    let text = document.to_string();
    parse(&shown(path), &text)?;
    handler_base::fs::write_atomic(path, text.as_bytes(), 0o600).map_err(|source| {
        KnowledgeError::Io {
            path: path.to_owned(),
            source,
        }
    })
}

fn shown(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn text(path: &Path) -> Result<Option<String>, KnowledgeError> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KnowledgeError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn parse(file: &str, text: &str) -> Result<Option<String>, KnowledgeError> {
    let mut checker = Checker::new(file, text);
    let mut root = None;
    if let Some(document) = checker.parse() {
        checker.known_keys(document.as_table(), &["root"], "");
        if let Some(item) = document.get("root")
            && let Some(text) = checker.text(item, "root")
        {
            if text == "~" || text.starts_with("~/") || text.starts_with('/') {
                root = Some(text.to_owned());
            } else {
                checker.problem(item.span(), "root must start with / or ~/");
            }
        }
    }
    if checker.has_problems() {
        return Err(KnowledgeError::Invalid {
            problems: checker.into_problems(),
        });
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_survive_a_change_and_a_wrong_file_is_refused_with_its_line() {
        let dir = tempfile::tempdir().expect("temp folder");
        let path = dir.path().join("knowledge.toml");
        assert_eq!(read(&path).expect("none"), None);
        write(&path, None).expect("nothing to take away");
        assert!(!path.exists());
        std::fs::write(&path, "# mine\nroot = \"~/notes\" # all of it\n").expect("write");
        assert_eq!(read(&path).expect("read").as_deref(), Some("~/notes"));
        write(&path, Some("/srv/notes")).expect("changed");
        let after = std::fs::read_to_string(&path).expect("read");
        assert_eq!(after, "# mine\nroot = \"/srv/notes\" # all of it\n");
        write(&path, None).expect("taken away");
        assert_eq!(read(&path).expect("none"), None);
        for (text, words) in [
            ("rot = 1\n", "knowledge.toml:1: unknown key `rot`"),
            ("\nroot = 1\n", "knowledge.toml:2: root must be a text"),
            ("root = \"notes\"\n", "knowledge.toml:1: root must start"),
        ] {
            let error = parse("knowledge.toml", text).expect_err("wrong");
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }
}
