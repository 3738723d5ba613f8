//! Stored secret values, to be taken out of lines. Opened again only when the sealed file changed.

use handler_store::Redactor;
use handler_store::secrets::SecretStore;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use tokio::sync::Mutex;

/// What tells one sealed file from another: it is replaced whole by each change.
type Stamp = Option<(u64, i64, u64)>;

/// The present redactor.
#[derive(Debug)]
pub(crate) struct Redaction {
    secrets: SecretStore,
    file: PathBuf,
    known: Mutex<Option<(Stamp, Redactor)>>,
}

impl Redaction {
    /// Nothing known yet.
    pub(crate) fn new(secrets: SecretStore, file: PathBuf) -> Self {
        Self {
            secrets,
            file,
            known: Mutex::default(),
        }
    }

    /// The redactor of the secrets that are kept now. While they cannot be opened, that of before.
    pub(crate) async fn now(&self) -> Redactor {
        let mut known = self.known.lock().await;
        let stamp = self.stamp();
        if let Some((before, redactor)) = &*known
            && *before == stamp
        {
            return redactor.clone();
        }
        match self.secrets.redactor().await {
            Ok(redactor) => {
                *known = Some((stamp, redactor.clone()));
                redactor
            }
            Err(error) => {
                tracing::warn!(%error, "secrets cannot be opened to be taken out of logs");
                known.as_ref().map(|(_, r)| r.clone()).unwrap_or_default()
            }
        }
    }

    fn stamp(&self) -> Stamp {
        let meta = std::fs::metadata(&self.file).ok()?;
        Some((
            meta.ino(),
            meta.mtime_nsec() + meta.mtime() * 1_000_000_000,
            meta.len(),
        ))
    }
}
