//! Servers on loopback that sandboxes try to reach.

mod http;
mod tcp;

pub use http::{HttpOrigin, OriginRequest};
pub use tcp::TcpOrigin;
