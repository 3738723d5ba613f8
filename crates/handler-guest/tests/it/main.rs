//! The real program, driven over its socket.
#![expect(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod archives;
mod client;
mod files;
mod flow;
mod links;
mod processes;
mod system;
mod trees;
mod watches;
