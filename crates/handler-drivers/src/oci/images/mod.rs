//! The image store of a container engine (Podman, Docker), over its API socket.
//!
//! The store is the engine's own: nothing is kept here but what ids say, which never changes. Podman is spoken
//! to in its own dialect (its other one looks short names up elsewhere than its command line does). Ids are
//! `sha256:…` in both.

mod archive;
mod build;
mod build_processes;
mod http;
mod import;
mod podman_build;
mod pull;
mod reference;
mod store;
mod text;
mod view;

pub use reference::{is_image_name, is_reference};
pub use store::OciImages;
