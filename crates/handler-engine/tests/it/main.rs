//! Integration tests of the engine, in one binary.
#![expect(
    clippy::print_stderr,
    reason = "a random test says its seed when it fails"
)]

mod crash;
mod engine;
mod guest;
mod hostile;
mod lifetime;
mod peer;
mod ports;
mod reconnect;
mod store;
mod world;
