//! The command line over the control API: flags as typed, settings resolved, then one function per command.
//!
//! This crate speaks only the API. What the program itself is (daemon, filter, demo) is handed back to
//! the caller as [`Program`].

pub mod args;
pub mod chat;
pub mod commands;
pub mod context;
mod duration;
pub mod editor;
pub mod exit;
pub mod out;

pub use args::{Cli, Program};
pub use context::Context;
pub use exit::Failure;

use args::{Action, Parsed};

/// Runs a client command; the exit code says how it went (see [`exit`]).
pub async fn run(action: Action, context: &Context) -> u8 {
    match commands::run(action, context).await {
        Ok(code) => code,
        Err(failure) => {
            context.out.failure(&failure);
            failure.code()
        }
    }
}

/// Splits what was typed into a client command or a program to become.
#[must_use]
pub fn split(cli: Cli) -> Parsed {
    cli.command.split()
}
