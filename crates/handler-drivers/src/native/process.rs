//! Processes by identity: pid and start time, held by pidfd so that a used-again pid is never hit.
#![expect(
    unsafe_code,
    reason = "registering a descriptor with the reactor; see the one block"
)]

use super::observe;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Which process, for as long as the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessId {
    /// The pid outside.
    pub(crate) pid: i32,
    /// Start time in clock ticks since boot.
    pub(crate) start_ticks: u64,
}

/// A process held by descriptor.
#[derive(Debug)]
pub(crate) struct Process {
    pidfd: OwnedFd,
}

impl Process {
    /// Takes hold of the process; `None` when it is not there any more.
    pub(crate) fn open(id: ProcessId) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(id.pid)?, PidfdFlags::NONBLOCK).ok()?;
        // Read after opening: a process that was replaced before has another start time.
        let ticks = observe::start_ticks(id.pid)?;
        (ticks == id.start_ticks).then_some(Self { pidfd })
    }

    /// Whether it has ended (a zombie has).
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Kills it; of a PID 1, its whole namespace.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for its end and takes its exit status away if it is our child.
    pub(crate) async fn ended(self) {
        match watch(self.pidfd) {
            Ok(pidfd) => {
                let _ = pidfd.readable().await;
                reap(pidfd.get_ref());
            }
            Err(pidfd) => {
                let process = Self { pidfd };
                while !process.has_ended() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                reap(&process.pidfd);
            }
        }
    }
}

/// Registers a pidfd with the reactor; gives it back when that does not work.
fn watch(pidfd: OwnedFd) -> Result<AsyncFd<OwnedFd>, OwnedFd> {
    // SAFETY: an `OwnedFd` always gives the same descriptor and keeps it open for as long as it lives.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }
        .map_err(|error| error.into_parts().0)
}

/// Takes the exit status of an ended child, so that no zombie stays. Nothing for what is no child of ours.
fn reap(pidfd: &OwnedFd) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let _ = waitid(WaitId::PidFd(pidfd.as_fd()), options);
}

/// Takes away ended PID 1s whose launcher died before it could tell us about them.
pub(crate) fn reap_strays() {
    for pid in observe::ended_inits(rustix::process::getpid().as_raw_nonzero().get()) {
        let Some(pid) = Pid::from_raw(pid) else {
            continue;
        };
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}
