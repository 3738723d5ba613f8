//! Starting a child below a supervisor of its own.
//!
//! The guest forks a supervisor that executes nothing: it is the subreaper of everything the command
//! starts, however often that forks and detaches itself, and lives as long as any of it does. Below it
//! the real child is forked and executed. Invariant: after `fork` only async-signal-safe calls are
//! made and nothing is allocated; all strings were made before.
#![expect(unsafe_code, reason = "fork, exec and what lies between")]

use super::user::Credentials;
use libc::{c_char, c_int, c_long};
use rustix::process::Rlimit;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Report: the child's process id.
pub(super) const REPORT_PID: i32 = 1;
/// Report: the child could not be forked; the value is the error number.
pub(super) const REPORT_NO_FORK: i32 = 2;
/// Report: the child ended; the value is its wait status.
pub(super) const REPORT_EXIT: i32 = 3;

/// Failed step: the working folder.
pub(super) const STEP_FOLDER: i32 = 1;
/// Failed step: the terminal.
pub(super) const STEP_TERMINAL: i32 = 2;
/// Failed step: the program itself.
pub(super) const STEP_PROGRAM: i32 = 3;
/// Failed step: the user.
pub(super) const STEP_USER: i32 = 4;

/// Length of a report and of a failed step: two `i32` in the machine's order.
pub(super) const RECORD: usize = 8;

/// Strings as `execve` wants them.
#[derive(Debug)]
pub(super) struct CStrings {
    /// Owns what `pointers` points to.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStrings {
    pub(super) fn new(strings: Vec<CString>) -> Self {
        // A CString's bytes live on the heap and do not move with it.
        let pointers = strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        Self {
            _strings: strings,
            pointers,
        }
    }
}

/// Everything a child needs, made before the fork. All descriptors are above 2.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) program: CString,
    pub(super) argv: CStrings,
    /// For a script without an interpreter line.
    pub(super) shell_argv: CStrings,
    pub(super) envp: CStrings,
    pub(super) folder: CString,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// The three are one terminal, to become the controlling one.
    pub(super) terminal: bool,
    /// Limit of open files to set; the guest's own is higher.
    pub(super) open_files: Option<Rlimit>,
    /// User to become, when another than the guest's.
    pub(super) credentials: Option<Credentials>,
}

/// Forks the supervisor and gives its pid. Reports come on `report`, a failed step on `failed`, which
/// ends without one when the program was executed. The caller closes its copies afterwards.
pub(super) fn fork_supervised(
    prepared: &Prepared,
    report: BorrowedFd<'_>,
    failed: BorrowedFd<'_>,
) -> io::Result<i32> {
    // SAFETY: the guest is single-threaded; the child calls `supervise`, which never returns and makes
    // only async-signal-safe calls. All signals are blocked meanwhile, so no handler runs in the child.
    unsafe {
        let mut every: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut every);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
        let pid = libc::fork();
        if pid == 0 {
            supervise(prepared, report.as_raw_fd(), failed.as_raw_fd());
        }
        let error = io::Error::last_os_error();
        libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        if pid < 0 { Err(error) } else { Ok(pid) }
    }
}

/// The supervisor's whole life. All signals stay blocked: only `SIGKILL` ends it early.
///
/// # Safety
/// Only in a process just forked from a single-threaded one.
unsafe fn supervise(prepared: &Prepared, report: RawFd, failed: RawFd) -> ! {
    // SAFETY: only async-signal-safe calls, on descriptors and strings that live in `prepared`.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_NAME, c"handler-run".as_ptr());
        let child = libc::fork();
        if child == 0 {
            become_program(prepared, failed);
        }
        let number = errno();
        // Whatever the guest holds must not stay open here; the report moves to 0.
        libc::dup2(report, 0);
        close_from(1);
        libc::chdir(c"/".as_ptr());
        if child < 0 {
            tell(0, REPORT_NO_FORK, number);
            libc::_exit(1);
        }
        tell(0, REPORT_PID, child);
        loop {
            let mut status: c_int = 0;
            let pid = libc::waitpid(-1, &raw mut status, 0);
            if pid == child {
                tell(0, REPORT_EXIT, status);
                // The guest learns of the end of the tree from this process's own end.
                libc::close(0);
            } else if pid < 0 && errno() != libc::EINTR {
                libc::_exit(0);
            }
        }
    }
}

/// The child's way to its program.
///
/// # Safety
/// As [`supervise`].
unsafe fn become_program(prepared: &Prepared, failed: RawFd) -> ! {
    // SAFETY: as in `supervise`; the pointer arrays end with null and their strings are alive.
    unsafe {
        libc::setsid();
        if prepared.terminal && libc::ioctl(prepared.stdin.as_raw_fd(), libc::TIOCSCTTY, 0) < 0 {
            give_up(failed, STEP_TERMINAL);
        }
        libc::dup2(prepared.stdin.as_raw_fd(), 0);
        libc::dup2(prepared.stdout.as_raw_fd(), 1);
        libc::dup2(prepared.stderr.as_raw_fd(), 2);
        close_on_exec_from(3);
        if let Some(limit) = prepared.open_files {
            let limit = libc::rlimit {
                rlim_cur: limit.current.unwrap_or(libc::RLIM_INFINITY),
                rlim_max: limit.maximum.unwrap_or(libc::RLIM_INFINITY),
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        if let Some(wanted) = &prepared.credentials
            && !become_user(wanted)
        {
            give_up(failed, STEP_USER);
        }
        if libc::chdir(prepared.folder.as_ptr()) < 0 {
            give_up(failed, STEP_FOLDER);
        }
        reset_signals();
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        let envp = prepared.envp.pointers.as_ptr();
        libc::execve(
            prepared.program.as_ptr(),
            prepared.argv.pointers.as_ptr(),
            envp,
        );
        if errno() == libc::ENOEXEC {
            libc::execve(
                c"/bin/sh".as_ptr(),
                prepared.shell_argv.pointers.as_ptr(),
                envp,
            );
        }
        give_up(failed, STEP_PROGRAM);
    }
}

/// Changes the user for good; whether it worked. By the system calls themselves, as the C library's
/// functions take locks.
///
/// # Safety
/// Only after a fork: changes the rights of the process.
unsafe fn become_user(wanted: &Credentials) -> bool {
    let (uid, gid) = (wanted.uid, wanted.gid);
    // SAFETY: the list is alive and of that length; the other arguments are plain numbers.
    unsafe {
        libc::syscall(
            libc::SYS_setgroups,
            wanted.groups.len(),
            wanted.groups.as_ptr(),
        ) == 0
            && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
            && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
    }
}

/// Gives every signal its default action. By the system call itself, as the C library keeps two signals
/// to itself and would leave these ignored if they were inherited so.
fn reset_signals() {
    /// Room for the kernel's `struct sigaction` of every architecture; all zero means the default.
    const DEFAULT: [u64; 8] = [0; 8];
    /// Size of the kernel's signal sets.
    const SET: usize = 8;
    for signal in 1..=64 {
        // SAFETY: the kernel reads the zeroed structure and writes nothing, as no old action is asked for.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT.as_ptr(),
                std::ptr::null::<u64>(),
                SET,
            );
        }
    }
}

/// # Safety
/// Only after a fork: ends the process.
unsafe fn give_up(failed: RawFd, step: i32) -> ! {
    // SAFETY: async-signal-safe calls only.
    unsafe {
        tell(failed, step, errno());
        libc::_exit(127);
    }
}

/// Writes one record; a pipe takes so few bytes at once or not at all.
fn tell(fd: RawFd, what: i32, value: i32) {
    let mut record = [0u8; RECORD];
    record[..4].copy_from_slice(&what.to_ne_bytes());
    record[4..].copy_from_slice(&value.to_ne_bytes());
    // SAFETY: the buffer is a live local of that length.
    while unsafe { libc::write(fd, record.as_ptr().cast(), RECORD) } < 0 && errno() == libc::EINTR {
    }
}

fn errno() -> i32 {
    // SAFETY: gives the address of this thread's own errno.
    unsafe { *libc::__errno_location() }
}

fn close_from(first: RawFd) {
    // SAFETY: closes descriptors of this forked process, which uses none of them any more.
    unsafe {
        if close_range(first, 0) < 0 {
            for fd in first..highest() {
                libc::close(fd);
            }
        }
    }
}

fn close_on_exec_from(first: RawFd) {
    // SAFETY: sets a flag of descriptors of this forked process.
    unsafe {
        if close_range(first, libc::CLOSE_RANGE_CLOEXEC) < 0 {
            for fd in first..highest() {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

/// # Safety
/// The descriptors from `first` on must not be in use when `flags` closes them.
unsafe fn close_range(first: RawFd, flags: libc::c_uint) -> c_long {
    // SAFETY: by number, as older C libraries have no function of that name; arguments are plain numbers.
    unsafe { libc::syscall(libc::SYS_close_range, first, c_int::MAX, flags) }
}

/// One above the highest descriptor number that can be open, for kernels without `close_range`.
fn highest() -> RawFd {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    RawFd::try_from(limit.rlim_cur.min(65_536)).unwrap_or(1024)
}
