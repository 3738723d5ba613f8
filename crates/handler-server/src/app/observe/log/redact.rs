//! Stored secret values, to be taken out of lines. Opened again only when the sealed file changed.

use crate::app::logins::tokens_of;
use handler_store::Redactor;
use handler_store::logins::LoginStore;
use handler_store::paths::Layout;
use handler_store::secrets::{SecretError, SecretStore};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use tokio::sync::Mutex;

/// What tells one sealed file from another: it is replaced whole by each change.
type Stamp = Option<(u64, i64, u64)>;
/// Of the secrets and of the logins.
type Stamps = [Stamp; 2];

/// The present redactor.
#[derive(Debug)]
pub(crate) struct Redaction {
    secrets: SecretStore,
    logins: LoginStore,
    files: [PathBuf; 2],
    known: Mutex<Option<(Stamps, Redactor)>>,
}

impl Redaction {
    /// Nothing known yet.
    pub(crate) fn new(layout: &Layout, secrets: SecretStore, logins: LoginStore) -> Self {
        Self {
            secrets,
            logins,
            files: [layout.secrets_file(), layout.logins_file()],
            known: Mutex::default(),
        }
    }

    /// The redactor of the secrets that are kept now. While they cannot be opened, that of before.
    pub(crate) async fn now(&self) -> Redactor {
        let mut known = self.known.lock().await;
        let stamp = self.files.each_ref().map(stamp);
        if let Some((before, redactor)) = &*known
            && *before == stamp
        {
            return redactor.clone();
        }
        match self.open().await {
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

    async fn open(&self) -> Result<Redactor, SecretError> {
        let tokens = self.logins.values(tokens_of).await?;
        self.secrets.redactor(tokens).await
    }
}

fn stamp(file: &PathBuf) -> Stamp {
    let meta = std::fs::metadata(file).ok()?;
    Some((
        meta.ino(),
        meta.mtime_nsec() + meta.mtime() * 1_000_000_000,
        meta.len(),
    ))
}
