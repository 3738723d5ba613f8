//! What the guest is told when it starts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Settings of one guest.
#[derive(Debug, Clone)]
pub struct GuestConfig {
    /// Default working folder of commands: an absolute path inside.
    pub workdir: String,
    /// `HOME` of commands, unless the environment names one.
    pub home: String,
    /// Environment of commands. The guest's own is not passed on: it may be that of its launcher.
    pub env: BTreeMap<OsString, OsString>,
    /// User id the guest must be running as; another one is refused.
    pub uid: u32,
    /// Group id the guest must be running as.
    pub gid: u32,
    /// Unix socket of the egress filter; none: no forwarder.
    pub egress_socket: Option<PathBuf>,
    /// Loopback port that is forwarded to `egress_socket`.
    pub egress_port: u16,
    /// Version told in the hello.
    pub version: String,
}
