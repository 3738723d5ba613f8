//! A repository's HEAD and files of a commit, read without Git: nothing that the repository says is run, no link is
//! followed, nothing outside the folder is opened, and every object is checked against its name, so that what a commit
//! had is told truly or not at all.
//!
//! Invariant: [`serve`] runs in a process of its own with limits; a malformed repository costs only that process.
//! Not read: repositories whose `.git` is a file or link (linked work trees), objects kept elsewhere (alternates),
//! reftables.

mod objects;
mod pack;
mod refs;

use crate::open::{Root, check};
use objects::{Kind, Objects};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::Write as _;
use std::os::fd::AsFd as _;

/// Largest file of a commit that is given out, bytes.
pub const MAX_FILE: usize = 16 * 1024 * 1024;

/// The status of a reader that found nothing.
pub const NOTHING: u8 = 3;

/// Most memory of a reader, bytes.
const MEMORY: u64 = 1024 * 1024 * 1024;
/// Most processor time of a reader, seconds.
const SECONDS: u64 = 10;

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// It is not in the repository.
    #[error("not there")]
    Missing,
    /// It is not as Git writes it.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// It is larger than what is read.
    #[error("too large")]
    TooLarge,
    /// It cannot be opened.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
}

/// What HEAD says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// There is no repository here that is read.
    None,
    /// A repository without a commit.
    Unborn,
    /// A commit.
    Commit(String),
}

/// Whether a text is the name of a commit.
#[must_use]
pub fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Where HEAD is.
#[must_use]
pub fn head(root: &Root) -> Head {
    refs::head(root)
}

/// A regular file of a commit: its permission bits and content.
///
/// # Errors
/// [`GitError`].
pub fn file(root: &Root, commit: &str, path: &str) -> Result<(u32, Vec<u8>), GitError> {
    if !is_commit(commit) || check(path).is_err() || path.is_empty() {
        return Err(GitError::Missing);
    }
    let objects = Objects::open(root)?;
    let commit = objects.read(&id(commit)?, Kind::Commit, 1024 * 1024)?;
    let line = commit.split(|&b| b == b'\n').next().unwrap_or_default();
    let tree = line
        .strip_prefix(b"tree ")
        .and_then(|hex| std::str::from_utf8(hex).ok())
        .ok_or(GitError::Malformed("a commit without a tree"))?;
    let mut at = id(tree)?;
    let mut parts = path.split('/').peekable();
    while let Some(name) = parts.next() {
        let tree = objects.read(&at, Kind::Tree, 64 * 1024 * 1024)?;
        let (mode, next) = entry(&tree, name.as_bytes(), at.len())?;
        at = next;
        match (mode, parts.peek()) {
            (0o40_000, Some(_)) => {}
            (0o100_644 | 0o100_755 | 0o100_664, None) => {
                let content = objects.read(&at, Kind::Blob, MAX_FILE)?;
                return Ok((mode & 0o777, content));
            }
            _ => return Err(GitError::Missing),
        }
    }
    Err(GitError::Missing)
}

fn id(text: &str) -> Result<Vec<u8>, GitError> {
    let is_even = text.len().is_multiple_of(2) && is_commit(text);
    let digits = (0..text.len()).step_by(2);
    let bytes = digits.map(|at| {
        text.get(at..at + 2)
            .and_then(|two| u8::from_str_radix(two, 16).ok())
    });
    is_even
        .then(|| bytes.collect::<Option<Vec<u8>>>())
        .flatten()
        .ok_or(GitError::Malformed("a name that is none"))
}

/// The entry of a tree with this name.
fn entry(tree: &[u8], name: &[u8], id_length: usize) -> Result<(u32, Vec<u8>), GitError> {
    let malformed = GitError::Malformed("a tree");
    let mut rest = tree;
    while !rest.is_empty() {
        let space = rest.iter().take(8).position(|&b| b == b' ');
        let zero = rest.iter().position(|&b| b == 0);
        let (Some(space), Some(zero)) = (space, zero) else {
            return Err(malformed);
        };
        let (Some(found), Some(id)) = (
            rest.get(space + 1..zero),
            rest.get(zero + 1..zero + 1 + id_length),
        ) else {
            return Err(malformed);
        };
        if found == name {
            let mode = std::str::from_utf8(&rest[..space]).ok();
            let mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok());
            return mode.map(|mode| (mode, id.to_vec())).ok_or(malformed);
        }
        rest = &rest[zero + 1 + id_length..];
    }
    Err(GitError::Missing)
}

/// Is the reader: the folder is on descriptor 0, the answer goes to standard output. `head` answers `none`, `unborn` or
/// a commit; `file COMMIT PATH` the permission bits in octal, a line end and the content. The exit status: 0, or
/// [`NOTHING`] when there is no such file.
///
/// # Errors
/// What cannot be read, and limits that cannot be set.
pub fn serve(args: &[String]) -> std::io::Result<u8> {
    limit()?;
    let root = Root::new(std::io::stdin().as_fd().try_clone_to_owned()?);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = std::io::stdout().lock();
    match args[..] {
        ["head"] => match head(&root) {
            Head::None => out.write_all(b"none")?,
            Head::Unborn => out.write_all(b"unborn")?,
            Head::Commit(commit) => out.write_all(commit.as_bytes())?,
        },
        ["file", commit, path] => match file(&root, commit, path) {
            Ok((mode, content)) => {
                out.write_all(format!("{mode:o}\n").as_bytes())?;
                out.write_all(&content)?;
            }
            Err(GitError::Missing) => return Ok(NOTHING),
            Err(error) => return Err(std::io::Error::other(error.to_string())),
        },
        _ => return Err(std::io::ErrorKind::InvalidInput.into()),
    }
    out.flush()?;
    Ok(0)
}

fn limit() -> std::io::Result<()> {
    for (resource, most) in [
        (Resource::As, MEMORY),
        (Resource::Cpu, SECONDS),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nofile, 64),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    Ok(())
}
