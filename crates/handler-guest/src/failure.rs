//! Errors of the system as errors of the protocol.

use handler_archive::{ArchiveError, ErrorKind};
use handler_types::guest::{GuestError, GuestErrorCode};
use rustix::io::Errno;
use std::io;

/// An error for the host.
pub(crate) fn fail(code: GuestErrorCode, message: impl Into<String>) -> GuestError {
    GuestError {
        code,
        message: message.into(),
    }
}

/// A system error about `what` (a path, a program).
pub(crate) fn from_errno(what: &str, errno: Errno) -> GuestError {
    from_io(what, &io::Error::from(errno))
}

/// The same for the standard library's errors.
pub(crate) fn from_io(what: &str, error: &io::Error) -> GuestError {
    let code = error.raw_os_error().map_or(GuestErrorCode::Io, code_of);
    let text = error.to_string();
    // The number adds nothing for people.
    let text = text.split(" (os error").next().unwrap_or_default();
    fail(code, format!("{what}: {text}"))
}

/// An archive's error.
pub(crate) fn from_archive(error: ArchiveError) -> GuestError {
    let code = match error.kind {
        ErrorKind::Invalid => GuestErrorCode::Invalid,
        ErrorKind::Limit => GuestErrorCode::Limit,
        ErrorKind::System(errno) => code_of(errno.raw_os_error()),
    };
    fail(code, error.message)
}

fn code_of(number: i32) -> GuestErrorCode {
    match number {
        libc::ENOENT | libc::ENOTDIR | libc::ESRCH => GuestErrorCode::NotFound,
        libc::EEXIST => GuestErrorCode::Exists,
        libc::EACCES | libc::EPERM | libc::EROFS | libc::ETXTBSY => GuestErrorCode::Denied,
        libc::ENOSPC | libc::EDQUOT => GuestErrorCode::NoSpace,
        libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::E2BIG | libc::EFBIG => {
            GuestErrorCode::Limit
        }
        libc::EINVAL
        | libc::ENAMETOOLONG
        | libc::ELOOP
        | libc::EISDIR
        | libc::EXDEV
        | libc::ENOTEMPTY
        | libc::EBUSY
        | libc::ENOEXEC => GuestErrorCode::Invalid,
        _ => GuestErrorCode::Io,
    }
}
