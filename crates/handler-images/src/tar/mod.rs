//! A reader of tar streams from strangers: every length is bounded before anything is kept in memory.
//!
//! Understands ustar, GNU long names and PAX (path, linkpath, size); all other extended headers are skipped,
//! so that no attribute of an archive ever reaches a file.

mod header;
mod reader;

pub(crate) use reader::{Reader, TarError};

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    Link,
    HardLink,
    /// Devices, pipes and whatever else: never made.
    Other,
}

/// One entry; its content is read from the [`Reader`] until the next one is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As it stands in the archive.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    /// Target of a link.
    pub(crate) link: Vec<u8>,
    /// Bytes of content that follow.
    pub(crate) size: u64,
    pub(crate) mode: u32,
    /// Seconds since the epoch.
    pub(crate) mtime: i64,
}
