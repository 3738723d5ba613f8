//! Starting the filter's process: nothing of ours but its arguments and environment goes in, its output goes
//! to a file, and it does not end with us. It makes a session of its own as its first act.

use super::{EgressLinkConfig, EgressLinkError};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// A log longer than this is put aside when the filter starts.
const LONGEST_LOG: u64 = 4 * 1024 * 1024;

/// Starts it. The child is not killed when the handle is dropped.
pub(super) fn spawn(config: &EgressLinkConfig) -> Result<Child, EgressLinkError> {
    let (program, arguments) = config.command.split_first().ok_or_else(|| {
        EgressLinkError::Spawn(io::Error::new(
            io::ErrorKind::InvalidInput,
            "there is no command",
        ))
    })?;
    let log = open_log(&config.log).map_err(EgressLinkError::Spawn)?;
    let errors = log.try_clone().map_err(EgressLinkError::Spawn)?;
    Command::new(program)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(EgressLinkError::Spawn)
}

fn open_log(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|data| data.len() > LONGEST_LOG) {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".1");
        std::fs::rename(path, aside)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}
