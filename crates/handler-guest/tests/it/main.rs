//! The real program, driven over its socket.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests stop at the first surprise, and say loudly what they skip"
)]

mod client;
mod files;
mod flow;
mod links;
mod processes;
mod trees;
