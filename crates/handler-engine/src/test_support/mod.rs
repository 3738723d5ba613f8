//! Fakes for tests: rows in memory, a filter that only remembers, a driver over plain child processes.
//!
//! Each fake's world is behind an `Arc`, so that it outlives an engine that is "killed" and meets the next one.

mod driver;
mod filter;
mod rows;

pub use driver::{DriverFault, FakeDriver, guest_program};
pub use filter::{FakeFilter, FixedSecrets};
pub use rows::MemoryRows;

use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{Lifetime, Resources, SandboxSpec};
use std::collections::BTreeMap;

/// A spec for the fake driver; it works in the sandbox's own folder.
#[must_use]
pub fn spec(name: Option<&str>, network: NetworkPolicy) -> SandboxSpec {
    SandboxSpec {
        backend: "fake".to_owned(),
        name: name.map(ToOwned::to_owned),
        scope: None,
        workdir: "/".to_owned(),
        home: "/".to_owned(),
        mounts: Vec::new(),
        files: Vec::new(),
        env: BTreeMap::new(),
        network,
        resources: Resources::default(),
        strict_limits: false,
        lifetime: Lifetime::Kept,
        labels: BTreeMap::new(),
        phantoms: Vec::new(),
        ..SandboxSpec::default()
    }
}
