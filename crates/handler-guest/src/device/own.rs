//! Transparent mode in a container: the guest makes the device itself, then gives up all that let it.
//!
//! The engine starts PID 1 with `CAP_NET_ADMIN` over the container's own network (and `CAP_SETPCAP`, to empty the
//! bounding set; where engines give capabilities to root only, as root with `CAP_SETUID` and `CAP_SETGID`). Nothing
//! else runs yet, and the guest does not listen before all of it is gone and was seen to be gone.
//!
//! The node `/dev/net/tun` stays visible: it cannot be unmounted without more rights than these. It is of no use:
//! making a device needs the capability, and the one that is there belongs to root and is taken.

use super::make;
use crate::launch::lockdown;
use crate::launch::step::{StepError, StepExt};
use crate::sys;
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::os::fd::{AsFd, OwnedFd};

/// Makes the device, becomes this user and group, and keeps no capability. The process must have one thread.
///
/// # Errors
/// When the engine did not give what it needs, or anything of it is left. The process must end then.
pub fn enter(uid: u32, gid: u32) -> Result<OwnedFd, StepError> {
    let device = make()?;
    // Who may not change the network may not attach to it either, even if it were free.
    sys::give_tun_to_root(device.as_fd()).step(|| "transparent mode: the device's owner")?;
    lockdown::drop_capabilities(|| become_user(uid, gid))?;
    set_no_new_privs(true).step(|| "no new privileges")?;
    // PID 1 holds the device: nobody inside may take its files.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step(|| "not dumpable")?;
    let status = std::fs::read_to_string("/proc/self/status").step(|| "read /proc/self/status")?;
    match left(&status, uid, gid) {
        None => Ok(device),
        Some(line) => Err(StepError::new(
            "transparent mode: give up all rights",
            format!("this is left: {line}"),
        )),
    }
}

/// Nothing when it is that user already.
fn become_user(uid: u32, gid: u32) -> Result<(), StepError> {
    let is_user = rustix::process::geteuid().as_raw() == uid;
    if is_user && rustix::process::getegid().as_raw() == gid {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&[]).step(|| "leave all groups")?;
    set_thread_res_gid(group, group, group).step(|| format!("become group {gid}"))?;
    set_thread_res_uid(user, user, user).step(|| format!("become user {uid}"))
}

/// The first line of `/proc/self/status` that is not as it must be, or what is missing in it.
fn left(status: &str, uid: u32, gid: u32) -> Option<String> {
    let ids = |id: u32| vec![id.to_string(); 4];
    let nothing = || vec!["0".repeat(16)];
    let wanted = [
        ("Uid", ids(uid)),
        ("Gid", ids(gid)),
        ("CapInh", nothing()),
        ("CapPrm", nothing()),
        ("CapEff", nothing()),
        ("CapBnd", nothing()),
        ("CapAmb", nothing()),
        ("NoNewPrivs", vec!["1".to_owned()]),
    ];
    wanted.into_iter().find_map(|(name, wanted)| {
        let line = status
            .lines()
            .find(|line| line.split(':').next() == Some(name));
        let Some(line) = line else {
            return Some(format!("{name} is not told"));
        };
        let is_so = line.split_ascii_whitespace().skip(1).eq(wanted);
        (!is_so).then(|| line.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nCapInh:\t0000000000000000\n\
        CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n\
        CapAmb:\t0000000000000000\nNoNewPrivs:\t1\n";

    #[test]
    fn whatever_is_left_is_found() {
        assert_eq!(left(GOOD, 7, 8), None);
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let one = format!("{name}:\t0000000000001000");
            let status = GOOD.replace(&format!("{name}:\t0000000000000000"), &one);
            assert_eq!(left(&status, 7, 8), Some(one));
        }
        let saved = GOOD.replace("Uid:\t7\t7\t7", "Uid:\t7\t7\t0");
        assert_eq!(left(&saved, 7, 8), Some("Uid:\t7\t7\t0\t7".to_owned()));
        assert_eq!(left(GOOD, 7, 9), Some("Gid:\t8\t8\t8\t8".to_owned()));
        let may_gain = GOOD.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0");
        assert_eq!(left(&may_gain, 7, 8), Some("NoNewPrivs:\t0".to_owned()));
        assert_eq!(left("", 7, 8), Some("Uid is not told".to_owned()));
    }
}
