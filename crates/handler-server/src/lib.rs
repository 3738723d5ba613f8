//! The daemon: app rules per resource, HTTP and WebSocket API, composition.
//!
//! `http` knows no rules, `app` knows no HTTP statuses beyond problem codes; the rooms below know neither.

pub mod app;
pub mod config;
pub mod daemon;
pub mod events;
pub mod http;
mod start;
pub mod state;

pub use config::{ServeFlags, Settings};
pub use daemon::serve;
pub use handler_store::paths::Layout;
