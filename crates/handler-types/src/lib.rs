//! Data of the product: what crosses walls between rooms, on the wire and on disk.
//!
//! Nothing here does I/O, reads a clock or draws randomness. Wire JSON is camelCase; absent is used
//! instead of `null`. The `openapi` feature adds schemas for the HTTP description.

pub mod account;
pub mod agent;
pub mod agent_terminal;
pub mod api;
pub mod audit;
pub mod build;
pub mod cache;
pub mod context;
pub mod egress;
pub mod event;
pub mod folder;
pub mod frame;
pub mod git;
pub mod guest;
mod guest_answer;
mod guest_error;
mod guest_files;
mod guest_process;
mod guest_system;
pub mod harness;
pub mod id;
pub mod image;
pub mod knowledge;
pub mod launch;
pub mod learn;
pub mod lifetime;
pub mod limits;
pub mod login;
pub mod network;
pub mod observe;
pub mod port;
pub mod preset;
pub mod problem;
pub mod project;
pub mod provider;
pub mod sandbox;
pub mod secret;
pub mod session;
pub mod session_folder;
pub mod session_text;
pub mod terminal;
pub mod update;

pub use id::{AgentId, BuildId, ProjectId, SandboxId, SessionId};
pub use problem::{Problem, ProblemCode};
pub use secret::SecretValue;
