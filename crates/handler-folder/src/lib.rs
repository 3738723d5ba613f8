//! Folders that an agent writes, looked at by its person: what changed since a session started, what is there, what a
//! file was before, and changes taken back.
//!
//! Invariant: everything is opened beneath one folder by descriptor, no link is followed, only regular files are read,
//! and nothing that the folder says (a repository's settings, hooks, filters) is run.

pub mod baseline;
pub mod diff;
mod error;
pub mod find;
pub mod git;
mod ignore;
mod open;
mod walk;
mod write;

pub use error::FolderError;
pub use open::{Entry, Kind, Place, Root, Stat, check, sha256};
pub use walk::{Limits, Walked, walk};
pub use write::Writer;
