//! An SSH server of one sandbox over any byte stream, without an sshd inside.
//!
//! The stream is authenticated before it comes here (by the API's token), so that the SSH login itself asks for
//! nothing: `none` and any public key are accepted, passwords are not. What the client asks for is done through the
//! guest: commands and shells with their exit codes and signals, `sftp` (with it `scp`), and connections to ports
//! inside. Agent, X11 and reverse forwarding are refused: nothing inside can reach back through the client.
//!
//! Invariant: memory is bounded whatever client and sandbox do; see [`input`] for how a client is slowed down.

mod carry;
mod command;
mod input;
mod key;
mod run;
mod server;
mod sftp;
mod signals;

pub use key::{HostKey, HostKeyError};
pub use server::{ServeError, serve};

use futures::future::BoxFuture;
use handler_engine::GuestHandle;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to a port inside.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Connects to a port inside.
pub type Dial = Arc<dyn Fn(u16) -> BoxFuture<'static, io::Result<Box<dyn Io>>> + Send + Sync>;

/// The sandbox that is served.
#[derive(Clone)]
pub struct Target {
    /// Its guest.
    pub guest: GuestHandle,
    /// Where commands start and relative paths of files lead from, absolute.
    pub workdir: String,
    /// What `~` means in paths of files, absolute.
    pub home: String,
    /// How ports inside are reached.
    pub dial: Dial,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("workdir", &self.workdir)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}
