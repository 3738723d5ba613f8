//! Real sandboxes: what is inside, what is not, and what is left afterwards.
//!
//! Run by root, everything runs a second time as an ordinary user (`as_an_ordinary_user.rs`).
#![expect(clippy::print_stderr, reason = "a skipped test says so")]
#![expect(clippy::unwrap_used, reason = "tests may")]

mod as_an_ordinary_user;
mod endings;
mod images;
mod inside;
mod limits;
mod oci;
mod oci_images;
mod starting;
mod world;
