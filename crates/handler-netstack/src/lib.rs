//! TCP/IP in user space over a TUN device: what programs send as packets goes to the egress filter as streams.
//!
//! ```text
//! program ─ kernel of the sandbox ─ TUN ─ [Stack] ─ CONNECT host:port ─ proxy.sock of the filter
//!                                           └ DNS: listed names get made-up addresses, nothing is asked outside
//! ```
//!
//! | packet | what becomes of it |
//! |---|---|
//! | TCP to a made-up address | `CONNECT name:port`; the handshake goes on only when the filter said 200 |
//! | TCP to any other address | `CONNECT address:port`; the filter decides |
//! | UDP and TCP to port 53 of [`STACK_ADDRESS`] | answered here, see [`dns`] |
//! | other UDP | ICMP port unreachable |
//! | any other protocol, ICMP too | ICMP administratively prohibited |
//! | to many (multicast, broadcast), later fragments, IPv6, garbage | dropped |
//!
//! [`Stack`] is pure: packets, streams and questions in and out, no I/O and no clock of its own. [`run`] is the
//! thin driver around it. Programs are not trusted: everything is bounded ([`limits`]), nothing panics.

pub mod dns;
mod driver;
mod filter;
mod flow;
pub mod limits;
mod names;
mod packet;
mod queue;
mod resolver;
mod stack;
mod stream;

pub use driver::run;
pub use flow::{FlowId, Refusal, Target};
pub use stack::{Event, Query, Stack};

use std::net::Ipv4Addr;

/// Address of the device inside the sandbox: the source of what programs send. All addresses are of the range
/// for benchmarks (RFC 2544), which is routed nowhere.
pub const DEVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Address of the stack: the gateway and the name server.
pub const STACK_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Length of the network's prefix, bits; made-up addresses are in the same network.
pub const PREFIX: u8 = 15;
/// Largest packet on the device, bytes. Bigger ones cost less each byte; four fit into a window.
pub const MTU: u16 = 16_384;
