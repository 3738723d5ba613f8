//! From a failed rehearsal to what a person can do about it: pure.

/// The stages a rehearsal goes through, in order.
pub(super) const STAGES: [&str; 3] = ["user namespaces", "mounts", "seccomp"];

/// Kernel settings that forbid user namespaces; absent where the kernel does not have them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sysctls {
    /// `kernel.unprivileged_userns_clone` (Debian): 0 forbids.
    pub(super) clone: Option<u64>,
    /// `user.max_user_namespaces`: how many there may be.
    pub(super) most: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu): 1 forbids without a profile.
    pub(super) apparmor: Option<u64>,
}

impl Sysctls {
    /// Reads them from this host.
    pub(super) fn read() -> Self {
        let read = |path| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        Self {
            clone: read("/proc/sys/kernel/unprivileged_userns_clone"),
            most: read("/proc/sys/user/max_user_namespaces"),
            apparmor: read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        }
    }
}

/// Which stage failed and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) stage: &'static str,
    pub(super) mend: String,
}

/// What to do about this failure.
pub(super) fn advice(step: &str, errno: Option<i32>, sysctls: &Sysctls) -> Advice {
    if step.contains("namespace") {
        return Advice {
            stage: STAGES[0],
            mend: for_namespaces(errno, sysctls),
        };
    }
    if sysctls.apparmor == Some(1) && matches!(errno, Some(libc::EPERM | libc::EACCES)) {
        // There the namespace can be made, but nothing may be done in it.
        return Advice {
            stage: STAGES[0],
            mend: APPARMOR.to_owned(),
        };
    }
    if step.contains("seccomp") {
        let mend = "The kernel needs CONFIG_SECCOMP_FILTER.".to_owned();
        return Advice {
            stage: STAGES[2],
            mend,
        };
    }
    let mend = match errno {
        Some(libc::ENOSYS) => "Linux 5.12 or newer is needed.",
        Some(libc::EPERM | libc::EACCES) if step.contains("proc") => {
            "In a container, the engine covers parts of /proc, and then the kernel allows no new one: \
             run Handler on the machine itself, or the container with unmasked /proc."
        }
        _ => {
            "Something on this machine forbids mounts in user namespaces; see the step that failed."
        }
    };
    Advice {
        stage: STAGES[1],
        mend: mend.to_owned(),
    }
}

const APPARMOR: &str = "AppArmor forbids user namespaces to programs without a profile. Either \
    `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (and a file in /etc/sysctl.d to keep it), \
    or a profile for handler-guest with the rule `userns,`.";

fn for_namespaces(errno: Option<i32>, sysctls: &Sysctls) -> String {
    if sysctls.clone == Some(0) {
        return "`sysctl -w kernel.unprivileged_userns_clone=1` allows them (and a file in /etc/sysctl.d keeps it)."
            .to_owned();
    }
    if sysctls.most == Some(0) {
        return "`sysctl -w user.max_user_namespaces=15000` allows them (and a file in /etc/sysctl.d keeps it)."
            .to_owned();
    }
    if sysctls.apparmor == Some(1) {
        return APPARMOR.to_owned();
    }
    match errno {
        Some(libc::ENOSPC) => format!(
            "There are too many namespaces already; raise user.max_user_namespaces (now {}).",
            sysctls.most.map_or_else(|| "unknown".to_owned(), |most| most.to_string())
        ),
        Some(libc::ENOSYS | libc::EINVAL) => {
            "The kernel was built without user namespaces (CONFIG_USER_NS).".to_owned()
        }
        _ => "Something around Handler forbids them (a container's seccomp profile, a missing capability): \
              run it on the machine itself."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_forbidding_namespaces_has_its_own_advice() {
        let none = Sysctls::default();
        let eperm = Some(libc::EPERM);
        let table = [
            (
                "user namespace",
                eperm,
                Sysctls {
                    clone: Some(0),
                    ..none
                },
                "unprivileged_userns_clone=1",
            ),
            (
                "user namespace",
                Some(libc::ENOSPC),
                Sysctls {
                    most: Some(0),
                    ..none
                },
                "max_user_namespaces=15000",
            ),
            (
                "user namespace",
                Some(libc::ENOSPC),
                Sysctls {
                    most: Some(9),
                    ..none
                },
                "now 9",
            ),
            (
                "user namespace",
                eperm,
                Sysctls {
                    apparmor: Some(1),
                    ..none
                },
                "AppArmor",
            ),
            (
                "mount a new tmpfs",
                Some(libc::EACCES),
                Sysctls {
                    apparmor: Some(1),
                    ..none
                },
                "AppArmor",
            ),
            ("user namespace", Some(libc::EINVAL), none, "CONFIG_USER_NS"),
            ("user namespace", eperm, none, "container's seccomp"),
            ("mount a new proc", eperm, none, "unmasked"),
            ("mount /usr (attributes)", Some(libc::ENOSYS), none, "5.12"),
            ("seccomp", Some(libc::EINVAL), none, "CONFIG_SECCOMP_FILTER"),
        ];
        for (step, errno, sysctls, part) in table {
            let mend = advice(step, errno, &sysctls).mend;
            assert!(mend.contains(part), "{step} {errno:?}: {mend}");
        }
    }
}
