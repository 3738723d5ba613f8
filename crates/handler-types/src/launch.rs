//! What the `native` driver hands to `handler-guest launch` on standard input, and what comes back on
//! its standard output: one JSON document each way.
//!
//! The launcher runs outside with the caller's rights, makes the namespaces, builds the file tree and
//! becomes PID 1 inside (`handler-guest init`). It trusts the plan and nothing else.

use crate::network::Transparent;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `/etc/resolv.conf` of a sandbox in transparent mode: the guest's own network answers there. The way to it is
/// short and loses nothing: one attempt is enough, as long as the filter may take.
pub const TRANSPARENT_RESOLV: &str = "nameserver 198.18.0.2\noptions timeout:6 attempts:1\n";

/// Everything needed to make one native sandbox.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchPlan {
    /// Sandbox id; host name inside unless `hostname` says otherwise.
    pub id: String,
    /// Whose it is: shown in the argv of PID 1 as `--owner=<owner>`, so that orphans can be found.
    pub owner: String,
    /// Host name inside.
    pub hostname: String,
    /// Uid outside and inside (identity mapping of one id).
    pub uid: u32,
    /// Gid outside and inside.
    pub gid: u32,
    /// User name inside.
    pub user: String,
    /// Home inside, e.g. `/home/agent`.
    pub home: String,
    /// Host folder that becomes the home (private to the sandbox, on disk).
    pub home_source: String,
    /// Host paths shown read-only at the same path, with everything below; a missing one is skipped, a link is copied as a link.
    pub system: Vec<String>,
    /// Folders with the layers of the image that becomes the root, the uppermost first; empty: `system` on an empty root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Read-only file systems of other images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<LaunchOverlay>,
    /// Paths that get an empty writable folder in memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
    /// Host paths to show elsewhere or writable, in order of target depth. All must exist.
    pub mounts: Vec<LaunchMount>,
    /// Files made inside, read-only unless `writable`.
    pub files: Vec<LaunchFile>,
    /// Size limit of `/tmp` in MiB (a tmpfs); 0: half of the machine's memory.
    pub tmp_mib: u64,
    /// Where the guest listens: a Unix socket path outside.
    pub socket: String,
    /// Host folder with `proxy.sock` of the egress filter, mounted read-only at [`EGRESS_DIR`]; none: no way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_dir: Option<String>,
    /// Loopback port inside on which the guest forwards to the egress filter.
    pub egress_port: u16,
    /// Whether programs that know no proxy are caught too; only with `egress_dir`. Files of `/etc` that say who is
    /// asked for names are changed by the launcher when they are.
    #[serde(default)]
    pub transparent: Transparent,
    /// Environment of PID 1 and so of all commands.
    pub env: BTreeMap<String, String>,
    /// Default working folder.
    pub workdir: String,
    /// cgroup folders to join (already made, with limits set).
    pub cgroups: Vec<String>,
    /// `RLIMIT_NOFILE`.
    pub open_files: u64,
    /// Where the init's standard error goes (a host file, appended).
    pub log: String,
}

/// Where the egress folder is inside.
pub const EGRESS_DIR: &str = "/run/handler/egress";
/// Where the Wayland socket is inside.
pub const WAYLAND_SOCKET: &str = "/run/handler/wayland-0";
/// Where the certificate bundle is inside.
pub const CA_BUNDLE: &str = "/run/handler/ca-bundle.pem";
/// Where the same certificates are inside as a key store of Java.
pub const JAVA_TRUST_STORE: &str = "/run/handler/ca-bundle.jks";

/// One bind mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchMount {
    /// Absolute, canonical host path (file or folder). Opened without following links.
    pub source: String,
    /// Absolute path inside.
    pub target: String,
    /// Whether it is read-only.
    pub read_only: bool,
}

/// A read-only file system of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchOverlay {
    /// Folders of its layers on the host, the uppermost first; at least two.
    pub layers: Vec<String>,
    /// Absolute path inside.
    pub target: String,
}

/// One generated file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchFile {
    /// Absolute path inside.
    pub target: String,
    /// Its text.
    pub content: String,
    /// Permission bits.
    pub mode: u32,
    /// May be changed inside (a seeded copy); else mounted read-only.
    pub writable: bool,
}

/// What the launcher answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LaunchAnswer {
    /// PID 1 listens.
    Ready {
        /// Its process id outside.
        pid: i32,
        /// Its start time in clock ticks since boot (`/proc/<pid>/stat` field 22): with the pid, its identity.
        start_ticks: u64,
        /// Whether programs that know no proxy are caught too.
        #[serde(default)]
        transparent: bool,
        /// Why they are not, though it was wanted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        obstacle: Option<String>,
    },
    /// Nothing was left behind.
    Failed {
        /// Which step, e.g. `user namespace`, `mount /home/x/code`.
        step: String,
        /// The system's word.
        message: String,
        /// The error number, if it was one.
        errno: Option<i32>,
    },
}
