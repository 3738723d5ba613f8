//! The host side of the guest protocol. The guest stands on the untrusted side of the wall: every byte it
//! says is bounded, timed and checked; nonsense closes the link, it never panics and never grows memory.
//!
//! [`GuestHandle`] is the door. Behind it a supervisor keeps one [`connection`] alive and makes it anew
//! when the socket drops while the instance lives; output and input go on from the last offset.

mod calls;
mod connection;
mod error;
mod files;
mod handle;
mod happenings;
mod input;
mod outbox;
mod output;
mod paths;
mod pending;
mod ports;
mod reader;
mod slots;
mod supervisor;
mod system;
mod watch;

pub use error::{GuestCallError, LinkError};
pub use files::{FileMeta, FileStream, WriteOptions, Written};
pub use handle::{GuestHandle, GuestTiming};
pub use happenings::ProcessHappening;
pub use output::{ProcessStream, StreamItem};
pub use ports::PortStream;
pub use watch::Watch;
