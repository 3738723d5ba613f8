//! The filter as its neighbours meet it: a control socket, listeners, and origins on this machine.
#![expect(
    clippy::unwrap_used,
    reason = "a failed expectation is how a test fails"
)]

mod chain;
mod coded;
mod coding;
mod control;
mod flows;
mod forward;
mod fronting;
mod grpc;
mod http2;
mod http2_floods;
mod intercept;
mod life;
mod origin;
mod policy;
mod slow;
mod smuggling;
mod swap;
mod throughput;
mod tunnel;
mod websocket;
mod world;
