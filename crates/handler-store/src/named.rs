//! A folder of small TOML files `<name>.toml`, each one document of one kind, written by people and by the API.
//!
//! Invariant: a document given out is whole; a file that cannot be read as one is listed with its problem and
//! stands in nobody's way.

use crate::providers::read_text;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::marker::PhantomData;
use std::path::PathBuf;

/// Why a document could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NamedFileError {
    /// Not a name.
    #[error(
        "`{name}` is no name: it has 1 to 63 characters a-z, 0-9, `-`, `_`, `.` and starts with a letter or digit"
    )]
    InvalidName {
        /// The name given.
        name: String,
    },
    /// The file is wrong.
    #[error("{problem}")]
    Invalid {
        /// File, place and what is wrong.
        problem: String,
    },
    /// The file system failed.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A file of the folder.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedEntry<T> {
    /// File name without `.toml`.
    pub name: String,
    /// The document, or what is wrong.
    pub document: Result<T, String>,
}

/// The folder. Calls read or write small files and return soon.
#[derive(Debug, Clone)]
pub struct NamedFiles<T> {
    dir: PathBuf,
    kind: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> NamedFiles<T> {
    /// The files in `dir`, which need not exist for reading.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            kind: PhantomData,
        }
    }

    /// Every `*.toml` by name, wrong ones with their problem.
    ///
    /// # Errors
    /// [`NamedFileError::Io`] when the folder cannot be read.
    pub fn list(&self) -> Result<Vec<NamedEntry<T>>, NamedFileError> {
        let listed = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.and_then(Iterator::collect::<io::Result<Vec<_>>>),
        };
        let files = listed.map_err(|source| NamedFileError::Io {
            path: self.dir.clone(),
            source,
        })?;
        let mut entries: Vec<_> = files
            .iter()
            .filter_map(|file| {
                let file = file.file_name().to_string_lossy().into_owned();
                let name = file.strip_suffix(".toml")?.to_owned();
                let document = match self.get(&name) {
                    Ok(document) => document.ok_or("it went away while it was read".to_owned()),
                    Err(NamedFileError::Io { source, .. }) => Err(source.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                (!name.starts_with('.')).then_some(NamedEntry { name, document })
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Reads one; none when there is no file.
    ///
    /// # Errors
    /// [`NamedFileError`].
    pub fn get(&self, name: &str) -> Result<Option<T>, NamedFileError> {
        let path = self.path(name)?;
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(NamedFileError::Io { path, source }),
        };
        // The whole error would show the line, which may hold what is nobody's business.
        toml::from_str(&text)
            .map(Some)
            .map_err(|error| NamedFileError::Invalid {
                problem: format!("{name}.toml: {}", error.message()),
            })
    }

    /// Writes one (0600) over the file that is there; comments in it are lost.
    ///
    /// # Errors
    /// [`NamedFileError`]; the file is then as before.
    pub fn put(&self, name: &str, document: &T) -> Result<(), NamedFileError> {
        let path = self.path(name)?;
        let text = toml::to_string_pretty(document).map_err(|error| NamedFileError::Invalid {
            problem: error.to_string(),
        })?;
        handler_base::fs::create_private_dir(&self.dir)
            .and_then(|()| handler_base::fs::write_atomic(&path, text.as_bytes(), 0o600))
            .map_err(|source| NamedFileError::Io { path, source })
    }

    /// Removes one; says whether it was there.
    ///
    /// # Errors
    /// [`NamedFileError`].
    pub fn remove(&self, name: &str) -> Result<bool, NamedFileError> {
        let path = self.path(name)?;
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(NamedFileError::Io { path, source }),
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf, NamedFileError> {
        let is_name = (1..=63).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b));
        if !is_name {
            return Err(NamedFileError::InvalidName {
                name: name.chars().take(80).collect(),
            });
        }
        Ok(self.dir.join(format!("{name}.toml")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Note {
        text: String,
    }

    #[test]
    fn documents_are_kept_listed_and_removed_and_wrong_ones_are_told() {
        let folder = tempfile::tempdir().expect("folder");
        let notes = NamedFiles::<Note>::new(folder.path().join("notes"));
        assert_eq!(notes.list().expect("list"), []);
        let note = Note {
            text: "ünï\n\"x\"".into(),
        };
        notes.put("one", &note).expect("put");
        assert_eq!(notes.get("one").expect("get"), Some(note));
        std::fs::write(
            folder.path().join("notes/two.toml"),
            "text = 'a'\nsecret = 'b'",
        )
        .expect("write");
        let listed = notes.list().expect("list");
        assert_eq!(listed.len(), 2);
        let problem = listed[1].document.as_ref().expect_err("it is wrong");
        assert!(
            problem.contains("two.toml") && problem.contains("secret"),
            "{problem}"
        );
        assert!(!problem.contains("'b'"), "{problem}");
        assert!(notes.remove("one").expect("remove"));
        assert!(!notes.remove("one").expect("remove again"));
        for name in ["", "../x", "A", ".x", "a/b", "-a"] {
            let refused = notes.put(
                name,
                &Note {
                    text: String::new(),
                },
            );
            assert!(
                matches!(refused, Err(NamedFileError::InvalidName { .. })),
                "{name}"
            );
        }
    }
}
