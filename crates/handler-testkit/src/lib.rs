//! Worlds and fakes for tests: a real daemon in a scratch home, and origin servers to be reached.
//!
//! A [`World`] owns everything that its daemon makes: when it is dropped, the daemon, the filter and every
//! sandbox of it are gone, whatever the test did.

mod census;
mod dockerd;
pub mod inside;
pub mod origin;
mod scratch;
mod skip;
mod sweep;
pub mod viewer;
mod wait;
pub mod web;
mod world;

pub use census::{Leftover, Member};
pub use dockerd::Dockerd;
pub use origin::{HttpOrigin, OriginRequest, TcpOrigin};
pub use scratch::Scratch;
pub use skip::skip;
pub use wait::eventually;
pub use world::{Tty, User, World, WorldBuilder};
