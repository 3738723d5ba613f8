//! One connection of a program, from its first packet to its last.

use smoltcp::iface::SocketHandle;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Names a connection for the life of a stack; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId(pub(crate) u64);

/// Where a program wants to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A name it asked for, lower case.
    Name(String, u16),
    /// An address it knew.
    Address(Ipv4Addr, u16),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name, port) => write!(f, "{name}:{port}"),
            Self::Address(address, port) => write!(f, "{address}:{port}"),
        }
    }
}

/// How a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// As by a host without such a service: "connection refused".
    Refused,
    /// As when no way leads there: "no route to host".
    Unreachable,
}

/// The two ends of a connection as the program's kernel sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) program: SocketAddrV4,
    pub(crate) far: SocketAddrV4,
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The filter is being asked; the first packet waits.
    Asked { first: Vec<u8> },
    /// It has a socket.
    Open(SocketHandle),
}

/// What the stack keeps of a connection.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) ends: Ends,
    pub(crate) phase: Phase,
    /// Whether a stream is held; without one it only ends in good order.
    pub(crate) held: bool,
}
