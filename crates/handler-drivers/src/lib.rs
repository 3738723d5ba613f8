//! The drivers: how each backend makes, starts, stops and removes instances.
//!
//! A driver knows its backend and nothing of sessions, secrets or the API. Each folder has the same
//! files: `mod.rs` (the driver, thin), `plan.rs` (pure), `api.rs` (the wire or command line),
//! `observe.rs` (what there is), `README.md` (what it guarantees and refuses).

#![cfg_attr(test, expect(clippy::unwrap_used, reason = "tests may"))]

pub mod native;
pub mod oci;
