//! Sockets of this machine, by file and by name.

use super::Case;

/// Fails when it can be connected to.
fn connects(path: &str) -> String {
    format!(
        "for s in {path}; do [ -S \"$s\" ] || continue; case \"$s\" in /run/handler/*) continue;; esac; \
         echo \"$s\" >>/tmp/escape/bad; done; true"
    )
}

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let paths: &[(&str, &str, &str)] = &[
        (
            "docker-socket",
            "the container engine's socket",
            "/var/run/docker.sock /run/docker.sock",
        ),
        (
            "podman-socket",
            "another container engine's socket",
            "/run/podman/podman.sock /run/user/*/podman/podman.sock",
        ),
        (
            "containerd-socket",
            "the container runtime's socket",
            "/run/containerd/containerd.sock",
        ),
        (
            "bus-socket",
            "the system's and the person's bus",
            "/run/dbus/system_bus_socket /run/user/*/bus",
        ),
        (
            "display-socket",
            "the person's display",
            "/tmp/.X11-unix/* /run/user/*/wayland-*",
        ),
        (
            "agent-socket",
            "the person's key agents",
            "/tmp/ssh-*/agent.* /run/user/*/gnupg/S.*",
        ),
        (
            "root-socket",
            "sockets seen through the first process's root",
            "/proc/1/root/run/docker.sock /proc/1/root/run/*/*.sock",
        ),
    ];
    let mut cases: Vec<Case> = paths
        .iter()
        .map(|(name, what, path)| Case::new(name, what, connects(path)))
        .collect();
    cases.push(Case::new(
        "any-socket",
        "any socket file that is not the sandbox's own",
        connects("$(busybox find / -xdev -type s 2>/dev/null)"),
    ));
    cases.push(Case::new(
        "abstract-socket",
        "abstract names of the machine's sockets",
        "busybox grep -E '@(/tmp/.X11|/org|/containerd|handler)' /proc/net/unix && echo seen >>/tmp/escape/bad; true",
    ));
    cases.push(Case::new(
        "listeners",
        "what listens on the machine's loopback",
        "busybox grep -iE \":$(printf '%04X' $F) \" /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6 && echo seen >>/tmp/escape/bad; true",
    ));
    cases.push(Case::new(
        "own-listener",
        "the daemon's own port through the way out",
        super::send("GET http://127.0.0.1:{F}/escaped-own HTTP/1.1\r\nHost: 127.0.0.1:{F}\r\nConnection: close\r\n\r\n"),
    ));
    cases.push(Case::new(
        "descriptors",
        "descriptors of other processes",
        "for d in /proc/[0-9]*/fd/*; do case \"$(busybox readlink $d)\" in socket:*) (echo escaped-descriptors >\"$d\") 2>/dev/null;; esac; done; true",
    ));
    cases
}
