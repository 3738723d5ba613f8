//! Folders in work folders, for those who choose one: listed and made by descriptor, without links.

use super::{FolderError, WorkFolders, canonical};
use handler_types::folder::MAX_LISTED;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat2, statat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Folders in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubFolders {
    /// The folder, canonical.
    pub path: PathBuf,
    /// The one around it, if that may be listed.
    pub parent: Option<PathBuf>,
    /// Names, sorted; hidden ones and links left out.
    pub names: Vec<String>,
    /// There are more.
    pub more: bool,
}

impl WorkFolders {
    /// The folders in a root or a work folder.
    ///
    /// # Errors
    /// As [`WorkFolders::check`].
    pub fn look(&self, path: &Path) -> Result<SubFolders, FolderError> {
        let path = self.listable(path)?;
        let open = open(&path)?;
        let mut names = names(&open).map_err(|errno| failed(&path, errno))?;
        names.sort();
        let more = names.len() > MAX_LISTED;
        names.truncate(MAX_LISTED);
        let parent = path.parent().and_then(|parent| self.listable(parent).ok());
        Ok(SubFolders {
            path,
            parent,
            names,
            more,
        })
    }

    /// Makes a folder in a root or a work folder.
    ///
    /// # Errors
    /// As [`WorkFolders::check`]; [`FolderError::Exists`]; [`FolderError::BadName`].
    pub fn make(&self, parent: &Path, name: &str) -> Result<SubFolders, FolderError> {
        let parent = self.listable(parent)?;
        let is_name = !name.is_empty()
            && name.len() <= 255
            && !name.starts_with('.')
            && !name.contains(|c: char| c == '/' || c.is_control());
        if !is_name {
            return Err(FolderError::BadName);
        }
        let path = parent.join(name);
        match mkdirat(&open(&parent)?, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => self.look(&path),
            Err(Errno::EXIST) => Err(FolderError::Exists { path }),
            Err(errno) => Err(failed(&path, errno)),
        }
    }

    /// A root, or a folder that agents may work in. The home as a root is none of them, but those in it are.
    fn listable(&self, path: &Path) -> Result<PathBuf, FolderError> {
        let refused = match self.check(path) {
            Ok(found) => return Ok(found),
            Err(refused) => refused,
        };
        let found = canonical(path);
        let is_root = self
            .list()?
            .into_iter()
            .any(|root| root.path.is_some_and(|root| root == found));
        if is_root && found == canonical(&self.home) {
            return Ok(found);
        }
        Err(refused)
    }
}

fn failed(path: &Path, errno: Errno) -> FolderError {
    FolderError::Io {
        path: path.to_owned(),
        source: errno.into(),
    }
}

fn open(path: &Path) -> Result<OwnedFd, FolderError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(|errno| failed(path, errno))
}

fn names(folder: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |data| {
                    FileType::from_raw_mode(data.st_mode)
                }),
            known => known,
        };
        if kind == FileType::Directory {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
