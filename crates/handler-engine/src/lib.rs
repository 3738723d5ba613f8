//! Sandbox lifecycle: driver trait, one owner task per sandbox, guest link, egress link, reconcile.

pub mod driver;
pub mod error;
pub mod filter;
pub mod folders;
pub mod guest;
pub mod phantom;
mod remove_tree;
pub mod rows;

pub use error::{EngineError, Retry, Whose};
