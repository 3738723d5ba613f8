//! The program inside every sandbox: commands, files, terminals, statistics.
//!
//! [`serve`] is the guest itself, PID 1 of its sandbox; `launch` makes native sandboxes around it. It
//! stands on the untrusted side of the wall: it has the rights of what runs in the sandbox and holds
//! no secret.

mod config;
mod conn;
pub mod device;
mod failure;
mod files;
mod forward;
mod guest;
pub mod launch;
mod process;
mod procfs;
mod reaper;
pub mod serve_args;
mod server;
mod sys;
mod system;
mod watch;

pub use config::GuestConfig;
pub(crate) use failure::fail;
pub use server::serve;
