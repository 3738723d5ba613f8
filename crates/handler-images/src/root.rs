//! What a driver needs to make an image the root of a sandbox.

use crate::folders::Folders;
use crate::record::Record;
use handler_types::image::ImageConfig;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Shells, the best one first, as they are found in images.
const SHELLS: [&str; 6] = [
    "/bin/bash",
    "/usr/bin/bash",
    "/usr/local/bin/bash",
    "/bin/sh",
    "/usr/bin/sh",
    "/bin/ash",
];
/// Longest file that is read from an image, bytes.
const MAX_FILE: u64 = 256 * 1024;

/// An image as a root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRoot {
    /// Folders of its layers for overlayfs, the uppermost first; at least two (the last one may be empty).
    pub layers: Vec<PathBuf>,
    /// Its configuration.
    pub config: ImageConfig,
    /// A shell that is in it; `/bin/sh` when none was found.
    pub shell: String,
    /// Its `/etc/passwd`, empty when it has none.
    pub passwd: String,
    /// Its `/etc/group`.
    pub group: String,
}

impl ImageRoot {
    pub(crate) fn of(folders: &Folders, record: &Record) -> Self {
        let uppermost_first = record.layers.iter().rev();
        let mut layers: Vec<PathBuf> = uppermost_first
            .map(|layer| folders.layer(&layer.digest))
            .collect();
        let shell = SHELLS
            .into_iter()
            .find(|shell| layers.iter().any(|layer| has(layer, shell)));
        let passwd = first_file(&layers, "etc/passwd");
        let group = first_file(&layers, "etc/group");
        if layers.len() == 1 {
            layers.push(folders.empty());
        }
        Self {
            layers,
            config: record.config.clone(),
            shell: shell.unwrap_or("/bin/sh").to_owned(),
            passwd,
            group,
        }
    }
}

/// Whether a layer has a file or link at this path; links on the way are followed inside only.
fn has(layer: &Path, path: &str) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(file) = open(layer, path, flags) else {
        return false;
    };
    let kind = rustix::fs::fstat(file).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::RegularFile | FileType::Symlink))
}

/// The uppermost plain file of this name, as text.
fn first_file(layers: &[PathBuf], path: &str) -> String {
    layers
        .iter()
        .find_map(|layer| read(layer, path))
        .unwrap_or_default()
}

fn read(layer: &Path, path: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = open(layer, path, flags).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(MAX_FILE)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn open(layer: &Path, path: &str, flags: OFlags) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let folder = rustix::fs::openat(
        CWD,
        layer,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(folder, path, flags, Mode::empty(), inside)
}
