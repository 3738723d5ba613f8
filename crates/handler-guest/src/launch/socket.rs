//! What the launcher prepares outside: the guest's socket, the log, membership in cgroups.

use super::step::{StepError, StepExt};
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;

/// Binds the guest's socket (0600); the rest of an earlier start is replaced.
pub(super) fn listen(path: &str) -> Result<UnixListener, StepError> {
    let step = || format!("listen on {path}");
    if let Ok(stat) = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(StepError::new(
                step(),
                "something that is no socket is there",
            ));
        }
        rustix::fs::unlink(path).step(step)?;
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path).step(step);
    rustix::process::umask(before);
    listener
}

/// Takes the socket away again after a failed launch.
pub(super) fn forget(path: &str) {
    let _ = rustix::fs::unlink(path);
}

/// Opens the log for appending (0600).
pub(super) fn open_log(path: &str) -> Result<File, StepError> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .step(|| format!("open the log {path}"))
}

/// Joins cgroups, so that everything that comes is born in them.
///
/// Moving a process by `cgroup.procs` waits for every processor to pass a quiet point, ten milliseconds on
/// an idle machine. Version 1 also takes a single thread that moves itself (`0` into `tasks`), which waits
/// for nothing; the launcher has one thread, so that is the whole process.
pub(super) fn join_cgroups(folders: &[String]) -> Result<(), StepError> {
    for folder in folders {
        let step = || format!("join cgroup {folder}");
        let open = |name: &str| {
            OpenOptions::new()
                .write(true)
                .open(format!("{folder}/{name}"))
        };
        let mut file = open("tasks").or_else(|_| open("cgroup.procs")).step(step)?;
        file.write_all(b"0").step(step)?;
    }
    Ok(())
}
