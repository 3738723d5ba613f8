//! Unix listeners: only the owner may connect, a stale file is replaced, the file goes with the listener.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longest path of a Unix socket.
const LONGEST_PATH: usize = 107;
/// Between two looks at whether the file is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// The path cannot be one.
    #[error(
        "`{0}`: a socket path is absolute, has a folder, and together with that at most {LONGEST_PATH} bytes"
    )]
    Path(PathBuf),
    /// Something else is there.
    #[error("`{0}` exists and is not a socket")]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot listen at `{path}`: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A socket file of ours; removed when dropped, unless another took its place.
#[derive(Debug)]
pub(crate) struct Listening {
    path: PathBuf,
    identity: (u64, u64),
    /// Ends the task that accepts.
    _end: DropGuard,
}

impl Listening {
    /// Whether the file at `path` is this listener's.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.path == path && identity(path).is_ok_and(|found| found == self.identity)
    }

    /// Returns when the file is gone or has been replaced: nobody can connect any more.
    pub(crate) async fn lost(&self) {
        while self.is_at(&self.path) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.is_at(&self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "socket file not removed");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let data = std::fs::symlink_metadata(path)?;
    Ok((data.dev(), data.ino()))
}

/// Listens at `path`, mode 0600, owned by the owner of its folder: with a filter of root, that is the sandbox's user.
/// The token is cancelled when the [`Listening`] is dropped.
///
/// The socket is made under another name and moved into place, so nobody ever meets it half made.
pub(crate) fn listen(
    path: &Path,
) -> Result<(UnixListener, Listening, CancellationToken), ListenError> {
    let failed = |source| ListenError::Io {
        path: path.to_owned(),
        source,
    };
    let folder = path
        .parent()
        .filter(|_| path.is_absolute() && path.file_name().is_some())
        .ok_or_else(|| ListenError::Path(path.to_owned()))?;
    let made = folder.join(format!(".{}", handler_base::random::hex(4)));
    let longest = path.as_os_str().len().max(made.as_os_str().len());
    if longest > LONGEST_PATH || path.as_os_str().as_bytes().contains(&0) {
        return Err(ListenError::Path(path.to_owned()));
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&made).map_err(failed)?;
    let placed = std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| give_to_owner_of(folder, &made))
        .and_then(|()| std::fs::rename(&made, path))
        .and_then(|()| identity(path));
    let identity = placed.map_err(|error| {
        let _ = std::fs::remove_file(&made);
        failed(error)
    })?;
    let end = CancellationToken::new();
    let listening = Listening {
        path: path.to_owned(),
        identity,
        _end: end.clone().drop_guard(),
    };
    Ok((listener, listening, end))
}

/// Only root can give files away, and only root's folders are ever another's.
fn give_to_owner_of(folder: &Path, file: &Path) -> io::Result<()> {
    let (owner, own) = (std::fs::metadata(folder)?, std::fs::symlink_metadata(file)?);
    if (owner.uid(), owner.gid()) == (own.uid(), own.gid()) || own.uid() != 0 {
        return Ok(());
    }
    std::os::unix::fs::lchown(file, Some(owner.uid()), Some(owner.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_the_file_goes_with_the_listener() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("p.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("stale"));
        let (_listener, listening, _) = listen(&path).expect("listener");
        let mode = std::fs::metadata(&path).expect("file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(listening.is_at(&path));
        tokio::net::UnixStream::connect(&path)
            .await
            .expect("answers");
        drop(listening);
        assert!(!path.exists());
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    }

    #[tokio::test]
    async fn another_file_is_never_replaced_nor_a_successor_removed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("p.sock");
        std::fs::write(&path, "mine").expect("file");
        assert!(matches!(listen(&path), Err(ListenError::NotASocket(_))));
        std::fs::remove_file(&path).expect("file");
        let (_l, first, _) = listen(&path).expect("listener");
        let (_m, second, _) = listen(&path).expect("listener");
        assert!(!first.is_at(&path));
        drop(first);
        assert!(second.is_at(&path));
        let long = folder.path().join("x".repeat(120));
        assert!(matches!(listen(&long), Err(ListenError::Path(_))));
        assert!(matches!(
            listen(Path::new("relative.sock")),
            Err(ListenError::Path(_))
        ));
    }
}
