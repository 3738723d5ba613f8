//! Generated files: written on the new root, or put over a mount.
//!
//! | where | read-only | writable |
//! |---|---|---|
//! | the root itself | written there (instead of an image's file); the root becomes read-only | a copy kept aside, mounted on the place |
//! | a mount (home, /tmp, project) | a copy kept aside, mounted on the place | written there unless something is there |
//!
//! A writable file that exists is left as it is: it was seeded at an earlier start and may have been changed since.

use super::mounts::{self, Access};
use super::step::{StepError, StepExt};
use super::tree::Tree;
use handler_types::launch::{LaunchFile, LaunchPlan};
use std::os::fd::AsFd;

/// Where copies are kept that are mounted elsewhere.
const ASIDE: &str = "/run/handler/files";

/// Writes all files of the plan.
pub(super) fn write_all(tree: &Tree, plan: &LaunchPlan) -> Result<(), StepError> {
    for (number, file) in plan.files.iter().enumerate() {
        write(tree, number, file, !plan.layers.is_empty())?;
    }
    Ok(())
}

fn write(tree: &Tree, number: usize, file: &LaunchFile, replace: bool) -> Result<(), StepError> {
    let (parent, _) = tree.parent(&file.target)?;
    let on_root = tree.is_own(parent.as_fd())?;
    match (on_root, file.writable) {
        (true, false) => {
            if replace {
                tree.clear(&file.target)?;
            }
            if tree.write(&file.target, file.content.as_bytes(), file.mode)? {
                return Ok(());
            }
            mount_copy(tree, number, file)
        }
        (false, true) => tree
            .write(&file.target, file.content.as_bytes(), file.mode)
            .map(|_written| ()),
        (true, true) | (false, false) => mount_copy(tree, number, file),
    }
}

fn mount_copy(tree: &Tree, number: usize, file: &LaunchFile) -> Result<(), StepError> {
    let aside = format!("{ASIDE}/{number}");
    tree.write(&aside, file.content.as_bytes(), file.mode)?;
    let copy = tree.file_place(&aside)?;
    let place = tree.file_place(&file.target)?;
    let access = if file.writable {
        Access::ReadWrite
    } else {
        Access::ReadOnly
    };
    let same = same_file(copy.as_fd(), place.as_fd())?;
    if same {
        Ok(())
    } else {
        mounts::bind(copy.as_fd(), place.as_fd(), access, &file.target)
    }
}

fn same_file(
    one: std::os::fd::BorrowedFd<'_>,
    other: std::os::fd::BorrowedFd<'_>,
) -> Result<bool, StepError> {
    let one = rustix::fs::fstat(one).step(|| "stat a generated file")?;
    let other = rustix::fs::fstat(other).step(|| "stat a generated file")?;
    Ok(one.st_dev == other.st_dev && one.st_ino == other.st_ino)
}
