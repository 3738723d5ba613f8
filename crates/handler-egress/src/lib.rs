//! The egress filter: proxy, allow-list, TLS interception, secret injection.
//!
//! One process serves every sandbox of a daemon. A sandbox is known by the Unix listener its bytes
//! arrive on, never by anything it says. Everything that is decided is decided by the pure modules
//! (`target`, `decide`, `index`, `address`, `scan`, `hello`, `opening`, `naming`); the others only perform it. Values of secrets enter
//! through the control socket, live in [`settings`](EgressConfig), and leave towards their own
//! hosts only.

mod accept;
mod address;
mod authority;
mod body;
mod carry;
mod chain;
mod coding;
mod config;
mod connect;
mod content;
mod control;
mod decide;
mod dial;
mod events;
mod exchange;
mod flow;
mod form;
mod forward;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod headers;
mod hello;
mod hosts;
mod index;
mod inject;
mod intercept;
mod keep;
mod limits;
mod listener;
mod login;
mod mask;
mod memory;
mod names;
mod naming;
mod obtain;
mod opening;
mod plain;
mod pool;
mod prepare;
mod process;
mod recode;
mod refuse;
mod registry;
mod report;
mod resolve;
mod rewind;
mod run;
mod sandbox;
mod scan;
mod settings;
mod shape;
mod share;
mod streams;
mod target;
mod traffic;
mod trust;
mod tunnel;
mod upgrade;
mod upstream;
mod websocket;

pub use chain::{UpstreamProxy, UpstreamProxyError};
pub use config::EgressConfig;
pub use limits::{Limits, Share};
pub use memory::WipingAllocator;
pub use run::{RunError, run};
