//! The system call filter of everything in a sandbox: what is not listed is refused with `EPERM`.
//!
//! | call | rule |
//! |---|---|
//! | those of [`syscalls::ALLOWED`] | allowed |
//! | `clone` | allowed without namespace flags |
//! | `clone3`, and calls newer than this list | `ENOSYS`, so that libraries fall back to what they did before |
//! | `socket` | Unix, IPv4, IPv6, and netlink for routes only (it lists interfaces) |
//! | `socketpair` | Unix only |
//! | `ioctl` | allowed but `TIOCSTI`, `TIOCLINUX` (typing into a terminal) and `TIOCSETD` |
//! | `personality` | the few values programs use |
//! | calls of another architecture (32 bit) | the process is killed |
//!
//! `ptrace` is allowed: debuggers are tools of the trade, it reaches only processes of the same
//! sandbox, and since Linux 4.8 it cannot be used around a filter. PID 1 itself is not dumpable.

use super::step::StepError;
use super::syscalls;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use std::collections::BTreeMap;

#[cfg(target_arch = "x86_64")]
const ARCH: (TargetArch, u32) = (TargetArch::x86_64, 0xC000_003E);
#[cfg(target_arch = "aarch64")]
const ARCH: (TargetArch, u32) = (TargetArch::aarch64, 0xC000_00B7);

/// All `CLONE_NEW*` flags that `clone` knows.
const NAMESPACE_FLAGS: u64 = 0x7E02_0000;
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF];
const REFUSED_IOCTLS: [u64; 3] = [libc::TIOCSTI, libc::TIOCLINUX, 0x5423];

/// The compiled filter.
#[derive(Debug)]
pub(super) struct Filter {
    allowed: BpfProgram,
    unknown: BpfProgram,
}

/// Compiles the filter.
pub(super) fn filter() -> Result<Filter, StepError> {
    let compile = || -> Result<BpfProgram, seccompiler::BackendError> {
        let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        SeccompFilter::new(rules()?, refused, SeccompAction::Allow, ARCH.0)?.try_into()
    };
    let allowed = compile().map_err(|error| StepError::new("seccomp", error.to_string()))?;
    Ok(Filter {
        allowed,
        unknown: unknown_calls(),
    })
}

/// Puts the filter on; needs no-new-privileges. Nothing takes it off again.
pub(super) fn install(filter: &Filter) -> Result<(), StepError> {
    // The later one is asked first, and of two refusals the first one's number counts.
    for program in [&filter.allowed, &filter.unknown] {
        seccompiler::apply_filter(program)
            .map_err(|error| StepError::new("seccomp", error.to_string()))?;
    }
    Ok(())
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = syscalls::ALLOWED
        .iter()
        .map(|number| (*number, Vec::new()))
        .collect();
    let masked = SeccompCmpOp::MaskedEq(NAMESPACE_FLAGS);
    rules.insert(
        libc::SYS_clone,
        vec![all_of([(0, SeccompCmpArgLen::Qword, masked, 0)])?],
    );
    rules.insert(libc::SYS_socket, sockets()?);
    rules.insert(
        libc::SYS_socketpair,
        vec![all_of([equal(0, libc::AF_UNIX as u64)])?],
    );
    let other = |value| (1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value);
    rules.insert(libc::SYS_ioctl, vec![all_of(REFUSED_IOCTLS.map(other))?]);
    let values = PERSONALITIES.map(|value| all_of([equal(0, value)]));
    rules.insert(
        libc::SYS_personality,
        values.into_iter().collect::<Result<_, _>>()?,
    );
    Ok(rules)
}

fn sockets() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mut rules = Vec::new();
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        rules.push(all_of([equal(0, family as u64)])?);
    }
    let routes = [
        equal(0, libc::AF_NETLINK as u64),
        equal(2, libc::NETLINK_ROUTE as u64),
    ];
    rules.push(all_of(routes)?);
    Ok(rules)
}

type Comparison = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// Equality of an `int` argument: the kernel ignores the upper half, so it is not compared.
fn equal(argument: u8, value: u64) -> Comparison {
    (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn all_of<const N: usize>(
    comparisons: [Comparison; N],
) -> Result<SeccompRule, seccompiler::BackendError> {
    let mut conditions = Vec::with_capacity(N);
    for (argument, length, operator, value) in comparisons {
        conditions.push(SeccompCondition::new(argument, length, operator, value)?);
    }
    SeccompRule::new(conditions)
}

/// Six instructions by hand, since `ENOSYS` by range is no rule of the compiler.
fn unknown_calls() -> BpfProgram {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    vec![
        step(LOAD, 0, 0, 4),
        // Another architecture: its numbers mean other things; the main filter kills it.
        step(EQUAL, 0, 3, ARCH.1),
        step(LOAD, 0, 0, 0),
        step(EQUAL, 2, 0, clone3),
        step(AT_LEAST, 1, 0, syscalls::FIRST_UNKNOWN),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(RETURN, 0, 0, refuse),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_calls_are_not_listed() {
        let refused = [
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_mount_setattr,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_kexec_load,
            libc::SYS_kexec_file_load,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_open_by_handle_at,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_quotactl,
            libc::SYS_acct,
            libc::SYS_reboot,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_chroot,
            libc::SYS_syslog,
            libc::SYS_pidfd_getfd,
            libc::SYS_clone3,
        ];
        let rules = rules().expect("compiles");
        for number in refused {
            assert!(!rules.contains_key(&number), "call {number} is allowed");
        }
    }

    #[test]
    fn no_listed_call_is_answered_as_unknown() {
        for number in syscalls::ALLOWED {
            assert!(
                *number < i64::from(syscalls::FIRST_UNKNOWN),
                "call {number}"
            );
        }
        filter().expect("compiles");
    }
}
