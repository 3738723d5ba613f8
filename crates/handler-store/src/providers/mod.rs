//! Provider files: `<name>.toml` in one folder, written by people and by the API.
//!
//! Invariant: a provider given out has passed every check of its form; a file that has not is listed
//! with its problems and stands in nobody's way.

mod check;
mod url;

use crate::strict;
use handler_types::provider::Provider;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use check::{check_provider_name, parse_provider};
pub use url::check_endpoint;

/// Why a provider could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProviderFileError {
    /// Not a provider's name.
    #[error(
        "`{name}` is not a provider name: it has 1 to 63 characters a-z, 0-9, `-`, `_` and starts with a letter or digit"
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
    /// The provider cannot be written as TOML.
    #[error("provider cannot be written as TOML")]
    Encode(#[from] toml::ser::Error),
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
pub struct ProviderEntry {
    /// The provider's name (file name without `.toml`).
    pub name: String,
    /// The provider, or what is wrong with its file: file, line and words.
    pub provider: Result<Provider, Vec<String>>,
}

/// The folder. Calls read or write small files and return soon.
#[derive(Debug, Clone)]
pub struct ProviderFiles {
    dir: PathBuf,
}

impl ProviderFiles {
    /// The files in `dir`, which need not exist for reading.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Every `*.toml` of the folder by name, wrong ones with their problems.
    ///
    /// # Errors
    /// [`ProviderFileError::Io`] when the folder cannot be read.
    pub fn list(&self) -> Result<Vec<ProviderEntry>, ProviderFileError> {
        let listed = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.and_then(Iterator::collect::<io::Result<Vec<_>>>),
        };
        let files = listed.map_err(|source| ProviderFileError::Io {
            path: self.dir.clone(),
            source,
        })?;
        let mut entries: Vec<ProviderEntry> = files
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
    /// [`ProviderFileError`].
    pub fn get(&self, name: &str) -> Result<Option<Provider>, ProviderFileError> {
        check_provider_name(name)?;
        let path = self.path(name);
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ProviderFileError::Io { path, source }),
        };
        parse_provider(name, &text)
            .map(Some)
            .map_err(|problems| ProviderFileError::Invalid { problems })
    }

    /// Writes one (0600) over the file that is there; comments in it are lost.
    ///
    /// # Errors
    /// [`ProviderFileError`]; the file is then as before.
    pub fn put(&self, name: &str, provider: &Provider) -> Result<(), ProviderFileError> {
        check_provider_name(name)?;
        let text = toml::to_string_pretty(provider)?;
        parse_provider(name, &text).map_err(|problems| ProviderFileError::Invalid { problems })?;
        let path = self.path(name);
        handler_base::fs::create_private_dir(&self.dir)
            .and_then(|()| handler_base::fs::write_atomic(&path, text.as_bytes(), 0o600))
            .map_err(|source| ProviderFileError::Io { path, source })
    }

    /// Removes one; says whether it was there.
    ///
    /// # Errors
    /// [`ProviderFileError`].
    pub fn remove(&self, name: &str) -> Result<bool, ProviderFileError> {
        check_provider_name(name)?;
        let path = self.path(name);
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(ProviderFileError::Io { path, source }),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.toml"))
    }

    fn entry(&self, name: &str) -> ProviderEntry {
        let provider = match self.get(name) {
            Ok(Some(provider)) => Ok(provider),
            Ok(None) => Err(vec![format!("{name}.toml: it went away while it was read")]),
            Err(ProviderFileError::Invalid { problems }) => Err(problems),
            Err(ProviderFileError::Io { source, .. }) => {
                Err(vec![format!("{name}.toml cannot be read: {source}")])
            }
            Err(error) => Err(vec![error.to_string()]),
        };
        ProviderEntry {
            name: name.to_owned(),
            provider,
        }
    }
}

/// Reads a regular file of bearable size as text.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if !std::fs::metadata(path)?.is_file() {
        return wrong("not a regular file");
    }
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(strict::MAX_FILE + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > strict::MAX_FILE {
        return wrong("larger than 1 MiB");
    }
    Ok(text)
}
