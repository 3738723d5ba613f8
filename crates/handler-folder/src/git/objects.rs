//! Objects: loose ones, and those in packs. What is given out has the name it was asked for by.

use super::GitError;
use super::pack::Pack;
use crate::open::{Root, hex, names};
use flate2::read::ZlibDecoder;
use sha1::Digest as _;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

/// Most packs of a repository.
const MAX_PACKS: usize = 2000;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Commit,
    Tree,
    Blob,
    Tag,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }
}

/// The objects of a repository.
#[derive(Debug)]
pub(super) struct Objects<'a> {
    root: &'a Root,
    packs: Vec<Pack>,
}

impl<'a> Objects<'a> {
    pub(super) fn open(root: &'a Root) -> Result<Self, GitError> {
        let mut packs = Vec::new();
        if let Ok(folder) = root.folder(OsStr::new(".git/objects/pack")) {
            let found = names(folder.as_fd()).map_err(std::io::Error::from)?;
            let stems = found
                .iter()
                .filter_map(|name| name.as_bytes().strip_suffix(b".idx"))
                .take(MAX_PACKS);
            for stem in stems {
                packs.push(Pack::new(OsStr::from_bytes(stem)));
            }
        }
        Ok(Self { root, packs })
    }

    /// Reads an object of this kind, at most so large.
    pub(super) fn read(&self, id: &[u8], kind: Kind, most: usize) -> Result<Vec<u8>, GitError> {
        let (found, content) = match self.loose(id, most)? {
            Some(found) => found,
            None => self.packed(id, most)?,
        };
        if found != kind {
            return Err(GitError::Malformed("an object of another kind"));
        }
        let is_its = name(kind, &content, id.len()).is_some_and(|name| name == id);
        is_its.then_some(content).ok_or(GitError::Malformed(
            "an object that is not what its name says",
        ))
    }

    /// Any object, found in packs first: bases of deltas.
    pub(super) fn base(&self, id: &[u8], most: usize) -> Result<(Kind, Vec<u8>), GitError> {
        match self.loose(id, most)? {
            Some(found) => Ok(found),
            None => Err(GitError::Missing),
        }
    }

    fn packed(&self, id: &[u8], most: usize) -> Result<(Kind, Vec<u8>), GitError> {
        for pack in &self.packs {
            if let Some(opened) = pack.find(self.root, id)? {
                return opened.read(self, most);
            }
        }
        Err(GitError::Missing)
    }

    fn loose(&self, id: &[u8], most: usize) -> Result<Option<(Kind, Vec<u8>)>, GitError> {
        let text = hex(id);
        let path = format!(".git/objects/{}/{}", &text[..2], &text[2..]);
        let Ok((file, _)) = self.root.open_raw(OsStr::new(&path)) else {
            return Ok(None);
        };
        // The head is at most 32 bytes.
        let mut content = Vec::new();
        ZlibDecoder::new(file)
            .take(most as u64 + 33)
            .read_to_end(&mut content)?;
        let malformed = GitError::Malformed("a loose object");
        let Some(end) = content.iter().take(32).position(|&b| b == 0) else {
            return Err(malformed);
        };
        let head = std::str::from_utf8(&content[..end]).ok();
        let Some((word, size)) = head.and_then(|head| head.split_once(' ')) else {
            return Err(malformed);
        };
        let kinds = [Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag];
        let kind = kinds.into_iter().find(|kind| kind.word() == word);
        let (Some(kind), Ok(size)) = (kind, size.parse::<usize>()) else {
            return Err(malformed);
        };
        if size > most {
            return Err(GitError::TooLarge);
        }
        content.drain(..=end);
        if content.len() != size {
            return Err(malformed);
        }
        Ok(Some((kind, content)))
    }
}

/// The name an object has: SHA-1 or SHA-256 of its head and content.
fn name(kind: Kind, content: &[u8], length: usize) -> Option<Vec<u8>> {
    let head = format!("{} {}\0", kind.word(), content.len());
    match length {
        20 => {
            let hash = sha1::Sha1::new().chain_update(head).chain_update(content);
            Some(hash.finalize().to_vec())
        }
        32 => {
            let hash = sha2::Sha256::new().chain_update(head).chain_update(content);
            Some(hash.finalize().to_vec())
        }
        _ => None,
    }
}
