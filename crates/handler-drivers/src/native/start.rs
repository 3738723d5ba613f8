//! Starting an instance: folders and limits first, then the launcher; undone in reverse when a step fails.

use super::cgroup::{Limit, Made};
use super::images::Taken;
use super::plan::{self, HostFacts, InstancePaths};
use super::process::{Process, ProcessId};
use super::{NativeConfig, NativeDriver, Reference, api, ca, cgroup, check, destroy, transparent};
use handler_engine::driver::{DriverError, Instance, InstancePlan};
use handler_types::launch::LaunchAnswer;
use handler_types::network::TransparentView;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The first that exists is the shell inside.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/bin/sh"];

/// Starts; when it fails, nothing is left but what lies in the instance's own folder.
pub(super) async fn start(
    driver: &NativeDriver,
    plan: &InstancePlan,
) -> Result<Instance, DriverError> {
    plan::check_owner(&plan.owner)?;
    let paths = InstancePaths::of(plan);
    let log = prepare(&driver.config, plan, &paths).map_err(|error| disk_error(&error))?;
    // Noted until the sandbox is destroyed; a failed start is one that may be tried again.
    let images = driver.images.take(plan).await?;
    let made = limit(driver, plan).await?;
    let result = launch(driver, plan, &paths, &made, &images, log).await;
    if result.is_err() {
        undo(driver, plan, &paths, &made).await;
    }
    let (process, transparent) = match result {
        Err(DriverError::Failed { step, message }) => {
            return Err(check::explain(driver, step, message).await);
        }
        result => result?,
    };
    watch(process);
    let reference = Reference {
        process,
        cgroups: made.folders.clone(),
    };
    Ok(Instance {
        reference: serde_json::to_value(reference).map_err(|error| failed("reference", &error))?,
        guest_socket: paths.socket,
        warnings: warnings(&made),
        transparent: Some(transparent),
    })
}

/// Home, certificate bundle, log.
fn prepare(config: &NativeConfig, plan: &InstancePlan, paths: &InstancePaths) -> io::Result<File> {
    handler_base::fs::create_private_dir(&paths.home)?;
    ca::write(
        &paths.ca_bundle,
        config.extra_ca_file.as_deref(),
        plan.ca_pem.as_deref(),
    )?;
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&paths.log)
}

/// Sets the limits. A limit that was asked for and cannot be set refuses a strict spec.
async fn limit(driver: &NativeDriver, plan: &InstancePlan) -> Result<Made, DriverError> {
    let limits = cgroup::limits_of(&plan.spec.resources).map_err(DriverError::Invalid)?;
    let made = driver.cgroups.make(&plan.owner, plan.id.as_str(), &limits);
    let missing = made.missing.iter().find(|(limit, _)| limit.asked);
    if let (true, Some((limit, why))) = (plan.spec.strict_limits, missing) {
        let error = unenforceable(limit, why);
        remove_cgroups(driver, plan, &made).await;
        return Err(error);
    }
    Ok(made)
}

async fn launch(
    driver: &NativeDriver,
    plan: &InstancePlan,
    paths: &InstancePaths,
    made: &Made,
    images: &Taken,
    log: File,
) -> Result<(ProcessId, TransparentView), DriverError> {
    let facts = facts(&driver.config, images);
    let launch_plan = plan::launch_plan(plan, paths, &facts, images, &made.folders)?;
    let answer = api::launch(&driver.config.guest_program, &launch_plan, log)
        .await
        .map_err(|error| failed("launcher", &error))?;
    match answer {
        LaunchAnswer::Ready {
            pid,
            start_ticks,
            transparent,
            obstacle,
        } => {
            let process = ProcessId { pid, start_ticks };
            let view = transparent::view(plan, transparent, obstacle);
            Ok((process, view))
        }
        LaunchAnswer::Failed {
            step,
            message,
            errno,
        } => Err(refusal(step, message, errno)),
    }
}

/// Whose fault a failed step is.
fn refusal(step: String, message: String, errno: Option<i32>) -> DriverError {
    let is_mount = step.starts_with("mount /");
    match errno {
        // In a user namespace this number means that there are too many of them.
        Some(libc::ENOSPC) if !step.contains("namespace") => {
            DriverError::NoSpace(format!("{step}: {message}"))
        }
        // The kernel's answers to an overlay it does not know or does not allow to ordinary users.
        Some(libc::ENODEV | libc::EPERM | libc::EINVAL | libc::EOPNOTSUPP)
            if step.starts_with("image root") =>
        {
            DriverError::HostNotReady(format!("{step}: {message}. {OVERLAY}"))
        }
        Some(libc::EDQUOT) => DriverError::NoSpace(format!("{step}: {message}")),
        Some(libc::ENOENT | libc::ELOOP | libc::EACCES | libc::ENOTDIR) if is_mount => {
            DriverError::Invalid(format!("{step}: {message}"))
        }
        Some(libc::EROFS) if step.starts_with("make ") => DriverError::Invalid(format!(
            "{step}: it would lie in a folder that is shown read-only; choose another path"
        )),
        _ => DriverError::Failed { step, message },
    }
}

const OVERLAY: &str = "Sandboxes of the native backend start from images only where the kernel has overlayfs and \
    allows it in user namespaces (Linux 5.11 or newer); use a sandbox without an image, or the podman backend.";

fn facts(config: &NativeConfig, images: &Taken) -> HostFacts {
    let host_shell = SHELLS
        .iter()
        .find(|shell| Path::new(shell).exists())
        .unwrap_or(&"/bin/sh");
    let shell = images.root.as_ref().map_or(*host_shell, |root| &root.shell);
    HostFacts {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        shell: shell.to_owned(),
        open_files: config.open_files,
        private: config.private.clone(),
    }
}

/// Takes away its exit status when it ends, whoever waits for it or not.
fn watch(process: ProcessId) {
    if let Some(process) = Process::open(process) {
        drop(handler_base::tasks::spawn_named(
            "native reaper",
            process.ended(),
        ));
    }
}

async fn undo(driver: &NativeDriver, plan: &InstancePlan, paths: &InstancePaths, made: &Made) {
    if let Err(error) = destroy::end_processes(&plan.owner, plan.id.as_str(), None).await {
        tracing::error!(id = %plan.id, %error, "a failed start left a process");
    }
    let _ = std::fs::remove_file(&paths.socket);
    remove_cgroups(driver, plan, made).await;
}

async fn remove_cgroups(driver: &NativeDriver, plan: &InstancePlan, made: &Made) {
    if made.folders.is_empty() {
        return;
    }
    let id = plan.id.as_str();
    if let Err(error) = driver.cgroups.remove(&plan.owner, id, &made.folders).await {
        tracing::error!(%id, %error, "a failed start left a cgroup");
    }
}

fn warnings(made: &Made) -> Vec<String> {
    let asked = made.missing.iter().filter(|(limit, _)| limit.asked);
    asked
        .map(|(limit, why)| format!("{} {}", text_of(limit, why), MEND))
        .collect()
}

const MEND: &str =
    "Run the daemon as root, or in a systemd unit with Delegate=yes, to have limits.";

fn text_of(limit: &Limit, why: &str) -> String {
    format!(
        "The {} limit cannot be enforced here: {why}.",
        limit.controller.name()
    )
}

/// The refusal of a limit.
pub(super) fn unenforceable(limit: &Limit, why: &str) -> DriverError {
    DriverError::Unenforceable(format!("{} {MEND}", text_of(limit, why)))
}

fn failed(step: &str, error: &dyn std::fmt::Display) -> DriverError {
    DriverError::Failed {
        step: step.to_owned(),
        message: error.to_string(),
    }
}

fn disk_error(error: &io::Error) -> DriverError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            DriverError::NoSpace(error.to_string())
        }
        _ => failed("prepare folders", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_told_as_what_it_is() {
        let told = |step: &str, errno| refusal(step.to_owned(), "m".to_owned(), Some(errno));
        assert!(matches!(
            told("mount /home/x", libc::ENOENT),
            DriverError::Invalid(_)
        ));
        assert!(matches!(
            told("write file /x", libc::ENOSPC),
            DriverError::NoSpace(_)
        ));
        assert!(matches!(
            told("user namespace", libc::ENOSPC),
            DriverError::Failed { .. }
        ));
        assert!(matches!(
            told("mount a new proc", libc::EACCES),
            DriverError::Failed { .. }
        ));
    }
}
