//! Work folders: which folders of the host may be given to sandboxes.
//!
//! Invariant: what [`WorkFolders::check`] lets through is a canonical path of a directory that lies in
//! a root, holds neither the home nor Handler's own folders, and is no folder of the system.
//! Symbolic links are followed before anything is decided. The file is read anew by each call, so that a
//! change by hand counts at once.

mod file;
mod look;
mod rules;

pub use look::SubFolders;
use rules::Refusal;
use std::io;
use std::path::{Path, PathBuf};

/// Why a folder cannot be used, or the list not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It lies in none of the roots.
    #[error(
        "{} is in no work folder: allow it with `handler folder add {}`",
        path.display(), path.display()
    )]
    Outside {
        /// The canonical path.
        path: PathBuf,
    },
    /// It may never be given to a sandbox.
    #[error("{} {reason}: choose a folder with the project only", path.display())]
    Refused {
        /// The canonical path.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// It is hidden in the home, where keys and settings lie.
    #[error(
        "{} is hidden in your home, where keys and settings lie; if it is meant, allow it with `handler folder add {}`",
        path.display(), hidden.display()
    )]
    Hidden {
        /// The canonical path.
        path: PathBuf,
        /// The hidden folder right below the home.
        hidden: PathBuf,
    },
    /// It does not start with `/`.
    #[error("{} is not an absolute path", path.display())]
    NotAbsolute {
        /// The path given.
        path: PathBuf,
    },
    /// It does not exist.
    #[error("{} does not exist: make it first", path.display())]
    Missing {
        /// The path given.
        path: PathBuf,
    },
    /// It is not a directory.
    #[error("{} is not a folder", path.display())]
    NotADirectory {
        /// The path given.
        path: PathBuf,
    },
    /// It is there already.
    #[error("{} is there already", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// No folder can be called so.
    #[error("a new folder's name has no `/`, no control characters and no dot in front")]
    BadName,
    /// Its name is not UTF-8.
    #[error("{} has a name that is not UTF-8", path.display())]
    NotUtf8 {
        /// The path given.
        path: PathBuf,
    },
    /// The list of roots is wrong; nothing is allowed until it is mended.
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

/// A root as it is written and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// As in the file, e.g. `~/code`.
    pub written: String,
    /// Where it leads; none when it does not exist.
    pub path: Option<PathBuf>,
}

/// The work folders of one user.
#[derive(Debug, Clone)]
pub struct WorkFolders {
    file: PathBuf,
    home: PathBuf,
    own: Vec<PathBuf>,
}

impl WorkFolders {
    /// Work folders listed in `file` (the default when it does not exist: everything below `home`
    /// but hidden folders) of the user with this home. `own` are folders no sandbox may ever see:
    /// Handler's.
    #[must_use]
    pub fn new(file: PathBuf, home: PathBuf, own: Vec<PathBuf>) -> Self {
        Self { file, home, own }
    }

    /// [`WorkFolders::new`] with the folders of a layout.
    #[must_use]
    pub fn of(layout: &crate::Layout, home: PathBuf) -> Self {
        let own = layout.own_dirs().map(Path::to_owned).to_vec();
        Self::new(layout.folders_file(), home, own)
    }

    /// Checks a folder (absolute) and gives its canonical path.
    ///
    /// # Errors
    /// [`FolderError`] says what to do.
    pub fn check(&self, path: &Path) -> Result<PathBuf, FolderError> {
        let found = canonical_dir(path)?;
        self.check_shown(&found)?;
        let home = canonical(&self.home);
        let mut hidden = None;
        for root in self.list()?.into_iter().filter_map(|root| root.path) {
            match rules::covers(&root, &found, &home) {
                Ok(()) => return Ok(found),
                Err(Refusal::Hidden(folder)) => hidden = Some(folder),
                Err(Refusal::Outside) => {}
            }
        }
        Err(match hidden {
            Some(hidden) => FolderError::Hidden {
                path: found,
                hidden,
            },
            None => FolderError::Outside { path: found },
        })
    }

    /// The roots, in the order of the file.
    ///
    /// # Errors
    /// [`FolderError::Invalid`] and [`FolderError::Io`].
    pub fn list(&self) -> Result<Vec<Root>, FolderError> {
        let written = file::read(&self.file)?;
        Ok(written.into_iter().map(|text| self.root(text)).collect())
    }

    /// Adds a root and gives its canonical path. The default stays allowed when the file is first
    /// made. A root that is there already is not added again.
    ///
    /// # Errors
    /// [`FolderError`]; the file is then as before.
    pub fn add(&self, path: &Path) -> Result<PathBuf, FolderError> {
        let home = canonical(&self.home);
        let found = canonical_dir(&expand(path, &self.home))?;
        // The home itself may be a root: it then stands for what lies below it.
        if found != home {
            self.check_shown(&found)?;
        }
        let roots = self.list()?;
        if roots.iter().all(|root| root.path.as_ref() != Some(&found)) {
            file::add(&self.file, &shorten(&found, &home)?)?;
        }
        Ok(found)
    }

    /// Where a root leads, there or not.
    #[must_use]
    pub fn full(&self, root: &Root) -> PathBuf {
        expand(Path::new(&root.written), &self.home)
    }

    /// Makes these the roots and no others. One that does not exist yet may be among them.
    ///
    /// # Errors
    /// [`FolderError`]; the file is then as before.
    pub fn set(&self, roots: &[String]) -> Result<(), FolderError> {
        let home = canonical(&self.home);
        for root in roots {
            let path = expand(Path::new(root), &self.home);
            if !path.is_absolute() {
                return Err(FolderError::NotAbsolute { path });
            }
            let found = canonical(&path);
            if found != home {
                self.check_shown(&found)?;
            }
            if found.exists() && !found.is_dir() {
                return Err(FolderError::NotADirectory { path });
            }
        }
        file::set(&self.file, roots)
    }

    /// Removes a root, given as it is written or by where it leads; says whether it was there.
    ///
    /// # Errors
    /// [`FolderError`]; the file is then as before.
    pub fn remove(&self, path: &Path) -> Result<bool, FolderError> {
        let wanted = expand(path, &self.home);
        let found = canonical(&wanted);
        let roots = self.list()?;
        let kept = |root: &Root| {
            Path::new(&root.written) != path
                && expand(Path::new(&root.written), &self.home) != wanted
                && root.path.as_ref() != Some(&found)
        };
        let gone: Vec<usize> = roots
            .iter()
            .enumerate()
            .filter(|(_, root)| !kept(root))
            .map(|(at, _)| at)
            .collect();
        if gone.is_empty() {
            return Ok(false);
        }
        file::remove(&self.file, &gone)?;
        Ok(true)
    }

    /// What holds whatever the roots are: for a canonical path that some sandbox is to see.
    ///
    /// # Errors
    /// [`FolderError::Refused`] for the home as a whole, Handler's own folders and the system's.
    pub fn check_shown(&self, found: &Path) -> Result<(), FolderError> {
        let refused = |reason| FolderError::Refused {
            path: found.to_owned(),
            reason,
        };
        if let Some(reason) = rules::system(found) {
            return Err(refused(reason));
        }
        if canonical(&self.home).starts_with(found) {
            return Err(refused("holds your whole home"));
        }
        let touches = |own: &PathBuf| {
            let own = canonical(own);
            own.starts_with(found) || found.starts_with(own)
        };
        if self.own.iter().any(touches) {
            return Err(refused("holds or is a folder of Handler itself"));
        }
        Ok(())
    }

    fn root(&self, written: String) -> Root {
        let full = expand(Path::new(&written), &self.home);
        let path = std::fs::canonicalize(full).ok();
        Root { written, path }
    }
}

/// `~` and `~/…` in terms of the home.
pub(crate) fn expand(path: &Path, home: &Path) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(rest) if rest.as_os_str().is_empty() => home.to_owned(),
        Ok(rest) => home.join(rest),
        Err(_) => path.to_owned(),
    }
}

/// How a root is written: with `~` when it lies in the home.
fn shorten(path: &Path, home: &Path) -> Result<String, FolderError> {
    let not_utf8 = || FolderError::NotUtf8 {
        path: path.to_owned(),
    };
    let text = path.to_str().ok_or_else(not_utf8)?;
    let rest = path.strip_prefix(home).ok().and_then(Path::to_str);
    Ok(match rest {
        Some("") => "~".to_owned(),
        Some(rest) => format!("~/{rest}"),
        None => text.to_owned(),
    })
}

/// The canonical form, or the path itself while it does not exist.
fn canonical(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn canonical_dir(path: &Path) -> Result<PathBuf, FolderError> {
    let path = path.to_owned();
    if !path.is_absolute() {
        return Err(FolderError::NotAbsolute { path });
    }
    if path.to_str().is_none() {
        return Err(FolderError::NotUtf8 { path });
    }
    let found = match std::fs::canonicalize(&path) {
        Ok(found) => found,
        Err(source) => {
            return Err(match source.kind() {
                io::ErrorKind::NotFound => FolderError::Missing { path },
                io::ErrorKind::NotADirectory => FolderError::NotADirectory { path },
                _ => FolderError::Io { path, source },
            });
        }
    };
    if !found.is_dir() {
        return Err(FolderError::NotADirectory { path });
    }
    if found.to_str().is_none() {
        return Err(FolderError::NotUtf8 { path: found });
    }
    Ok(found)
}
