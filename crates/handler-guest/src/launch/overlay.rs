//! Image roots: the unpacked layers of an image as one file system, by overlayfs in the user namespace.
//!
//! The layers are never written: they are shared by all sandboxes of the image. What the launcher puts
//! over them (places to mount on, generated files) lies in the tmpfs that would have been the root; the
//! overlay is made read-only before anybody inside runs. Paths are given by descriptor, since the options
//! of a mount are one page, too little for many long paths.

use super::mounts;
use super::step::{StepError, StepExt};
use super::tree::Tree;
use handler_types::launch::LaunchOverlay;
use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What the step is called; the driver knows by it that the host cannot do image roots.
const STEP: &str = "image root";

/// Puts the layers under what `base`, the empty tmpfs on `/`, holds from now on; answers the new root.
pub(super) fn root(base: &Tree, layers: &[String]) -> Result<Tree, StepError> {
    let upper = base.folder("/upper")?;
    let work = base.folder("/work")?;
    let place = base.folder("/root")?;
    let lower = open_layers(layers)?;
    let over = Some((upper.as_fd(), work.as_fd()));
    put(place.as_fd(), &lower, over, STEP)?;
    // Looked up anew, this time through the mount.
    Ok(Tree::new(base.folder("/root")?))
}

/// Shows an image at a path inside, read-only.
pub(super) fn show(tree: &Tree, image: &LaunchOverlay) -> Result<(), StepError> {
    let lower = open_layers(&image.layers)?;
    let place = tree.folder(&image.target)?;
    let step = format!("{STEP} at {}", image.target);
    put(place.as_fd(), &lower, None, &step)
}

/// Tries it with empty folders of a tmpfs.
pub(super) fn rehearse(base: &Tree) -> Result<(), StepError> {
    let lower = [base.folder("/one")?, base.folder("/two")?];
    let (upper, work) = (base.folder("/upper")?, base.folder("/work")?);
    let over = Some((upper.as_fd(), work.as_fd()));
    put(base.folder("/root")?.as_fd(), &lower, over, STEP)
}

fn open_layers(layers: &[String]) -> Result<Vec<OwnedFd>, StepError> {
    let open = |path: &String| mounts::open_source(path).step(|| format!("open layer {path}"));
    layers.iter().map(open).collect()
}

fn put(
    place: BorrowedFd<'_>,
    lower: &[OwnedFd],
    over: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>,
    step: &str,
) -> Result<(), StepError> {
    let mut options = String::from("userxattr,lowerdir=");
    for (number, layer) in lower.iter().enumerate() {
        let separator = if number == 0 { "" } else { ":" };
        let _ = write!(options, "{separator}{}", by_descriptor(layer.as_fd()));
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    match over {
        Some((upper, work)) => {
            let (upper, work) = (by_descriptor(upper), by_descriptor(work));
            let _ = write!(options, ",upperdir={upper},workdir={work}");
        }
        None => flags |= MountFlags::RDONLY,
    }
    let options =
        CString::new(options).map_err(|_| StepError::new(step, "a zero byte in the options"))?;
    let place = by_descriptor(place);
    mount(
        "overlay",
        place.as_str(),
        "overlay",
        flags,
        options.as_c_str(),
    )
    .step(|| step)
}

/// A short path of whatever is open, without any name in it that could mean something to the mount's options.
fn by_descriptor(open: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}
