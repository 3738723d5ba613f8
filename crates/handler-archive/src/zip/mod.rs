//! Zip, by way of tar: what the guest packs becomes a zip archive, a zip archive becomes what it unpacks.

mod read;
mod write;

pub use read::to_tar;
pub use write::FromTar;
