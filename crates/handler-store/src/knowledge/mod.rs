//! Knowledge folders (contract D.5): folders of one root that agents may be shown read-only.
//!
//! Invariants: what is let through lies in the root once every link is followed, has no hidden part, and is none of
//! the folders that no sandbox may see; it is opened beneath the root by descriptor, without links, so that what is
//! read is what was checked. The root is found anew by each call: a change counts at once.

mod file;
mod look;

pub use look::{Folder, Note};

use crate::folders::{WorkFolders, expand};
use handler_types::knowledge::KnowledgeSource;
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Nothing above, no link, whatever changed since it was checked.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Why something of the knowledge root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KnowledgeError {
    /// It may not be used, or is not what it should be.
    #[error("{0}")]
    Unusable(String),
    /// Something else stands against it.
    #[error("{0}")]
    Conflict(String),
    /// `knowledge.toml` is wrong.
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

/// A folder that may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Relative to the root, canonical; `.`: the root itself.
    pub relative: String,
    /// Where it is, canonical.
    pub path: PathBuf,
    /// Its name inside: it is shown at `/knowledge/<name>`.
    pub name: String,
}

/// The knowledge root of one user.
#[derive(Debug, Clone)]
pub struct Knowledge {
    file: PathBuf,
    home: PathBuf,
    given: Option<PathBuf>,
    folders: WorkFolders,
}

/// The root, opened.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    open: OwnedFd,
}

/// Something in the root, looked up and not opened yet.
struct Found {
    relative: String,
    path: PathBuf,
}

impl Knowledge {
    /// The root is `given`, else what `file` says, else `~/knowledge`. `folders` knows what no sandbox may see.
    #[must_use]
    pub fn new(file: PathBuf, home: PathBuf, given: Option<PathBuf>, folders: WorkFolders) -> Self {
        Self {
            file,
            home,
            given,
            folders,
        }
    }

    /// Where the root is, and who says so. It need not exist.
    ///
    /// # Errors
    /// [`KnowledgeError::Invalid`] and [`KnowledgeError::Io`] of the file.
    pub fn root(&self) -> Result<(PathBuf, KnowledgeSource), KnowledgeError> {
        if let Some(given) = &self.given {
            return Ok((expand(given, &self.home), KnowledgeSource::Env));
        }
        Ok(match file::read(&self.file)? {
            Some(written) => (
                expand(Path::new(&written), &self.home),
                KnowledgeSource::Config,
            ),
            None => (self.home.join("knowledge"), KnowledgeSource::Default),
        })
    }

    /// Says where the root is; none: `~/knowledge` again. With `create` it is made when it is not there.
    ///
    /// # Errors
    /// [`KnowledgeError::Conflict`] when the environment says it; a folder that cannot be the root.
    pub fn set_root(&self, root: Option<&str>, create: bool) -> Result<(), KnowledgeError> {
        if self.given.is_some() {
            return Err(KnowledgeError::Conflict(
                "HANDLER_KNOWLEDGE_DIR says where the root is: change it there".to_owned(),
            ));
        }
        let Some(written) = root else {
            return file::write(&self.file, None);
        };
        let path = expand(Path::new(written), &self.home);
        let goes_up = path.components().any(|part| part == Component::ParentDir);
        if !path.is_absolute() || goes_up || written.contains('\0') {
            let text = format!(
                "{written}: give an absolute path without `..`, or one that starts with ~/"
            );
            return Err(KnowledgeError::Unusable(text));
        }
        self.shown(&meant(&path))?;
        if create {
            std::fs::create_dir_all(&path).map_err(|source| KnowledgeError::Io {
                path: path.clone(),
                source,
            })?;
        }
        let root = open_root(&path)?;
        self.shown(&root.path)?;
        let text = root.path.to_str().ok_or_else(|| not_utf8(&root.path))?;
        file::write(&self.file, Some(text))
    }

    /// The root's folders: see [`handler_types::knowledge::KnowledgeListing`]; none when it is not there.
    ///
    /// # Errors
    /// The file's; a root that cannot be read.
    pub fn list(&self) -> Result<Option<Vec<String>>, KnowledgeError> {
        let (path, _) = self.root()?;
        if !path.is_dir() {
            return Ok(None);
        }
        let root = open_root(&path)?;
        look::folders(&root).map(Some)
    }

    /// Folders as they are kept (contract K1): relative, canonical, sorted, each once; and where they are.
    ///
    /// # Errors
    /// [`KnowledgeError::Unusable`] with everything that is wrong (contract K2).
    pub fn check(&self, asked: &[String]) -> Result<Vec<Chosen>, KnowledgeError> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let root = self.open()?;
        let mut found = Vec::new();
        let mut wrong = Vec::new();
        for text in asked {
            match self.folder(&root, text).and_then(chosen) {
                Ok(chosen) => found.push(chosen),
                Err(error @ KnowledgeError::Unusable(_)) => wrong.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        found.sort_by(|a, b| a.relative.cmp(&b.relative));
        found.dedup();
        wrong.extend(clashes(&found));
        if wrong.is_empty() {
            return Ok(found);
        }
        Err(KnowledgeError::Unusable(wrong.join("; ")))
    }

    /// What is in a folder.
    ///
    /// # Errors
    /// As [`Knowledge::check`].
    pub fn browse(&self, path: &str) -> Result<Folder, KnowledgeError> {
        let root = self.open()?;
        let found = self.folder(&root, path)?;
        look::folder(&root, &found)
    }

    /// A note.
    ///
    /// # Errors
    /// As [`Knowledge::check`]; what is no text file of at most 1 MiB.
    pub fn note(&self, path: &str) -> Result<Note, KnowledgeError> {
        let root = self.open()?;
        let found = self.find(&root, path)?;
        look::note(&root, &found)
    }

    /// Makes a folder and gives what is in it: nothing.
    ///
    /// # Errors
    /// As [`Knowledge::check`] for the folder it is made in; a name with `.` or `_` in front;
    /// [`KnowledgeError::Conflict`] when it is there.
    pub fn make(&self, path: &str) -> Result<Folder, KnowledgeError> {
        let root = self.open()?;
        let trimmed = path.trim_end_matches('/');
        let (parent, name) = match trimmed.rsplit_once('/') {
            Some((parent, name)) => (parent, name),
            None => (".", trimmed),
        };
        if name.is_empty() || name.starts_with(['.', '_']) || name.contains('\0') {
            let text =
                format!("{path}: the name of a new folder begins with neither a dot nor `_`");
            return Err(KnowledgeError::Unusable(text));
        }
        let parent = self.folder(&root, if parent.is_empty() { "/" } else { parent })?;
        let failed = |source: Errno| KnowledgeError::Io {
            path: parent.path.join(name),
            source: source.into(),
        };
        let at =
            beneath(&root, &parent.relative, OFlags::PATH | OFlags::DIRECTORY).map_err(failed)?;
        match mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                return Err(KnowledgeError::Conflict(format!("{path} is there already")));
            }
            Err(error) => return Err(failed(error)),
        }
        let relative = match parent.relative.as_str() {
            "." => name.to_owned(),
            above => format!("{above}/{name}"),
        };
        let path = parent.path.join(name);
        look::folder(&root, &Found { relative, path })
    }

    fn open(&self) -> Result<Root, KnowledgeError> {
        open_root(&self.root()?.0)
    }

    /// A folder in the root.
    fn folder(&self, root: &Root, asked: &str) -> Result<Found, KnowledgeError> {
        let found = self.find(root, asked)?;
        match beneath(root, &found.relative, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(_) => Ok(found),
            Err(Errno::NOTDIR) => Err(unusable(asked, "is not a folder")),
            Err(_) => Err(unusable(asked, "cannot be opened")),
        }
    }

    /// Follows every link, then decides.
    fn find(&self, root: &Root, asked: &str) -> Result<Found, KnowledgeError> {
        if asked.contains('\0') {
            return Err(unusable("the path", "holds a zero byte"));
        }
        let (configured, _) = self.root()?;
        let typed = Path::new(asked);
        // Hidden parts of the root's own path are its owner's choice.
        let inner = typed
            .strip_prefix(&root.path)
            .or_else(|_| typed.strip_prefix(&configured));
        let inner = inner.ok().or_else(|| typed.is_relative().then_some(typed));
        if inner.is_some_and(is_hidden) {
            return Err(unusable(asked, "has a hidden part"));
        }
        let path = match std::fs::canonicalize(root.path.join(typed)) {
            Ok(path) => path,
            Err(_) => return Err(unusable(asked, "does not exist in the knowledge root")),
        };
        let relative = path
            .strip_prefix(&root.path)
            .map_err(|_| unusable(asked, "leads out of the knowledge root"))?;
        if is_hidden(relative) {
            return Err(unusable(asked, "has a hidden part"));
        }
        self.shown(&path)?;
        let relative = match relative.to_str() {
            Some("") => ".".to_owned(),
            Some(text) => text.to_owned(),
            None => return Err(not_utf8(&path)),
        };
        Ok(Found { relative, path })
    }

    /// Refuses what no sandbox may see.
    fn shown(&self, path: &Path) -> Result<(), KnowledgeError> {
        let refused =
            |error: crate::folders::FolderError| KnowledgeError::Unusable(error.to_string());
        self.folders.check_shown(path).map_err(refused)
    }
}

fn unusable(what: &str, why: &str) -> KnowledgeError {
    KnowledgeError::Unusable(format!("{what} {why}"))
}

fn not_utf8(path: &Path) -> KnowledgeError {
    unusable(&path.display().to_string(), "has a name that is not UTF-8")
}

/// Whether a part begins with a dot; `.` itself does not count, `..` does.
fn is_hidden(path: &Path) -> bool {
    path.components().any(|part| match part {
        Component::ParentDir => true,
        Component::Normal(name) => name.as_encoded_bytes().starts_with(b"."),
        _ => false,
    })
}

/// What a path that need not exist would be: its existing beginning followed, the rest as it is.
fn meant(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Ok(found) = std::fs::canonicalize(above) {
            let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() {
                found
            } else {
                found.join(rest)
            };
        }
    }
    path.to_owned()
}

fn open_root(path: &Path) -> Result<Root, KnowledgeError> {
    let shown = path.display().to_string();
    let path = match std::fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!(
                "the knowledge root {shown} does not exist: make it, or choose another with `handler knowledge root`"
            );
            return Err(KnowledgeError::Unusable(text));
        }
        Err(source) => {
            let path = path.to_owned();
            return Err(KnowledgeError::Io { path, source });
        }
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(open) => Ok(Root { path, open }),
        Err(Errno::NOTDIR) => Err(unusable(&shown, "is not a folder")),
        Err(source) => Err(KnowledgeError::Io {
            path,
            source: source.into(),
        }),
    }
}

fn beneath(root: &Root, relative: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(
        &root.open,
        relative,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        BENEATH,
    )
}

fn chosen(found: Found) -> Result<Chosen, KnowledgeError> {
    let name = found.path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| not_utf8(&found.path))?.to_owned();
    Ok(Chosen {
        relative: found.relative,
        path: found.path,
        name,
    })
}

/// Folders that cannot be shown together.
fn clashes(found: &[Chosen]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, one) in found.iter().enumerate() {
        for other in &found[at + 1..] {
            let (a, b) = (&one.relative, &other.relative);
            if other.path.starts_with(&one.path) || one.path.starts_with(&other.path) {
                wrong.push(format!("{a} and {b}: one lies in the other"));
            } else if one.name == other.name {
                wrong.push(format!("{a} and {b} would both be /knowledge/{}", one.name));
            }
        }
    }
    wrong
}
