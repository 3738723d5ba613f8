//! Describing paths.

use super::path;
use crate::failure::from_errno;
use handler_types::guest::{FileEntry, FileKind, GuestError};
use rustix::fs::{AtFlags, CWD, FileType, Stat, readlinkat, statat};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

/// Describes one path; a link itself, not what it points to.
pub(crate) fn stat(text: &str) -> Result<FileEntry, GuestError> {
    let full = path::decode_absolute(text)?;
    describe(CWD, &full, &full).map_err(|errno| from_errno(text, errno))
}

/// Describes `name` in `folder`, which is known to the host as `full`.
pub(crate) fn describe(
    folder: impl AsFd,
    name: &[u8],
    full: &[u8],
) -> rustix::io::Result<FileEntry> {
    let folder = folder.as_fd();
    let name = OsStr::from_bytes(name);
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    };
    let target = match kind {
        FileKind::Link => readlinkat(folder, name, Vec::new())
            .ok()
            .map(|target| path::encode(target.as_bytes())),
        _ => None,
    };
    Ok(FileEntry {
        path: path::encode(full),
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_ms: modified_ms(&stat),
        target,
    })
}

/// Modification time in milliseconds since the epoch.
#[expect(
    clippy::useless_conversion,
    reason = "the field types differ between architectures"
)]
pub(crate) fn modified_ms(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    i64::from(stat.st_mtime)
        .saturating_mul(1000)
        .saturating_add(nanoseconds / 1_000_000)
}
