//! What is in the knowledge root: read by descriptor, links left out, within bounds.

use super::{Found, KnowledgeError, Root, beneath, unusable};
use handler_types::knowledge::MAX_NOTE;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, statat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Levels of the list of folders.
const LEVELS: usize = 3;
/// Most folders, and most notes, that are listed.
const MOST: usize = 2000;

/// What is in a folder: names, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Relative to the root; `.`: the root itself.
    pub path: String,
    /// Folders.
    pub folders: Vec<String>,
    /// Notes.
    pub notes: Vec<String>,
    /// The one that introduces it.
    pub index: Option<String>,
}

/// A note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Relative to the root.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The root's folders, parents first.
pub(super) fn folders(root: &Root) -> Result<Vec<String>, KnowledgeError> {
    let mut found = Vec::new();
    // The next to look at is the last: children of a folder come right after it.
    let mut waiting = vec![(".".to_owned(), 0)];
    while let Some((path, level)) = waiting.pop() {
        if level > 0 {
            found.push(path.clone());
        }
        if level == LEVELS || found.len() >= MOST {
            continue;
        }
        let names = match entries(root, &path) {
            Ok(names) => names,
            // One that cannot be read hides only what is in it.
            Err(_) if level > 0 => continue,
            Err(errno) => return Err(failed(&root.path, errno)),
        };
        let mut below: Vec<String> = names
            .into_iter()
            .filter(|(name, kind)| is_folder(name, *kind))
            .map(|(name, _)| join(&path, &name))
            .collect();
        below.sort_unstable_by(|a, b| b.cmp(a));
        waiting.extend(below.into_iter().map(|path| (path, level + 1)));
    }
    Ok(found)
}

pub(super) fn folder(root: &Root, found: &Found) -> Result<Folder, KnowledgeError> {
    let names = entries(root, &found.relative).map_err(|errno| failed(&found.path, errno))?;
    let (mut folders, mut notes) = (Vec::new(), Vec::new());
    for (name, kind) in names {
        if is_folder(&name, kind) {
            folders.push(name);
        } else if kind == FileType::RegularFile && is_note(&name) {
            notes.push(name);
        }
    }
    folders.sort();
    notes.sort();
    let named = |wanted: &str| notes.iter().find(|name| name.to_lowercase() == wanted);
    Ok(Folder {
        path: found.relative.clone(),
        index: named("index.md").or_else(|| named("readme.md")).cloned(),
        folders,
        notes,
    })
}

pub(super) fn note(root: &Root, found: &Found) -> Result<Note, KnowledgeError> {
    let path = &found.relative;
    // Neither a pipe nor a device may make this wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = beneath(root, path, flags).map_err(|errno| match errno {
        Errno::NXIO => unusable(path, "is not a file"),
        errno => failed(&found.path, errno),
    })?;
    let data = fstat(&open).map_err(|errno| failed(&found.path, errno))?;
    if FileType::from_raw_mode(data.st_mode) != FileType::RegularFile {
        return Err(unusable(path, "is not a file"));
    }
    let mut bytes = Vec::new();
    File::from(open)
        .take(MAX_NOTE + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| KnowledgeError::Io {
            path: found.path.clone(),
            source,
        })?;
    if bytes.len() as u64 > MAX_NOTE {
        return Err(unusable(path, "is larger than 1 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| unusable(path, "is not text"))?;
    Ok(Note {
        path: path.clone(),
        text,
    })
}

fn failed(path: &Path, errno: Errno) -> KnowledgeError {
    KnowledgeError::Io {
        path: path.to_owned(),
        source: errno.into(),
    }
}

fn join(folder: &str, name: &str) -> String {
    match folder {
        "." => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}

fn is_folder(name: &str, kind: FileType) -> bool {
    kind == FileType::Directory && !name.starts_with(['.', '_'])
}

fn is_note(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    !name.starts_with('.') && ending.is_some_and(|ending| ending.eq_ignore_ascii_case("md"))
}

/// Names that are text, with what they are; links are links.
fn entries(root: &Root, path: &str) -> Result<Vec<(String, FileType)>, Errno> {
    let folder = beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if matches!(name, "." | "..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kind_of(&folder, name),
            known => known,
        };
        if matches!(kind, FileType::Directory | FileType::RegularFile) {
            found.push((name.to_owned(), kind));
        }
        if found.len() >= 2 * MOST {
            break;
        }
    }
    Ok(found)
}

fn kind_of(folder: &OwnedFd, name: &str) -> FileType {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_or(FileType::Unknown, |data| {
        FileType::from_raw_mode(data.st_mode)
    })
}
