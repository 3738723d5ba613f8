//! The namespaces: entered by the launcher, filled in by PID 1.
//!
//! One uid and one gid are mapped onto themselves, with the same code for root and for anybody else.

use super::step::{StepError, StepExt};
use super::sys;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::UnshareFlags;
use std::os::fd::AsFd;

/// Enters all namespaces but the mount one (PID 1 makes its own, so that the launcher's root stays).
pub(super) fn enter(uid: u32, gid: u32) -> Result<(), StepError> {
    forget_groups()?;
    sys::unshare(UnshareFlags::NEWUSER).step(|| "user namespace")?;
    map_ids(uid, gid)?;
    sys::unshare(
        UnshareFlags::NEWPID | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS,
    )
    .step(|| "pid, net, ipc and uts namespaces")?;
    // Some kernels are built without it; nothing of the host's cgroups is mounted inside anyway.
    let _ = sys::unshare(UnshareFlags::NEWCGROUP);
    Ok(())
}

/// The mount namespace of PID 1.
pub(super) fn enter_mounts() -> Result<(), StepError> {
    sys::unshare(UnshareFlags::NEWNS).step(|| "mount namespace")
}

/// Host name and loopback.
pub(super) fn furnish(hostname: &str) -> Result<(), StepError> {
    rustix::system::sethostname(hostname.as_bytes()).step(|| "host name")?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
        .step(|| "loopback socket")?;
    sys::loopback_up(socket.as_fd()).step(|| "loopback up")
}

/// Drops supplementary groups where the caller may (root); anybody else keeps them, unmapped.
fn forget_groups() -> Result<(), StepError> {
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error).step(|| "drop supplementary groups"),
    }
}

fn map_ids(uid: u32, gid: u32) -> Result<(), StepError> {
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", &format!("{gid} {gid} 1"))
}

fn write(path: &str, text: &str) -> Result<(), StepError> {
    std::fs::write(path, text).step(|| format!("user namespace ({path})"))
}
