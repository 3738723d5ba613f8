//! What must lie on the host before a container starts: folders, generated files, ids.

use super::beneath::Beneath;
use super::identity::Identity;
use super::paths::HostPaths;
use super::plan::{Built, GeneratedFile, Seed};
use crate::native::ca;
use handler_base::fs::create_private_dir;
use handler_engine::driver::{DriverError, InstancePlan};
use handler_engine::remove_folder as remove_tree;
use rustix::fs::{Gid, Uid};
use std::io;
use std::path::Path;

/// Makes everything. Blocking.
pub(super) fn prepare(
    plan: &InstancePlan,
    paths: &HostPaths,
    built: &Built,
    extra_ca: Option<&Path>,
) -> Result<(), DriverError> {
    let identity = built.container.identity;
    let make = || -> io::Result<()> {
        own_folders(plan, paths, identity)?;
        ca::write(&paths.ca_bundle, extra_ca, plan.ca_pem.as_deref())?;
        for (number, file) in built.files.iter().enumerate() {
            generated(paths, number, file, identity)?;
        }
        Ok(())
    };
    make().map_err(|error| disk_error("prepare folders", &error))?;
    for seed in &built.seeds {
        plant(seed, identity)?;
    }
    Ok(())
}

fn owner(identity: Identity) -> Option<Identity> {
    identity.is_foreign().then_some(identity)
}

/// The home stays; everything else is made anew.
fn own_folders(plan: &InstancePlan, paths: &HostPaths, identity: Identity) -> io::Result<()> {
    for folder in [&paths.files, &paths.folders, &paths.guest_dir] {
        remove_tree(folder)?;
        create_private_dir(folder)?;
    }
    match std::fs::remove_file(&paths.socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create_private_dir(&paths.home)?;
    let owner = owner(identity);
    for folder in [&paths.home, &paths.guest_dir] {
        Beneath::open(folder, owner)?.own_root(0o700)?;
    }
    let Some(egress) = &plan.egress_dir else {
        return Ok(());
    };
    let Some(owner) = owner else { return Ok(()) };
    // The filter gives the sockets it makes to the owner of their folder; the first one is there already.
    Beneath::open(egress, Some(owner))?.own_root(0o700)?;
    give(&egress.join("proxy.sock"), owner)
}

fn give(path: &Path, to: Identity) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(to.uid)), Some(Gid::from_raw(to.gid)));
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::chownat(rustix::fs::CWD, path, uid, gid, flags) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes one file that is mounted from outside.
fn generated(
    paths: &HostPaths,
    number: usize,
    file: &GeneratedFile,
    identity: Identity,
) -> io::Result<()> {
    let beneath = Beneath::open(&paths.files, owner(identity))?;
    let name = number.to_string();
    beneath
        .write(Path::new(&name), file.content.as_bytes(), file.mode)
        .map(drop)
}

fn plant(seed: &Seed, identity: Identity) -> Result<(), DriverError> {
    let owner = owner(identity);
    let (result, below, is_place) = match seed {
        Seed::Folder { root } => {
            let made =
                create_private_dir(root).and_then(|()| Beneath::open(root, owner)?.own_root(0o700));
            return made.map_err(|error| disk_error("prepare a writable folder", &error));
        }
        Seed::FolderPlace { root, below } => {
            let made = Beneath::open(root, owner).and_then(|at| at.folder(below).map(drop));
            (made, below, true)
        }
        Seed::FilePlace { root, below } => (
            Beneath::open(root, owner).and_then(|at| at.file_place(below)),
            below,
            true,
        ),
        Seed::File {
            root,
            below,
            content,
            mode,
        } => {
            let written = Beneath::open(root, owner)
                .and_then(|at| at.write(below, content.as_bytes(), *mode).map(drop));
            (written, below, false)
        }
    };
    match result {
        Ok(()) => Ok(()),
        // Something inside put a link or a file in the way; the engine decides what the mount does about it, within
        // the sandbox's own root.
        Err(error) if is_place && is_in_the_way(&error) => Ok(()),
        Err(error) if is_in_the_way(&error) => Err(DriverError::Invalid(format!(
            "the file {} cannot be made: a link or a file is in the way ({error})",
            below.display()
        ))),
        Err(error) => Err(disk_error("prepare a place inside", &error)),
    }
}

fn is_in_the_way(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR))
}

/// A failure of the disk in the engine room's words.
pub(super) fn disk_error(step: &str, error: &io::Error) -> DriverError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            DriverError::NoSpace(format!("{step}: {error}"))
        }
        _ => DriverError::Failed {
            step: step.to_owned(),
            message: error.to_string(),
        },
    }
}
