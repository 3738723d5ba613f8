//! The door through which child processes start: own process group, no inherited input, killed with the handle.

use std::ffi::OsStr;
use std::process::Stdio;

/// A command that cannot read our terminal and dies when its handle is dropped.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(program);
    command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .process_group(0);
    command
}
