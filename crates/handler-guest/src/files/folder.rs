//! Making folders and moving paths.

use super::{mode_of, path};
use crate::fail;
use crate::failure::{from_errno, from_io};
use handler_types::guest::{GuestError, GuestErrorCode};
use rustix::fs::{AtFlags, CWD, RenameFlags, chmod, renameat, renameat_with, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a folder. With `parents` also those above it, and one that exists is fine.
pub(crate) fn make(text: &str, parents: bool, mode: Option<u32>) -> Result<(), GuestError> {
    let full = path::decode_absolute(text)?;
    let mode = mode.map(mode_of).transpose()?;
    let target = Path::new(OsStr::from_bytes(&full));
    if parents && target.is_dir() {
        return Ok(());
    }
    if parents {
        make_parents(&full)?;
    }
    let made = std::fs::DirBuilder::new().mode(0o777).create(target);
    match made {
        Err(error) if parents && error.raw_os_error() == Some(libc::EEXIST) && target.is_dir() => {
            return Ok(());
        }
        made => made.map_err(|error| from_io(text, &error))?,
    }
    // Set apart, as the process's mask takes bits away when it is made.
    mode.map_or(Ok(()), |mode| {
        chmod(target, mode).map_err(|errno| from_errno(text, errno))
    })
}

/// Makes the folders above a path.
pub(crate) fn make_parents(full: &[u8]) -> Result<(), GuestError> {
    let Ok((folder, _)) = path::split(full) else {
        return Ok(());
    };
    std::fs::create_dir_all(Path::new(OsStr::from_bytes(folder)))
        .map_err(|error| from_io(&path::encode(folder), &error))
}

/// Renames a path.
pub(crate) fn rename(from: &str, to: &str, overwrite: bool) -> Result<(), GuestError> {
    let (from_path, to_path) = (path::decode_absolute(from)?, path::decode_absolute(to)?);
    path::split(&from_path)?;
    path::split(&to_path)?;
    let (source, target) = (OsStr::from_bytes(&from_path), OsStr::from_bytes(&to_path));
    let renamed = if overwrite {
        renameat(CWD, source, CWD, target)
    } else {
        rename_if_free(source, target)
    };
    renamed.map_err(|errno| match errno {
        Errno::NOTEMPTY => fail(GuestErrorCode::Exists, format!("{to}: folder is not empty")),
        Errno::XDEV => fail(
            GuestErrorCode::Invalid,
            format!("{from} and {to} are on different file systems"),
        ),
        errno => from_errno(&format!("{from} to {to}"), errno),
    })
}

/// Renames when nothing is at the new place.
pub(super) fn rename_if_free(source: &OsStr, target: &OsStr) -> rustix::io::Result<()> {
    match renameat_with(CWD, source, CWD, target, RenameFlags::NOREPLACE) {
        // Some file systems do not know the flag.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(CWD, target, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => renameat(CWD, source, CWD, target),
            Err(errno) => Err(errno),
        },
        result => result,
    }
}
