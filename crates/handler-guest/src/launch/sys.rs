//! The system calls that have no safe wrapper: each one thin function, nothing else here.
//!
//! The launcher has one thread, which is what makes `fork` and `unshare` sound.
#![expect(
    unsafe_code,
    reason = "raw system calls; each block says why it is sound"
)]

use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Splits the process. `Some(pid)` in the parent, `None` in the child.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the launcher has one thread, so no lock can be held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends the process at once, without running anything registered for exit.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Enters new namespaces.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: the file table is not unshared, which is the only unsound use.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Closes every file descriptor from `first` on.
pub(super) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: called before anything was opened, so that no owner of a descriptor exists yet.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets attributes (and private propagation) of a mount, with everything below when `recursive`.
pub(super) fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    set: u64,
    recursive: bool,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    let mut flags = libc::AT_EMPTY_PATH;
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: the path is a static empty C string, the struct lives over the call and its size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Brings the loopback interface up, through any inet socket.
pub(super) fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed() as libc::c_char;
    request.ifr_name[1] = b'o'.cast_signed() as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives over the call.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
