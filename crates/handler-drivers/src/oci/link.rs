//! The guest's socket, taken out of the sandbox's reach, and which process serves it.
//!
//! The guest makes its socket in a folder that the sandbox may write to, so that its name there means nothing: a link
//! put in its place could lead anywhere. Before anything but the guest runs, the socket gets a second name (a hard
//! link) in our own folder, which is what is connected to ever after.

use super::paths::HostPaths;
use crate::native::observe::start_ticks;
use crate::native::process::{Process, ProcessId};
use rustix::fs::{AtFlags, CWD, linkat};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// How long the guest may take from the engine's "started" to its socket; a slow disk loads it first.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks; the socket is there within a few milliseconds.
const LOOK: Duration = Duration::from_millis(2);

/// Waits for the guest's socket, names it anew, and finds the process behind it (none: it is not visible here).
pub(super) async fn take(paths: &HostPaths) -> io::Result<Option<ProcessId>> {
    let inside = paths.guest_dir.join("guest.sock");
    let deadline = Instant::now() + PATIENCE;
    loop {
        match link(&inside, &paths.socket) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if Instant::now() > deadline {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the guest did not start",
                    ));
                }
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(error) => return Err(error),
        }
        match UnixStream::connect(&paths.socket).await {
            Ok(stream) => return Ok(peer(&stream)),
            // Bound, and a moment before it listens.
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && Instant::now() < deadline =>
            {
                tokio::time::sleep(LOOK).await;
                std::fs::remove_file(&paths.socket)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A second name for the very thing that lies there, which must be a socket.
fn link(inside: &Path, ours: &Path) -> io::Result<()> {
    linkat(CWD, inside, CWD, ours, AtFlags::empty())?;
    let data = std::fs::symlink_metadata(ours)?;
    if data.file_type().is_socket() {
        return Ok(());
    }
    std::fs::remove_file(ours)?;
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "what the guest made is no socket",
    ))
}

fn peer(stream: &UnixStream) -> Option<ProcessId> {
    let pid = stream.peer_cred().ok()?.pid()?;
    let process = ProcessId {
        pid,
        start_ticks: start_ticks(pid)?,
    };
    // It may have ended between the two looks, and its number be another's.
    Process::open(process).map(|_| process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(folder: &Path) -> HostPaths {
        let guest_dir = folder.join("g");
        std::fs::create_dir(&guest_dir).expect("folder");
        HostPaths {
            home: folder.join("home"),
            ca_bundle: folder.join("ca"),
            files: folder.join("files"),
            folders: folder.join("folders"),
            guest_dir,
            socket: folder.join("guest.sock"),
        }
    }

    #[tokio::test]
    async fn the_socket_is_reached_under_our_name_whatever_becomes_of_the_other() {
        let temp = tempfile::tempdir().expect("temp");
        let paths = paths(temp.path());
        let inside = paths.guest_dir.join("guest.sock");
        let _listener = tokio::net::UnixListener::bind(&inside).expect("binds");
        let process = take(&paths).await.expect("taken").expect("visible");
        assert_eq!(
            process.pid,
            rustix::process::getpid().as_raw_nonzero().get()
        );
        std::fs::remove_file(&inside).expect("removed");
        std::os::unix::fs::symlink("/proc/nonexistent", &inside).expect("link");
        UnixStream::connect(&paths.socket)
            .await
            .expect("still there");
    }

    #[tokio::test]
    async fn a_link_in_its_place_is_never_followed() {
        let temp = tempfile::tempdir().expect("temp");
        let paths = paths(temp.path());
        let elsewhere = temp.path().join("elsewhere.sock");
        let _listener = tokio::net::UnixListener::bind(&elsewhere).expect("binds");
        std::os::unix::fs::symlink(&elsewhere, paths.guest_dir.join("guest.sock")).expect("link");
        let refused = take(&paths).await.expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert!(!paths.socket.exists());
    }
}
