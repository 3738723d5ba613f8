//! `/dev`: six harmless devices of the host, own terminals, own shared memory, and the usual links.

use super::mounts::{self, Access};
use super::step::{StepError, StepExt};
use super::tree::Tree;
use rustix::mount::MountAttrFlags;
use std::ffi::OsStr;
use std::os::fd::AsFd;

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// Fills `/dev`. The folder itself lies on the root and becomes read-only with it.
pub(super) fn mount(tree: &Tree) -> Result<(), StepError> {
    tree.folder("/dev")?;
    for name in DEVICES {
        let path = format!("/dev/{name}");
        let source = mounts::open_source(&path).step(|| format!("open {path}"))?;
        let place = tree.file_place(&path)?;
        mounts::bind(source.as_fd(), place.as_fd(), Access::Device, &path)?;
    }
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals = mounts::fresh("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], quiet)?;
    mounts::attach(
        terminals.as_fd(),
        tree.folder("/dev/pts")?.as_fd(),
        "/dev/pts",
    )?;
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let shared = mounts::fresh("tmpfs", &[("mode", "1777")], plain)?;
    mounts::attach(shared.as_fd(), tree.folder("/dev/shm")?.as_fd(), "/dev/shm")?;
    for (path, target) in LINKS {
        tree.link(path, OsStr::new(target))?;
    }
    Ok(())
}
