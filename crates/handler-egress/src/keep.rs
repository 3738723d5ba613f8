//! Authorities outlive the process: a sandbox that runs on trusts the one it was started with, so the filter that
//! follows must have the same.
//!
//! Each lies in a file of its own in a folder beside the control socket, which only the owner of the filter can read
//! and no sandbox sees. It goes with its sandbox. What cannot be read is not used: the sandbox then gets a new one.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Longest file, bytes; one holds a certificate and a key.
const LONGEST: u64 = 64 * 1024;
/// Longest id that is kept under its own name, bytes.
const LONGEST_ID: usize = 128;

/// The folder.
#[derive(Debug)]
pub(crate) struct Keep {
    folder: PathBuf,
}

impl Keep {
    /// Beside a control socket; made when first needed.
    pub(crate) fn beside(socket: &Path) -> Self {
        let mut folder = socket.as_os_str().to_owned();
        folder.push(".authorities");
        Self {
            folder: folder.into(),
        }
    }

    /// What is kept for a sandbox, if anything.
    pub(crate) fn read(&self, id: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let Some(name) = file_name(id) else {
            return Ok(None);
        };
        let file = match self.open().and_then(|folder| open_private(&folder, &name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut content = Zeroizing::new(Vec::with_capacity(8 * 1024));
        std::fs::File::from(file)
            .take(LONGEST)
            .read_to_end(&mut content)?;
        Ok(Some(content))
    }

    /// Keeps it, whole or not at all.
    pub(crate) fn write(&self, id: &str, content: &[u8]) -> io::Result<()> {
        let Some(name) = file_name(id) else {
            return Ok(());
        };
        handler_base::fs::create_private_dir(&self.folder)?;
        let folder = self.open()?;
        let fresh = format!("{name}.new");
        rustix::fs::unlinkat(&folder, &fresh, AtFlags::empty()).ok();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&folder, &fresh, flags | OFlags::CLOEXEC, Mode::from(0o600))?;
        std::fs::File::from(file).write_all(content)?;
        Ok(rustix::fs::renameat(&folder, &fresh, &folder, &name)?)
    }

    /// Forgets it; done also when there is none.
    pub(crate) fn remove(&self, id: &str) {
        let (Some(name), Ok(folder)) = (file_name(id), self.open()) else {
            return;
        };
        rustix::fs::unlinkat(&folder, &name, AtFlags::empty()).ok();
        // Only the last one takes the folder with it.
        std::fs::remove_dir(&self.folder).ok();
    }

    fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, &self.folder, flags, Mode::empty())?;
        private(&folder, FileType::Directory)?;
        Ok(folder)
    }
}

fn open_private(folder: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    private(&file, FileType::RegularFile)?;
    Ok(file)
}

/// Ours, of this kind, and nobody else's to read or write.
fn private(file: &OwnedFd, kind: FileType) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    let is_fit = FileType::from_raw_mode(stat.st_mode) == kind
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_mode & 0o077 == 0;
    is_fit.then_some(()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not private to the user of the filter",
        )
    })
}

/// An id as the name of a file; none for what is no plain word.
fn file_name(id: &str) -> Option<String> {
    let is_plain = (1..=LONGEST_ID).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    is_plain.then(|| format!("{id}.pem"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn keep() -> (tempfile::TempDir, Keep) {
        let folder = tempfile::tempdir().expect("folder");
        let keep = Keep::beside(&folder.path().join("control.sock"));
        (folder, keep)
    }

    #[test]
    fn what_is_kept_is_read_until_it_is_removed_and_nothing_stays() {
        let (folder, keep) = keep();
        assert_eq!(keep.read("s1").expect("read"), None);
        keep.write("s1", b"one").expect("write");
        keep.write("s1", b"another").expect("write");
        keep.write("s2", b"two").expect("write");
        let read = |id| keep.read(id).expect("read").map(|content| content.to_vec());
        assert_eq!(read("s1").as_deref(), Some(&b"another"[..]));
        keep.remove("s1");
        keep.remove("s1");
        assert_eq!(read("s1"), None);
        assert_eq!(read("s2").as_deref(), Some(&b"two"[..]));
        keep.remove("s2");
        assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
    }

    #[test]
    fn what_others_could_have_read_or_put_there_is_not_used() {
        let (folder, keep) = keep();
        keep.write("s1", b"one").expect("write");
        let path = keep.folder.join("s1.pem");
        let set = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("mode");
        };
        set(0o640);
        keep.read("s1").expect_err("readable by others");
        set(0o600);
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).expect("rename");
        std::os::unix::fs::symlink(&elsewhere, &path).expect("link");
        keep.read("s1").expect_err("a link");
        keep.write("../s1", b"x").expect("not kept");
        assert_eq!(keep.read("../s1").expect("not kept"), None);
        assert!(!folder.path().join("s1.pem").exists());
    }
}
