//! Where things of one instance are: on the host and inside.

use handler_engine::driver::InstancePlan;
use std::path::PathBuf;

/// The guest program inside.
pub(super) const INIT: &str = "/run/handler/init";
/// Folder with the guest's socket inside.
pub(super) const GUEST_DIR: &str = "/run/handler/guest";
/// The guest's socket inside.
pub(super) const GUEST_SOCKET: &str = "/run/handler/guest/guest.sock";
/// The display's socket inside.
pub(super) const DISPLAY: &str = "/run/handler/wayland-0";
/// `XDG_RUNTIME_DIR` of a sandbox with a display.
pub(super) const RUNTIME_DIR: &str = "/run/handler/user";

/// Places on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostPaths {
    /// Kept over stop and start.
    pub(super) home: PathBuf,
    pub(super) ca_bundle: PathBuf,
    /// Generated files, one folder per start.
    pub(super) files: PathBuf,
    /// Writable folders in which something is mounted or seeded, made anew at each start.
    pub(super) folders: PathBuf,
    /// What is mounted for the guest to make its socket in: everything in it is the sandbox's.
    pub(super) guest_dir: PathBuf,
    /// Our own name of the guest's socket, which no sandbox can replace.
    pub(super) socket: PathBuf,
}

impl HostPaths {
    pub(super) fn of(plan: &InstancePlan) -> Self {
        Self {
            home: plan.dir.join("home"),
            ca_bundle: plan.dir.join("ca-bundle.pem"),
            files: plan.dir.join("files"),
            folders: plan.dir.join("folders"),
            guest_dir: plan.runtime_dir.join("g"),
            socket: plan.runtime_dir.join("guest.sock"),
        }
    }
}
