//! Transparent mode of native sandboxes: what it needs of the host, and what is said of it.

use super::{NativeConfig, api};
use handler_engine::driver::{DriverError, InstancePlan};
use handler_types::api::{CheckStatus, HostCheck};
use handler_types::launch::LaunchAnswer;
use handler_types::network::{Transparent, TransparentView};
use handler_types::sandbox::SandboxSpec;
use rustix::fs::{CWD, Mode, OFlags};
use tokio::sync::OnceCell;

/// Where the kernel makes the device.
pub(crate) const TUN: &str = "/dev/net/tun";
const MEND: &str = "Load the kernel's module: modprobe tun. Without it, programs that ignore proxy variables find no way \
    out of sandboxes; everything else works.";
/// Why a sandbox without a way out has no transparent mode either.
pub(crate) const NO_WAY_OUT: &str = "its network policy lets nothing out";
/// Why a sandbox does without though it could have it.
pub(crate) const SWITCHED_OFF: &str = "it is switched off for this sandbox";

/// Whether this host can, tried once.
#[derive(Debug, Default)]
pub(super) struct Probe(OnceCell<bool>);

impl Probe {
    pub(super) async fn can(&self, config: &NativeConfig) -> bool {
        let probe = || async { check(config).await.status == CheckStatus::Ok };
        *self.0.get_or_init(probe).await
    }
}

/// Refuses a sandbox that requires what it cannot have.
pub(super) fn accept(spec: &SandboxSpec) -> Result<(), DriverError> {
    if spec.transparent != Transparent::Required {
        return Ok(());
    }
    require_way_out(spec)?;
    match node_obstacle() {
        None => Ok(()),
        Some(why) => Err(DriverError::Unenforceable(format!(
            "transparent mode cannot be had here: {why}"
        ))),
    }
}

/// Why this host makes no such devices, and what to do.
pub(crate) fn node_obstacle() -> Option<String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, TUN, flags, Mode::empty());
    let error = std::io::Error::from(opened.err()?);
    Some(format!("{TUN}: {error}. {MEND}"))
}

/// Refuses to require a way for all programs where there is none for any.
pub(crate) fn require_way_out(spec: &SandboxSpec) -> Result<(), DriverError> {
    if spec.network.needs_egress() {
        return Ok(());
    }
    Err(DriverError::Invalid(format!(
        "transparent mode cannot be required: {NO_WAY_OUT}; choose another policy, or transparent `auto` or `off`"
    )))
}

/// What people are told of a started sandbox.
pub(super) fn view(plan: &InstancePlan, on: bool, obstacle: Option<String>) -> TransparentView {
    let reason = match (on, plan.spec.transparent, &plan.egress_dir) {
        (true, ..) => None,
        (false, _, None) => Some(NO_WAY_OUT.to_owned()),
        (false, Transparent::Off, _) => Some(SWITCHED_OFF.to_owned()),
        (false, ..) => obstacle,
    };
    TransparentView { on, reason }
}

/// For `handler doctor`: the device made for real in namespaces that end at once.
pub(super) async fn check(config: &NativeConfig) -> HostCheck {
    let obstacle = match api::probe_transparent(&config.guest_program).await {
        Ok(LaunchAnswer::Ready { .. }) => None,
        Ok(LaunchAnswer::Failed { step, message, .. }) => Some(format!("{step}: {message}")),
        Err(error) => Some(error.to_string()),
    };
    HostCheck {
        name: "transparent mode".to_owned(),
        status: match &obstacle {
            None => CheckStatus::Ok,
            Some(_) => CheckStatus::Warning,
        },
        mend: obstacle.is_some().then(|| MEND.to_owned()),
        detail: obstacle.unwrap_or_else(|| "tried, works".to_owned()),
    }
}
