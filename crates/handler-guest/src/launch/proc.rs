//! `/proc` of the sandbox's own processes, and the few files of `/sys` that programs read.
//!
//! With uid 0 mapped, the kernel still sees root where a file of `/proc` is guarded by its owner only
//! (all of `/proc/sys`, for one). So whatever is not about processes and could be changed is read-only,
//! and what would tell about the host's kernel is covered.

use super::mounts::{self, Access};
use super::step::{StepError, StepExt};
use super::tree::Tree;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Shown, but not to be written.
const READ_ONLY: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];
/// Covered by an empty folder or `/dev/null`.
const COVERED: [&str; 12] = [
    "acpi",
    "asound",
    "dynamic_debug",
    "kcore",
    "keys",
    "key-users",
    "latency_stats",
    "mtrr",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
];
/// Readable by root only, by mode and nothing else: covered when root is mapped.
const COVERED_FROM_ROOT: [&str; 8] = [
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "pagetypeinfo",
    "slabinfo",
    "vmallocinfo",
    "iomem",
    "ioports",
];
/// Of `/sys`: how many processors there are, and how they are arranged.
const SYS_CPUS: &str = "/sys/devices/system/cpu";

/// Mounts `/proc` and the part of `/sys`.
pub(super) fn mount(tree: &Tree, uid: u32) -> Result<(), StepError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = mounts::fresh("proc", &[], attributes)?;
    mounts::attach(proc.as_fd(), tree.folder("/proc")?.as_fd(), "/proc")?;
    for name in READ_ONLY {
        if let Some(entry) = entry(proc.as_fd(), name)? {
            mounts::bind(
                entry.as_fd(),
                entry.as_fd(),
                Access::ReadOnly,
                &format!("/proc/{name}"),
            )?;
        }
    }
    let empty = tree.folder("/run/handler/empty")?;
    let null = mounts::open_source("/dev/null").step(|| "open /dev/null")?;
    let from_root: &[&str] = if uid == 0 { &COVERED_FROM_ROOT } else { &[] };
    for name in COVERED.iter().chain(from_root) {
        cover(proc.as_fd(), name, empty.as_fd(), null.as_fd())?;
    }
    mount_cpus(tree)
}

fn entry(proc: BorrowedFd<'_>, name: &str) -> Result<Option<OwnedFd>, StepError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(proc, name, flags, Mode::empty()) {
        Ok(entry) => Ok(Some(entry)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error).step(|| format!("open /proc/{name}")),
    }
}

fn cover(
    proc: BorrowedFd<'_>,
    name: &str,
    empty: BorrowedFd<'_>,
    null: BorrowedFd<'_>,
) -> Result<(), StepError> {
    let Some(place) = entry(proc, name)? else {
        return Ok(());
    };
    let path = format!("/proc/{name}");
    let stat = rustix::fs::fstat(&place).step(|| format!("stat {path}"))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        mounts::bind(empty, place.as_fd(), Access::ReadOnly, &path)
    } else {
        mounts::bind(null, place.as_fd(), Access::Device, &path)
    }
}

fn mount_cpus(tree: &Tree) -> Result<(), StepError> {
    let place = tree.folder(SYS_CPUS)?;
    match rustix::fs::statat(rustix::fs::CWD, SYS_CPUS, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => {}
        // A host without it shows programs an empty folder; they then count processors otherwise.
        Err(_) => return Ok(()),
    }
    let source = mounts::open_source(SYS_CPUS).step(|| format!("open {SYS_CPUS}"))?;
    mounts::bind(source.as_fd(), place.as_fd(), Access::ReadOnly, SYS_CPUS)
}
