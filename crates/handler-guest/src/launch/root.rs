//! The file tree of the sandbox: what is put where, in which order, and the change of root.
//!
//! ```text
//! tmpfs on / (over the host's root, which stays what paths are looked up in until the end);
//! with an image: its layers below it, as one overlay, and the tmpfs is what is written over them (`overlay.rs`)
//!   ├─ /proc /dev /sys           fresh or minimal (`proc.rs`, `devices.rs`)
//!   ├─ system, /tmp, home, mounts, egress     by depth of target, so that none hides another
//!   └─ generated files           then read-only, pivot, host's root detached
//! ```
//!
//! Nothing of the host is reachable afterwards but what was put here.

use super::mounts::{self, Access};
use super::step::{StepError, StepExt};
use super::tree::Tree;
use super::{devices, files, overlay, proc, sys};
use handler_types::launch::{CA_BUNDLE, EGRESS_DIR, LaunchOverlay, LaunchPlan};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Nothing on the root but folders, links, mount points and small generated files.
const ROOT_SIZE: &str = "32m";

/// Links that programs rely on; `/var/tmp` is expected to be writable.
const LINKS: [(&str, &str); 3] = [
    ("/var/tmp", "../tmp"),
    ("/var/run", "../run"),
    ("/etc/mtab", "../proc/self/mounts"),
];

/// Where programs look for certificate authorities; an image without any gets the sandbox's.
const CA_PLACE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Mounts on top of the new root, the host's own among them; more than there can be.
const MOST_COVERS: usize = 8;
/// Ours alone.
const OWN_FOLDER: &str = "/run/handler";
/// Expected to be writable; in images it is a folder of its own.
const VAR_TMP: &str = "/var/tmp";

/// One thing to put in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece<'p> {
    /// A host path at the same path, read-only; links as links.
    System(&'p str),
    /// The private `/tmp`.
    Tmp,
    /// An empty folder in memory.
    Writable(&'p str),
    /// Another image, read-only.
    Image(&'p LaunchOverlay),
    /// A host path at any path.
    Bind {
        source: &'p str,
        target: &'p str,
        read_only: bool,
    },
}

impl<'p> Piece<'p> {
    fn target(&self) -> &'p str {
        match self {
            Self::System(path) | Self::Writable(path) => path,
            Self::Tmp => "/tmp",
            Self::Image(overlay) => &overlay.target,
            Self::Bind { target, .. } => target,
        }
    }

    fn depth(&self) -> usize {
        self.target()
            .split('/')
            .filter(|part| !part.is_empty())
            .count()
    }
}

/// Builds the whole tree and makes it the root. The caller is in its own mount namespace.
pub(super) fn build(plan: &LaunchPlan) -> Result<(), StepError> {
    let mut tree = start()?;
    let mut own = None;
    if !plan.layers.is_empty() {
        tree = overlay::root(&tree, &plan.layers)?;
        own = Some(own_folder(&tree)?);
    }
    proc::mount(&tree, plan.uid)?;
    devices::mount(&tree)?;
    for piece in pieces(plan) {
        put(&tree, piece, plan)?;
    }
    for (path, target) in LINKS {
        tree.link(path, OsStr::new(target))?;
    }
    if !plan.layers.is_empty() {
        complete_image(&tree)?;
    }
    files::write_all(&tree, plan)?;
    if let Some(own) = own {
        sys::set_mount_attributes(own.as_fd(), libc::MOUNT_ATTR_RDONLY, false)
            .step(|| format!("{OWN_FOLDER} read-only"))?;
    }
    finish(&tree)
}

/// Nothing that an image has there may pass for what the launcher puts there.
fn own_folder(tree: &Tree) -> Result<OwnedFd, StepError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let own = mounts::fresh(
        "tmpfs",
        &[("size", ROOT_SIZE), ("mode", "0755")],
        attributes,
    )?;
    let place = tree.folder(OWN_FOLDER)?;
    mounts::attach(own.as_fd(), place.as_fd(), OWN_FOLDER)?;
    Ok(own)
}

/// What images lack or have read-only. Where an image has a link in the way, it is left as it is.
fn complete_image(tree: &Tree) -> Result<(), StepError> {
    let _ = tree.link(CA_PLACE, OsStr::new(CA_BUNDLE));
    let is_plain = tree
        .folder(VAR_TMP)
        .and_then(|folder| tree.is_own(folder.as_fd()));
    match is_plain {
        Ok(true) => put_tmpfs(tree, VAR_TMP, "1777", 0),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// Puts an empty tmpfs over the root. Paths are still looked up in the host's root below it.
fn start() -> Result<Tree, StepError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = mounts::fresh(
        "tmpfs",
        &[("size", ROOT_SIZE), ("mode", "0755")],
        attributes,
    )?;
    let place = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the host's root")?;
    mounts::attach(root.as_fd(), place.as_fd(), "the new root")?;
    Ok(Tree::new(root))
}

/// All pieces in the order in which they do not hide one another.
fn pieces(plan: &LaunchPlan) -> Vec<Piece<'_>> {
    let mut pieces: Vec<Piece<'_>> = plan.system.iter().map(|path| Piece::System(path)).collect();
    pieces.push(Piece::Tmp);
    pieces.extend(plan.writable.iter().map(|path| Piece::Writable(path)));
    pieces.extend(plan.overlays.iter().map(Piece::Image));
    pieces.push(Piece::Bind {
        source: &plan.home_source,
        target: &plan.home,
        read_only: false,
    });
    for mount in &plan.mounts {
        pieces.push(Piece::Bind {
            source: &mount.source,
            target: &mount.target,
            read_only: mount.read_only,
        });
    }
    if let Some(folder) = &plan.egress_dir {
        pieces.push(Piece::Bind {
            source: folder,
            target: EGRESS_DIR,
            read_only: true,
        });
    }
    pieces.sort_by_key(Piece::depth);
    pieces
}

fn put(tree: &Tree, piece: Piece<'_>, plan: &LaunchPlan) -> Result<(), StepError> {
    match piece {
        Piece::System(path) => put_system(tree, path),
        Piece::Tmp => put_tmpfs(tree, "/tmp", "1777", plan.tmp_mib),
        Piece::Writable(path) => put_tmpfs(tree, path, "0755", 0),
        Piece::Image(image) => overlay::show(tree, image),
        Piece::Bind {
            source,
            target,
            read_only,
        } => put_bind(tree, source, target, read_only),
    }
}

fn put_tmpfs(tree: &Tree, path: &str, mode: &str, mib: u64) -> Result<(), StepError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let size = format!("{mib}m");
    let mut options = vec![("mode", mode)];
    if mib > 0 {
        options.push(("size", &size));
    }
    let tmp = mounts::fresh("tmpfs", &options, attributes)?;
    mounts::attach(tmp.as_fd(), tree.folder(path)?.as_fd(), path)
}

fn put_bind(tree: &Tree, source: &str, target: &str, read_only: bool) -> Result<(), StepError> {
    let from = mounts::open_source(source).map_err(|error| source_error(source, error))?;
    let stat = rustix::fs::fstat(&from).step(|| format!("mount {source}"))?;
    let to = place(tree, target, FileType::from_raw_mode(stat.st_mode))?;
    let access = if read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    mounts::bind(from.as_fd(), to.as_fd(), access, target)
}

fn source_error(source: &str, error: Errno) -> StepError {
    let message = match error {
        Errno::NOENT => "it does not exist".to_owned(),
        Errno::LOOP => "there is a symbolic link in the path; give the real path".to_owned(),
        Errno::ACCESS => "it lies in a folder that the daemon's user may not enter".to_owned(),
        other => std::io::Error::from(other).to_string(),
    };
    StepError {
        step: format!("mount {source}"),
        message,
        errno: Some(error.raw_os_error()),
    }
}

fn place(tree: &Tree, target: &str, kind: FileType) -> Result<OwnedFd, StepError> {
    if kind == FileType::Directory {
        tree.folder(target)
    } else {
        tree.file_place(target)
    }
}

/// A host path at the same path: skipped when missing, copied when a link, else mounted read-only.
fn put_system(tree: &Tree, path: &str) -> Result<(), StepError> {
    let step = || format!("mount {path}");
    let stat = match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        Err(error) => return Err(error).step(step),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let target = rustix::fs::readlink(path, Vec::new()).step(step)?;
            tree.link(path, OsStr::from_bytes(target.as_bytes()))
        }
        kind @ (FileType::Directory | FileType::RegularFile) => {
            let from = match mounts::open_source(path) {
                Ok(from) => from,
                // A link above it: its folder was copied as that link, or it is not ours to show.
                Err(Errno::LOOP | Errno::NOENT | Errno::ACCESS) => return Ok(()),
                Err(error) => return Err(error).step(step),
            };
            mounts::bind(
                from.as_fd(),
                place(tree, path, kind)?.as_fd(),
                Access::ReadOnly,
                path,
            )
        }
        _ => Ok(()),
    }
}

/// Makes the tree read-only, the root, and all there is.
fn finish(tree: &Tree) -> Result<(), StepError> {
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::set_mount_attributes(tree.root(), attributes, false).step(|| "root read-only")?;
    rustix::process::fchdir(tree.root()).step(|| "enter the new root")?;
    rustix::process::pivot_root(".", ".").step(|| "change the root")?;
    uncover(tree)?;
    rustix::process::chdir("/").step(|| "enter the new root")
}

/// Takes away all that lies on the new root: the host's root, and on that, with an image, the tmpfs that held
/// the overlay. An unmount takes only the topmost, and whatever stayed would be the `..` of every place inside
/// that lies directly below the root. So it is looked at, not counted.
fn uncover(tree: &Tree) -> Result<(), StepError> {
    let ours = rustix::fs::fstat(tree.root()).step(|| "look at the new root")?;
    for _ in 0..MOST_COVERS {
        // At the root `..` is the root again, and then whatever is mounted on it.
        let top = rustix::fs::stat("..").step(|| "look at what lies on the new root")?;
        if (top.st_dev, top.st_ino) == (ours.st_dev, ours.st_ino) {
            return Ok(());
        }
        unmount(".", UnmountFlags::DETACH).step(|| "detach the host's root")?;
    }
    let message = "something stays mounted on the new root";
    Err(StepError::new("detach the host's root", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::launch::LaunchMount;

    fn mount(target: &str) -> LaunchMount {
        LaunchMount {
            source: target.to_owned(),
            target: target.to_owned(),
            read_only: false,
        }
    }

    #[test]
    fn a_deeper_target_comes_after_the_one_it_lies_in() {
        let plan = LaunchPlan {
            system: vec!["/usr".into(), "/etc/ssl/certs".into()],
            home: "/home/agent".into(),
            mounts: vec![
                mount("/tmp/a/b"),
                mount("/home"),
                mount("/usr/src/x"),
                mount("/opt"),
            ],
            egress_dir: Some("/x".into()),
            ..LaunchPlan::default()
        };
        let order: Vec<&str> = pieces(&plan).iter().map(Piece::target).collect();
        assert_eq!(
            order,
            [
                "/usr",
                "/tmp",
                "/home",
                "/opt",
                "/home/agent",
                "/etc/ssl/certs",
                "/tmp/a/b",
                "/usr/src/x",
                EGRESS_DIR
            ]
        );
    }
}
