//! The host key of a sandbox: ed25519, made when first needed, kept beside the sandbox and removed with it.

use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The file's name in the sandbox's folder.
const FILE: &str = "ssh_host_ed25519_key";
/// Longest file read, bytes.
const LONGEST: u64 = 16 * 1024;

/// Why there is no host key.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The file could not be read or written.
    #[error("the host key {} cannot be used", path.display())]
    File {
        /// Where it lies.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What lies there is no key.
    #[error("{} is no host key; remove it and a new one is made", path.display())]
    Broken {
        /// Where it lies.
        path: PathBuf,
    },
}

/// A host key.
#[derive(Clone)]
pub struct HostKey(pub(crate) PrivateKey);

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HostKey").field(&self.public_line()).finish()
    }
}

impl HostKey {
    /// Reads the key in `folder`, or makes it (0600). Blocking. Of two that make one at the same time, both get
    /// the one that was there first.
    ///
    /// # Errors
    /// [`HostKeyError`].
    pub fn of_folder(folder: &Path) -> Result<Self, HostKeyError> {
        let path = folder.join(FILE);
        if let Some(key) = read(&path)? {
            return Ok(key);
        }
        make(folder, &path).map_err(|source| HostKeyError::File {
            path: path.clone(),
            source,
        })?;
        read(&path)?.ok_or(HostKeyError::Broken { path })
    }

    /// The public half as one line, `ssh-ed25519 AAAA…`.
    #[must_use]
    pub fn public_line(&self) -> String {
        self.0.public_key().to_openssh().unwrap_or_default()
    }
}

fn read(path: &Path) -> Result<Option<HostKey>, HostKeyError> {
    let failed = |source| HostKeyError::File {
        path: path.to_owned(),
        source,
    };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(failed)?;
    PrivateKey::from_openssh(&text)
        .map(|key| Some(HostKey(key)))
        .map_err(|_| HostKeyError::Broken {
            path: path.to_owned(),
        })
}

/// Writes a new key beside its place and links it there, unless one is there by then.
fn make(folder: &Path, path: &Path) -> io::Result<()> {
    let pair = Ed25519Keypair::from_seed(&handler_base::random::bytes());
    let text = PrivateKey::from(pair)
        .to_openssh(LineEnding::LF)
        .map_err(io::Error::other)?;
    let temp = folder.join(format!(".{FILE}.{}", handler_base::random::hex(6)));
    handler_base::fs::write_atomic(&temp, text.as_bytes(), 0o600)?;
    let linked = std::fs::hard_link(&temp, path);
    std::fs::remove_file(&temp).ok();
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_made_once_private_and_stays_the_same() {
        let folder = tempfile::tempdir().expect("temp");
        let first = HostKey::of_folder(folder.path()).expect("made");
        let again = HostKey::of_folder(folder.path()).expect("read");
        assert_eq!(first.public_line(), again.public_line());
        assert!(first.public_line().starts_with("ssh-ed25519 AAAA"));
        let path = folder.path().join(FILE);
        let mode = std::fs::metadata(&path).expect("meta").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1);
        let other = tempfile::tempdir().expect("temp");
        let other = HostKey::of_folder(other.path()).expect("made");
        assert_ne!(first.public_line(), other.public_line());
    }

    #[test]
    fn a_broken_file_and_a_missing_folder_are_told() {
        let folder = tempfile::tempdir().expect("temp");
        std::fs::write(folder.path().join(FILE), "no key").expect("written");
        let error = HostKey::of_folder(folder.path()).expect_err("broken");
        assert!(error.to_string().contains("is no host key"), "{error}");
        let gone = folder.path().join("gone");
        assert!(matches!(
            HostKey::of_folder(&gone),
            Err(HostKeyError::File { .. })
        ));
    }
}
