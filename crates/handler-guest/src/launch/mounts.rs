//! Mounts: copies of host trees and fresh file systems, put on places of the new root.
//!
//! A source is opened without following any link and cloned from that descriptor, so that nobody can
//! swap it between check and use. Its attributes are set before it is attached; it is never seen
//! writable when it should not be.

use super::step::{StepError, StepExt};
use super::sys;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a mount may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Reading and running; no device, no setuid.
    ReadOnly,
    /// Writing too.
    ReadWrite,
    /// One device file, usable as such.
    Device,
}

impl Access {
    fn attributes(self) -> u64 {
        let plain = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        match self {
            Self::ReadOnly => plain | libc::MOUNT_ATTR_RDONLY,
            Self::ReadWrite => plain,
            // Writing to the device still works; changing the host's device file does not.
            Self::Device => {
                libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC | libc::MOUNT_ATTR_RDONLY
            }
        }
    }
}

/// Opens a host path as a place, refusing links anywhere in it.
pub(super) fn open_source(path: &str) -> rustix::io::Result<OwnedFd> {
    // Not `NOFOLLOW`: with `PATH` that would open a link itself instead of refusing it.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)
}

/// Copies the tree at `source` (with what is mounted below it) and puts it on `target`.
pub(super) fn bind(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    access: Access,
    name: &str,
) -> Result<(), StepError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(source, c"", flags).step(|| format!("mount {name}"))?;
    sys::set_mount_attributes(tree.as_fd(), access.attributes(), true)
        .step(|| format!("mount {name} (attributes)"))?;
    attach(tree.as_fd(), target, name)
}

/// Makes a file system with these options, not yet attached.
pub(super) fn fresh(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, StepError> {
    let step = || format!("mount a new {kind}");
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).step(step)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value).step(step)?;
    }
    fsconfig_create(&context).step(step)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(step)
}

/// Puts a mount on a place.
pub(super) fn attach(
    mount: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    name: &str,
) -> Result<(), StepError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", target, c"", flags).step(|| format!("mount {name} (attach)"))
}
