//! Transparent mode of containers: only when it is required, since the engine must lend rights for it.
//!
//! | engine | PID 1 starts as | with |
//! |---|---|---|
//! | Podman | the sandbox's user | `CAP_NET_ADMIN`, `CAP_SETPCAP`, which Podman gives to any user it is told |
//! | Docker | root, who alone gets capabilities there | the same, and `CAP_SETUID`, `CAP_SETGID` to become the sandbox's user |
//!
//! The rights are those over the container's own network. The guest makes the device, gives all of them up, reads
//! back that they are gone, and only then listens: a guest that cannot ends, and the sandbox with it.

use super::info::EngineInfo;
use crate::native::transparent::{NO_WAY_OUT, SWITCHED_OFF, node_obstacle, require_way_out};
use handler_engine::driver::{DriverError, InstancePlan};
use handler_types::api::{CheckStatus, HostCheck};
use handler_types::network::{NetworkPolicy, Transparent, TransparentView};
use handler_types::sandbox::{Confinement, SandboxSpec};

/// What the engine lends until the guest listens.
pub(super) const CAPABILITIES: [&str; 2] = ["CAP_NET_ADMIN", "CAP_SETPCAP"];
/// What root needs besides to become another user.
pub(super) const CAPABILITIES_OF_ROOT: [&str; 2] = ["CAP_SETUID", "CAP_SETGID"];

/// Runtimes whose containers have a network of this kernel.
const RUNTIMES: [&str; 3] = ["runc", "crun", "io.containerd.runc.v2"];

const OWN_NETWORK: &str = "its network is the engine's own, which every program uses";
const NOT_ASKED: &str = "in a container it is on only when it is required: the engine must lend the guest rights over \
    the container's network while it starts";

/// Whether a container is to have it.
pub(super) fn is_wanted(spec: &SandboxSpec) -> bool {
    spec.transparent == Transparent::Required
}

/// Refuses a sandbox that requires what it cannot have; with `engine`, also what this engine cannot do here.
pub(super) fn accept(spec: &SandboxSpec, engine: Option<&EngineInfo>) -> Result<(), DriverError> {
    if !is_wanted(spec) {
        return Ok(());
    }
    require_way_out(spec)?;
    let cannot = |why: &str| {
        Err(DriverError::Unenforceable(format!(
            "transparent mode cannot be had here: {why}"
        )))
    };
    if matches!(spec.network, NetworkPolicy::Open) {
        return cannot(OWN_NETWORK);
    }
    if spec.confinement != Confinement::Strict {
        return cannot(
            "programs of this confinement may get rights over the network themselves; it needs `strict`",
        );
    }
    match engine.and_then(|engine| obstacle(engine, spec.runtime.as_deref())) {
        Some(why) => cannot(&why),
        None => Ok(()),
    }
}

/// Why no container of this engine can have it, with a runtime or the engine's own choice; none: it can.
pub(super) fn obstacle(engine: &EngineInfo, runtime: Option<&str>) -> Option<String> {
    let runtime = runtime.unwrap_or(&engine.default_runtime);
    if !RUNTIMES.contains(&runtime) {
        return Some(format!(
            "containers of `{runtime}` have no network of this kernel; choose runc or crun (`--runtime`)"
        ));
    }
    node_obstacle()
}

/// What people are told of a started sandbox.
pub(super) fn view(plan: &InstancePlan) -> TransparentView {
    let reason = match (&plan.spec.network, plan.spec.transparent) {
        (NetworkPolicy::None, _) => Some(NO_WAY_OUT),
        (NetworkPolicy::Open, _) => Some(OWN_NETWORK),
        (_, Transparent::Off) => Some(SWITCHED_OFF),
        (_, Transparent::Auto) => Some(NOT_ASKED),
        // The guest would not have listened without it.
        (_, Transparent::Required) => None,
    };
    TransparentView {
        on: reason.is_none(),
        reason: reason.map(str::to_owned),
    }
}

/// For `handler doctor`.
pub(super) fn check(engine: &EngineInfo) -> HostCheck {
    let obstacle = obstacle(engine, None);
    HostCheck {
        name: "transparent mode".to_owned(),
        status: match obstacle {
            None => CheckStatus::Ok,
            Some(_) => CheckStatus::Warning,
        },
        detail: obstacle.unwrap_or_else(|| "with `required`".to_owned()),
        mend: None,
    }
}
