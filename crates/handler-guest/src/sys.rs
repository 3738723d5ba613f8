//! Calls of the system that no safe wrapper offers.
#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use tokio::io::unix::AsyncFd;

/// Makes sure that descriptors 0, 1 and 2 are open, so that no other file gets these numbers.
pub(crate) fn open_standard_descriptors() {
    while let Ok(fd) = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::empty(),
    ) {
        if fd.as_raw_fd() > 2 {
            return;
        }
        // Stays open on purpose.
        std::mem::forget(fd);
    }
}

/// Blocks `SIGCHLD` and `SIGTERM` for good and gives a descriptor to read them from.
pub(crate) fn signal_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before it is used; every pointer is to a live local;
    // the returned descriptor is new and owned by nobody else.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        // An inherited "ignore" would make children vanish unwaited.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Makes a descriptor non-blocking and registers it with the runtime, in whose context this is called.
pub(crate) fn waitable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    // SAFETY: an OwnedFd is open and stays the same until the AsyncFd that owns it drops it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Bytes waiting in a pipe or terminal.
pub(crate) fn waiting_bytes(fd: impl AsFd) -> u64 {
    rustix::io::ioctl_fionread(fd).unwrap_or(0)
}

/// Random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and length are those of a live, writable slice.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        filled += usize::try_from(count).unwrap_or(0);
    }
    Ok(bytes)
}

/// Random lower-case hex of `2 * N` digits.
pub(crate) fn random_hex<const N: usize>() -> io::Result<String> {
    Ok(hex(&random::<N>()?))
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |passed| {
            i64::try_from(passed.as_millis()).unwrap_or(i64::MAX)
        })
}

/// Makes a TUN device of whole packets, without a header of its own, on an open `/dev/net/tun`. It lives as
/// long as the descriptor. The name has at most 15 bytes.
pub(crate) fn make_tun(control: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives over the call.
    let result =
        unsafe { libc::ioctl(control.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Says that a TUN device belongs to root: no other user attaches to it without `CAP_NET_ADMIN`.
pub(crate) fn give_tun_to_root(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TUNSETOWNER takes a number, not a pointer.
    let result = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            libc::TUNSETOWNER as _,
            0 as libc::c_ulong,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
