//! The store of sealed secrets: one file, replaced whole by each change.
//!
//! Invariant: changes are made one at a time, over all programs that use the file (a lock file beside
//! it), and start from what is on the disk. Nothing is kept in memory between calls but the paths.

use super::sealed::{BrokenSeal, Entry, FORMAT, SealedFile};
use super::{MAX_DESCRIPTION, MAX_SECRETS, MAX_VALUE, SecretError, check_path, key};
use crate::redact::Redactor;
use chacha20poly1305::XChaCha20Poly1305;
use handler_types::SecretValue;
use handler_types::api::SecretView;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest sealed file read: all secrets of the longest kind, in base64, with room to spare.
const MAX_FILE: u64 = 128 * 1024 * 1024;

/// The store; clones share it. Calls run on the runtime's blocking threads.
#[derive(Debug, Clone)]
pub struct SecretStore(Arc<Files>);

#[derive(Debug)]
struct Files {
    file: PathBuf,
    key: PathBuf,
    /// Longest value, in bytes.
    most: usize,
    changing: Mutex<()>,
}

impl SecretStore {
    /// A store in a sealed file with its key in another; neither needs to exist. Their folders must.
    #[must_use]
    pub fn new(file: PathBuf, key: PathBuf) -> Self {
        Self::holding(file, key, MAX_VALUE)
    }

    /// The same with values of up to `most` bytes.
    pub(crate) fn holding(file: PathBuf, key: PathBuf, most: usize) -> Self {
        Self(Arc::new(Files {
            file,
            key,
            most,
            changing: Mutex::new(()),
        }))
    }

    /// Keeps a value (1 byte to 64 KiB) under a path, over the one that is there. Without a description
    /// the one that is there stays.
    ///
    /// # Errors
    /// [`SecretError`]; what was kept before is then unchanged.
    pub async fn set(
        &self,
        path: &str,
        value: SecretValue,
        description: Option<String>,
    ) -> Result<SecretView, SecretError> {
        let path = path.to_owned();
        self.run(move |files| files.set(&path, &value, description))
            .await
    }

    /// Opens a value; none when nothing is kept there.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn get(&self, path: &str) -> Result<Option<SecretValue>, SecretError> {
        let path = path.to_owned();
        self.run(move |files| files.get(&path)).await
    }

    /// What is kept, by path, without values.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn list(&self) -> Result<Vec<SecretView>, SecretError> {
        self.run(|files| {
            let loaded = files.load()?;
            let entries = loaded.map(|(_, entries)| entries).unwrap_or_default();
            Ok(entries
                .iter()
                .map(|(path, entry)| view(path, entry))
                .collect())
        })
        .await
    }

    /// Takes every value that is kept out of texts, and those of `more`.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn redactor(&self, more: Vec<SecretValue>) -> Result<Redactor, SecretError> {
        self.run(|files| {
            let Some((cipher, entries)) = files.load()? else {
                return Ok(Redactor::new(more));
            };
            let kept = entries
                .iter()
                .map(|(path, entry)| entry.open(&cipher, path));
            let values: Result<Vec<SecretValue>, BrokenSeal> =
                kept.chain(more.into_iter().map(Ok)).collect();
            let values = values.map_err(|BrokenSeal| files.unopenable())?;
            Ok(Redactor::new(values))
        })
        .await
    }

    /// Removes a value; says whether it was there.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn remove(&self, path: &str) -> Result<bool, SecretError> {
        let path = path.to_owned();
        self.run(move |files| files.remove(&path)).await
    }

    async fn run<T, F>(&self, job: F) -> Result<T, SecretError>
    where
        T: Send + 'static,
        F: FnOnce(&Files) -> Result<T, SecretError> + Send + 'static,
    {
        let files = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || job(&files))
            .await
            .map_err(|_| SecretError::Stopping)?
    }
}

fn view(path: &str, entry: &Entry) -> SecretView {
    SecretView {
        path: path.to_owned(),
        description: entry.description.clone(),
        created_at: handler_base::clock::rfc3339(entry.created_ms),
        updated_at: handler_base::clock::rfc3339(entry.updated_ms),
    }
}

type Loaded = (XChaCha20Poly1305, BTreeMap<String, Entry>);

impl Files {
    fn set(
        &self,
        path: &str,
        value: &SecretValue,
        description: Option<String>,
    ) -> Result<SecretView, SecretError> {
        check_path(path)?;
        let bytes = value.expose().len();
        if !(1..=self.most).contains(&bytes) {
            return Err(SecretError::InvalidLength { bytes });
        }
        if description
            .as_ref()
            .is_some_and(|text| text.chars().count() > MAX_DESCRIPTION)
        {
            return Err(SecretError::LongDescription);
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let _lock = self.lock()?;
        let (cipher, mut entries) = match self.load()? {
            Some(loaded) => loaded,
            None => (self.first_key()?, BTreeMap::new()),
        };
        let mut entry = Entry::seal(&cipher, path, value);
        if let Some(old) = entries.get(path) {
            entry.created_ms = old.created_ms;
            entry.description.clone_from(&old.description);
        } else if entries.len() >= MAX_SECRETS {
            return Err(SecretError::TooMany);
        }
        if description.is_some() {
            entry.description = description;
        }
        let shown = view(path, &entry);
        entries.insert(path.to_owned(), entry);
        self.save(&cipher, entries)?;
        Ok(shown)
    }

    fn get(&self, path: &str) -> Result<Option<SecretValue>, SecretError> {
        check_path(path)?;
        let Some((cipher, entries)) = self.load()? else {
            return Ok(None);
        };
        entries
            .get(path)
            .map(|entry| entry.open(&cipher, path))
            .transpose()
            .map_err(|BrokenSeal| self.unopenable())
    }

    fn remove(&self, path: &str) -> Result<bool, SecretError> {
        check_path(path)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let _lock = self.lock()?;
        let Some((cipher, mut entries)) = self.load()? else {
            return Ok(false);
        };
        if entries.remove(path).is_none() {
            return Ok(false);
        }
        self.save(&cipher, entries)?;
        Ok(true)
    }

    /// Reads and checks the sealed file; none when there is none.
    fn load(&self) -> Result<Option<Loaded>, SecretError> {
        let bytes = match self.read() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(error)),
        };
        let bad = |reason| SecretError::BadFile {
            file: self.file.clone(),
            reason,
        };
        let sealed: SealedFile =
            serde_json::from_slice(&bytes).map_err(|_| bad("it has another form"))?;
        if sealed.format != FORMAT {
            return Err(bad("a newer program wrote it"));
        }
        let cipher = key::read(&self.key)?.ok_or_else(|| SecretError::KeyMissing {
            file: self.file.clone(),
            key: self.key.clone(),
        })?;
        sealed
            .check(&cipher)
            .map_err(|BrokenSeal| self.unopenable())?;
        Ok(Some((cipher, sealed.entries)))
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let meta = std::fs::metadata(&self.file)?;
        if !meta.is_file() || meta.len() > MAX_FILE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a file of this store",
            ));
        }
        std::fs::read(&self.file)
    }

    fn save(
        &self,
        cipher: &XChaCha20Poly1305,
        entries: BTreeMap<String, Entry>,
    ) -> Result<(), SecretError> {
        let text = serde_json::to_vec_pretty(&SealedFile::new(cipher, entries))
            .map_err(|error| self.io(error.into()))?;
        handler_base::fs::write_atomic(&self.file, &text, 0o600).map_err(|error| self.io(error))
    }

    /// The key for a first secret: one that is there already, else a new one.
    fn first_key(&self) -> Result<XChaCha20Poly1305, SecretError> {
        match key::read(&self.key)? {
            Some(cipher) => Ok(cipher),
            None => key::create(&self.key),
        }
    }

    /// Keeps other programs from changing the file; held until the handle is dropped.
    fn lock(&self) -> Result<File, SecretError> {
        let path = lock_path(&self.file);
        let locked = (|| {
            let file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(file)
        })();
        locked.map_err(|source: io::Error| SecretError::Io { path, source })
    }

    fn unopenable(&self) -> SecretError {
        SecretError::Unopenable {
            file: self.file.clone(),
        }
    }

    fn io(&self, source: io::Error) -> SecretError {
        SecretError::Io {
            path: self.file.clone(),
            source,
        }
    }
}

fn lock_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_number_of_secrets_is_bounded() {
        let dir = tempfile::tempdir().expect("temp folder");
        let store = SecretStore::new(dir.path().join("sealed"), dir.path().join("key"));
        let cipher = store.0.first_key().expect("key");
        let value = || SecretValue::new("x".to_owned());
        let entries = (0..MAX_SECRETS)
            .map(|n| format!("n{n}"))
            .map(|path| (path.clone(), Entry::seal(&cipher, &path, &value())))
            .collect();
        store.0.save(&cipher, entries).expect("a full store");
        let more = store.set("more", value(), None).await;
        assert!(matches!(more, Err(SecretError::TooMany)));
        store.set("n0", value(), None).await.expect("over another");
        assert!(store.remove("n1").await.expect("remove"));
        store.set("more", value(), None).await.expect("room again");
    }
}
