//! The end of a world: its processes are killed by their identity, then mounts and cgroups go.

use crate::census::{Census, Member, live_since};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::{Duration, Instant};

/// How long the kernel may take to end what was killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills and removes everything the census finds; what resists stays.
pub(crate) fn sweep(census: &mut Census) {
    let end = Instant::now() + PATIENCE;
    loop {
        let members = census.members();
        if members.is_empty() || Instant::now() >= end {
            break;
        }
        for member in &members {
            kill(member);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for mount in census.mounts() {
        rustix::mount::unmount(&mount, UnmountFlags::DETACH).ok();
    }
    for cgroup in census.cgroups() {
        std::fs::remove_dir(&cgroup).ok();
    }
}

/// Kills the very process that was counted, never a later one with its number.
fn kill(member: &Member) {
    let Some(pid) = Pid::from_raw(member.pid) else {
        return;
    };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let stat = std::fs::read(format!("/proc/{}/stat", member.pid)).unwrap_or_default();
    if live_since(&stat) == Some(member.start_ticks) {
        pidfd_send_signal(&handle, Signal::KILL).ok();
    }
}
