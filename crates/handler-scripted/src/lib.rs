//! A scripted model server for tests and the demo: four protocols, answers by plan.
//!
//! It stands where a vendor's model would, so that genuine agent programs complete whole turns
//! without a network or a key. It keeps no conversation: every request carries its own history,
//! and the answer follows from that history alone (see [`plan`] for the words).
//!
//! Invariants: it listens on loopback only, a request is bounded before it is read, and nothing
//! a client sends can panic it.

mod answer;
mod body;
mod cli;
mod config;
mod conversation;
mod http_api;
mod keys;
pub mod plan;
mod protocol;
mod record;
mod schema;
mod server;
mod sse;
mod tools;

pub use cli::{CliOptions, run_cli};
pub use config::ScriptedConfig;
pub use record::RecordedRequest;
pub use server::ScriptedModel;
