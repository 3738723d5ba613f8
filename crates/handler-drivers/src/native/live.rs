//! What is done to an instance while it lives: freezing, other limits, figures.

use super::cgroup::{self, CgroupFolders, LimitError};
use super::reference;
use handler_engine::driver::{DriverError, Instance, InstanceStats};
use handler_types::sandbox::Resources;
use std::io::ErrorKind;
use std::path::PathBuf;

fn folders(instance: &Instance) -> Vec<PathBuf> {
    reference(instance).map_or_else(Vec::new, |reference| reference.cgroups)
}

/// Freezes or thaws all its processes.
pub(super) async fn freeze(instance: &Instance, freezing: bool) -> Result<(), DriverError> {
    let result = cgroup::freeze(&folders(instance), freezing).await;
    result.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => DriverError::Unenforceable(error.to_string()),
        _ => DriverError::Failed {
            step: if freezing { "freeze" } else { "thaw" }.to_owned(),
            message: error.to_string(),
        },
    })
}

/// Sets other limits.
pub(super) fn set_resources(
    cgroups: &CgroupFolders,
    instance: &Instance,
    resources: &Resources,
) -> Result<(), DriverError> {
    let set = cgroups.limit_again(&folders(instance), resources);
    set.map_err(|error| match error {
        LimitError::Invalid(message) => DriverError::Invalid(message),
        LimitError::NotNow(message) => DriverError::Unenforceable(message),
        // The memory in use does not fit below the new limit.
        LimitError::Kernel(error) if error.kind() == ErrorKind::ResourceBusy => {
            DriverError::Unenforceable("it uses more than the new limit".to_owned())
        }
        LimitError::Kernel(error) => DriverError::Failed {
            step: "set limits".to_owned(),
            message: error.to_string(),
        },
    })
}

/// What its cgroups say.
pub(super) fn stats(cgroups: &CgroupFolders, instance: &Instance) -> InstanceStats {
    let usage = cgroups.usage(&folders(instance));
    InstanceStats {
        memory_bytes: usage.memory_bytes,
        cpu_ms: usage.cpu_ms,
        processes: usage.processes,
        ..InstanceStats::default()
    }
}
