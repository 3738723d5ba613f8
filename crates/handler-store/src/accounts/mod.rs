//! Account files: `<name>.toml` in one folder, written by people and by the API.
//!
//! Invariants: an account given out has passed every check of its form; a file that has not is listed with its
//! problems and stands in nobody's way. A change keeps the comments of the file.

mod edit;

use crate::providers::{check_provider_name, read_text};
use crate::reference::{check_contexts, check_reference, check_version, short_text};
use crate::strict::Checker;
use handler_types::account::{ACCOUNT_VERSION, Account};
use std::io;
use std::path::{Path, PathBuf};
use toml_edit::TableLike;

const TOP: &[&str] = &[
    "apiVersion",
    "harness",
    "description",
    "plan",
    "connectors",
    "token",
    "contexts",
];

/// Why an account could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AccountFileError {
    /// Not an account's name.
    #[error(
        "`{name}` is not an account name: it has 1 to 63 characters a-z, 0-9, `-`, `_` and starts with a letter or digit"
    )]
    InvalidName {
        /// The name given.
        name: String,
    },
    /// The file (or what was to be written) is wrong.
    #[error("{}", problems.join("; "))]
    Invalid {
        /// File, line and what is wrong; at least one.
        problems: Vec<String>,
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
pub struct AccountEntry {
    /// The account's name (file name without `.toml`).
    pub name: String,
    /// The account, or what is wrong with its file: file, line and words.
    pub account: Result<Account, Vec<String>>,
}

/// The folder. Calls read or write small files and return soon.
#[derive(Debug, Clone)]
pub struct AccountFiles {
    dir: PathBuf,
}

impl AccountFiles {
    /// The files in `dir`, which need not exist for reading.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Every `*.toml` of the folder by name, wrong ones with their problems.
    ///
    /// # Errors
    /// [`AccountFileError::Io`] when the folder cannot be read.
    pub fn list(&self) -> Result<Vec<AccountEntry>, AccountFileError> {
        let listed = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.and_then(Iterator::collect::<io::Result<Vec<_>>>),
        };
        let files = listed.map_err(|source| AccountFileError::Io {
            path: self.dir.clone(),
            source,
        })?;
        let mut entries: Vec<AccountEntry> = files
            .iter()
            .filter_map(|file| {
                let file = file.file_name().to_string_lossy().into_owned();
                let name = file.strip_suffix(".toml")?;
                (!name.starts_with('.')).then(|| self.entry(name))
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Reads one; none when there is no file.
    ///
    /// # Errors
    /// [`AccountFileError`].
    pub fn get(&self, name: &str) -> Result<Option<Account>, AccountFileError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let parsed = parse_account(name, &text);
        parsed
            .map(Some)
            .map_err(|problems| AccountFileError::Invalid { problems })
    }

    /// Writes one (0600) into the file that is there, whose comments stay.
    ///
    /// # Errors
    /// [`AccountFileError`], also when the file that is there is wrong; it is then as before.
    pub fn put(&self, name: &str, account: &Account) -> Result<(), AccountFileError> {
        let before = self.text(name)?.unwrap_or_default();
        let invalid = |problems| AccountFileError::Invalid { problems };
        if !before.is_empty() {
            parse_account(name, &before).map_err(invalid)?;
        }
        let text = edit::written(&before, account)
            .ok_or_else(|| invalid(vec![format!("{name}.toml: not TOML")]))?;
        parse_account(name, &text).map_err(invalid)?;
        self.write(name, &text)
    }

    /// Gives one another name; the file of that name must not exist.
    ///
    /// # Errors
    /// [`AccountFileError`].
    pub fn rename(&self, from: &str, to: &str) -> Result<(), AccountFileError> {
        let text = self.text(from)?.unwrap_or_default();
        self.text(to)?;
        self.write(to, &text)?;
        self.remove(from).map(|_| ())
    }

    /// Removes one; says whether it was there.
    ///
    /// # Errors
    /// [`AccountFileError`].
    pub fn remove(&self, name: &str) -> Result<bool, AccountFileError> {
        let path = self.path(name)?;
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(AccountFileError::Io { path, source }),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), AccountFileError> {
        let path = self.path(name)?;
        handler_base::fs::create_private_dir(&self.dir)
            .and_then(|()| handler_base::fs::write_atomic(&path, text.as_bytes(), 0o600))
            .map_err(|source| AccountFileError::Io { path, source })
    }

    fn text(&self, name: &str) -> Result<Option<String>, AccountFileError> {
        let path = self.path(name)?;
        match read_text(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AccountFileError::Io { path, source }),
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf, AccountFileError> {
        check_account_name(name)?;
        Ok(Path::new(&self.dir).join(format!("{name}.toml")))
    }

    fn entry(&self, name: &str) -> AccountEntry {
        let account = match self.get(name) {
            Ok(Some(account)) => Ok(account),
            Ok(None) => Err(vec![format!("{name}.toml: it went away while it was read")]),
            Err(AccountFileError::Invalid { problems }) => Err(problems),
            Err(AccountFileError::Io { source, .. }) => {
                Err(vec![format!("{name}.toml cannot be read: {source}")])
            }
            Err(error) => Err(vec![error.to_string()]),
        };
        AccountEntry {
            name: name.to_owned(),
            account,
        }
    }
}

/// Checks an account's name: `[a-z0-9][a-z0-9_-]{0,62}`.
///
/// # Errors
/// [`AccountFileError::InvalidName`].
pub fn check_account_name(name: &str) -> Result<(), AccountFileError> {
    check_provider_name(name).map_err(|_| AccountFileError::InvalidName {
        name: name.chars().take(80).collect(),
    })
}

/// Reads the text of `<name>.toml`.
///
/// # Errors
/// Every problem found: file, line and words. None of them repeats a value.
pub fn parse_account(name: &str, text: &str) -> Result<Account, Vec<String>> {
    let file = format!("{name}.toml");
    let mut checker = Checker::new(&file, text);
    if let Some(document) = checker.parse() {
        top(&mut checker, document.as_table(), name);
    }
    if checker.has_problems() {
        return Err(checker.into_problems());
    }
    toml::from_str(text).map_err(|error| {
        // The checks above leave nothing to find here; should they, the text of the error could repeat a value.
        checker.problem(error.span(), "not of the form of an account");
        checker.into_problems()
    })
}

fn top(checker: &mut Checker<'_>, table: &dyn TableLike, name: &str) {
    checker.known_keys(table, TOP, "");
    check_version(checker, table, ACCOUNT_VERSION);
    if !table.contains_key("harness") {
        checker.problem(None, "harness is missing: e.g. harness = \"claude-code\"");
    }
    for key in ["harness", "description", "plan"] {
        short_text(checker, table, key);
    }
    if let Some(item) = table.get("connectors")
        && item.as_bool().is_none()
    {
        checker.problem(item.span(), "connectors must be true or false");
    }
    if let Some(item) = table.get("token") {
        let advice = format!("give it with `handler account token {name}`");
        check_reference(checker, item, ("token", "token"), &advice);
    }
    check_contexts(checker, table);
}

#[cfg(test)]
mod tests;
