//! Files of the folder written by the person: whole or not at all, only over what the person saw.

use crate::error::FolderError;
use crate::open::{Kind, Place, Root, check, sha256, stat_in};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fstat, mkdirat, openat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};

/// Changes one file.
#[derive(Debug)]
pub struct Writer<'a> {
    root: &'a Root,
    path: &'a str,
    name: &'a str,
    folder: OwnedFd,
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn changed(path: &str) -> FolderError {
    FolderError::Changed(format!(
        "`{path}` changed meanwhile: look at it again, then decide"
    ))
}

impl<'a> Writer<'a> {
    /// Gets ready to change the file at a path; its folder is made again if it is gone.
    ///
    /// # Errors
    /// A path that is not shown, a link on the way.
    pub fn new(root: &'a Root, path: &'a str) -> Result<Self, FolderError> {
        check(path)?;
        let (parent, name) = split(path);
        if name.is_empty() {
            return Err(FolderError::NotShown("name a file".to_owned()));
        }
        let folder = match root.folder(OsStr::new(parent)) {
            Err(Errno::NOENT) => make(root, parent),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let why = format!("`{path}`: a link or file is on the way to it");
                return Err(FolderError::NotShown(why));
            }
            other => other,
        };
        Ok(Self {
            root,
            path,
            name,
            folder: folder.map_err(|error| FolderError::of(path, error))?,
        })
    }

    /// Puts a file where none is.
    ///
    /// # Errors
    /// [`FolderError::Changed`] when something is there.
    pub fn create(&self, content: &[u8], mode: u32) -> Result<(), FolderError> {
        let owner = fstat(&self.folder).map_err(|error| self.failed(error))?;
        let temp = self.temp(content, mode, (owner.st_uid, owner.st_gid))?;
        let done = renameat_with(
            &self.folder,
            &temp,
            &self.folder,
            self.name,
            RenameFlags::NOREPLACE,
        );
        if done.is_err() {
            self.remove_temp(&temp);
        }
        match done {
            Err(Errno::EXIST) => Err(changed(self.path)),
            other => other.map_err(|error| self.failed(error)),
        }
    }

    /// Replaces the file that was found, if it still has this content; permissions stay unless `mode` says others.
    ///
    /// # Errors
    /// [`FolderError::Changed`] when it was changed, replaced or removed.
    pub fn replace(
        &self,
        found: &Place,
        digest: &str,
        content: &[u8],
        mode: Option<u32>,
    ) -> Result<(), FolderError> {
        let owner = found.owner().map_err(|error| self.failed(error))?;
        let mode = mode.unwrap_or(found.stat.mode & 0o777);
        let temp = self.temp(content, mode, owner)?;
        let outcome = self.exchange(&temp, found, digest);
        // Whatever came of it, what lies there now is not wanted: our text, or the file it replaced.
        self.remove_temp(&temp);
        outcome
    }

    /// Swaps our file with what has the name, looks at what that was, and swaps back if it is not what was seen.
    fn exchange(&self, temp: &str, found: &Place, digest: &str) -> Result<(), FolderError> {
        let swap = || {
            let flags = RenameFlags::EXCHANGE;
            renameat_with(&self.folder, temp, &self.folder, self.name, flags)
        };
        match swap() {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(changed(self.path)),
            // A file system that cannot swap: looked at right before instead.
            Err(Errno::INVAL | Errno::NOSYS) => return self.rename_over(temp, found, digest),
            Err(error) => return Err(self.failed(error)),
        }
        if self.is_seen(temp, found, digest) {
            return Ok(());
        }
        swap().map_err(|error| self.failed(error))?;
        Err(changed(self.path))
    }

    fn rename_over(&self, temp: &str, found: &Place, digest: &str) -> Result<(), FolderError> {
        if !self.is_seen(self.name, found, digest) {
            return Err(changed(self.path));
        }
        let flags = RenameFlags::empty();
        renameat_with(&self.folder, temp, &self.folder, self.name, flags)
            .map_err(|error| self.failed(error))
    }

    /// Removes the file that was found, if it still has this content.
    ///
    /// # Errors
    /// [`FolderError::Changed`] when it was changed or replaced.
    pub fn remove(&self, found: &Place, digest: &str) -> Result<(), FolderError> {
        // Put aside under a name nobody knows, looked at, put back if it is another.
        let aside = temp_name();
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(&self.folder, self.name, &self.folder, &aside, flags) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(changed(self.path)),
            Err(error) => return Err(self.failed(error)),
        }
        if self.is_seen(&aside, found, digest) {
            self.remove_temp(&aside);
            return Ok(());
        }
        renameat_with(&self.folder, &aside, &self.folder, self.name, flags)
            .map_err(|error| self.failed(error))?;
        Err(changed(self.path))
    }

    /// Whether what has a name is the file that was found, with the content that was seen.
    fn is_seen(&self, name: &str, found: &Place, digest: &str) -> bool {
        let is_same = stat_in(self.folder.as_fd(), OsStr::new(name)).is_some_and(|stat| {
            stat.kind() == Kind::File
                && stat.inode == found.stat.inode
                && stat.size == found.stat.size
        });
        // A file that grows beyond what was seen is not read further.
        let most = usize::try_from(found.stat.size).unwrap_or(usize::MAX);
        let read = || found.read(most).ok();
        is_same && read().is_some_and(|(bytes, is_all)| is_all && sha256(&bytes) == digest)
    }

    /// A new file with this content next to the one that is meant.
    fn temp(&self, content: &[u8], mode: u32, owner: (u32, u32)) -> Result<String, FolderError> {
        let name = temp_name();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, &name, flags, Mode::from_raw_mode(0o600))
            .map_err(|error| self.failed(error))?;
        let own = fstat(&file).map(|own| (own.st_uid, own.st_gid));
        let write = || -> std::io::Result<()> {
            let mut file = File::from(file.try_clone()?);
            file.write_all(content)?;
            if own? != owner {
                let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
                // Not ours to give away: it is then the person's own.
                let _ = fchown(&file, Some(uid), Some(gid));
            }
            fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
            file.sync_data()
        };
        if let Err(error) = write() {
            self.remove_temp(&name);
            return Err(FolderError::of(self.path, error));
        }
        Ok(name)
    }

    fn remove_temp(&self, name: &str) {
        let _ = unlinkat(&self.folder, name, AtFlags::empty());
    }

    fn failed(&self, error: Errno) -> FolderError {
        FolderError::of(self.path, error)
    }

    /// Finds the file to be changed.
    ///
    /// # Errors
    /// [`FolderError`]: it is not there, or no regular file.
    pub fn found(&self) -> Result<Place, FolderError> {
        self.root.find_file(self.path)
    }
}

fn temp_name() -> String {
    format!(".handler-revert-{}", handler_base::random::hex(8))
}

/// Makes a folder with those above it, in those that are there.
fn make(root: &Root, path: &str) -> Result<OwnedFd, Errno> {
    let mut at = root.folder(OsStr::new(""))?;
    for name in path.split('/') {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let is_new = match mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error),
        };
        let next = openat(&at, name, flags, Mode::empty())?;
        if is_new {
            let above = fstat(&at)?;
            let (uid, gid) = (Uid::from_raw(above.st_uid), Gid::from_raw(above.st_gid));
            let _ = fchown(&next, Some(uid), Some(gid));
        }
        at = next;
    }
    Ok(at)
}

impl Place {
    fn owner(&self) -> Result<(u32, u32), Errno> {
        let stat = fstat(self.as_fd())?;
        Ok((stat.st_uid, stat.st_gid))
    }

    /// Its content, if it is not longer than `most`.
    ///
    /// # Errors
    /// [`FolderError::Refused`] for a longer one.
    pub fn content(&self, path: &str, most: usize) -> Result<Vec<u8>, FolderError> {
        let (bytes, is_all) = self
            .read(most)
            .map_err(|source| FolderError::of(path, source))?;
        if !is_all {
            let why = format!("`{path}` is larger than {} MiB", most / 1024 / 1024);
            return Err(FolderError::Refused(why));
        }
        Ok(bytes)
    }
}
