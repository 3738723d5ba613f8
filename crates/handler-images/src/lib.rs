//! Images of the `native` engine: a content-addressed store whose layers are unpacked once and shared.
//!
//! Everything that comes in here was made by strangers: archives, manifests, answers of registries. All of it
//! is bounded, checked against its digest where it has one, and unpacked beneath one folder by descriptor.
//! Whatever step a crash falls on, no half layer and no half image is ever taken for a whole one.

mod archive;
mod config;
mod decompress;
mod digest;
mod error;
mod fetch;
mod folders;
mod import;
mod layers;
mod manifest;
mod name;
mod pins;
mod place;
mod pull;
mod record;
mod registry;
mod root;
mod say;
mod store;
mod tar;
#[cfg(test)]
mod test_tar;
mod unpack;

pub use root::ImageRoot;
pub use store::{Store, StoreConfig};
