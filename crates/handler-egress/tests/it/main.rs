//! The filter as its neighbours meet it: a control socket, listeners, and origins on this machine.
#![expect(
    clippy::unwrap_used,
    reason = "a failed expectation is how a test fails"
)]

/// What the program that runs the filter has, too.
#[global_allocator]
static MEMORY: handler_egress::WipingAllocator = handler_egress::WipingAllocator;

mod chain;
mod coded;
mod coding;
mod control;
mod curl;
mod flood;
mod flows;
mod forward;
mod fronting;
mod grpc;
mod heads;
mod http2;
mod http2_floods;
mod intercept;
mod life;
mod login;
mod memory;
mod names;
mod origin;
mod plain;
mod plain_names;
mod policy;
mod slow;
mod smuggling;
mod splits;
mod swap;
mod throughput;
mod tunnel;
mod websocket;
mod world;
